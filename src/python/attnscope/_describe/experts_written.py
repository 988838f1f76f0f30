"""Writes a mixture of experts: the names of its tensors, one for each expert or one that holds all, and the router's rule."""

from __future__ import annotations

import torch

from .naming import in_layer, in_layers, in_words, one_of
from .tracing import Unnamed

_FUSED = [(order, per) for order in (("gate", "up"), ("up", "gate")) for per in ("all", "unit")]


def experts_parts(written, layers):
    """The section of the experts of some layers, those of `written.at`; the tensors that it names are kept."""
    first = layers[0]
    section = {"router": written.linear("router", "blocks.{layer}.router", [m.router for m in layers])}
    if first.choice_bias is not None:
        section["choice_bias"] = written.vector("blocks.{layer}.choice_bias", [m.choice_bias for m in layers])
    section.update(_maps(written, layers))
    if first.shared is not None:
        shared = [m.shared for m in layers]
        for name in ("gate", "up", "down"):
            if getattr(shared[0], name) is not None:
                maps = [getattr(m, name) for m in shared]
                section[f"shared_{name}"] = written.linear(name, f"blocks.{{layer}}.shared_{name}", maps)
    if first.shared_weight is not None:
        section["shared_weight"] = written.linear("shared_weight", "blocks.{layer}.shared_weight", [m.shared_weight for m in layers])
    section.update(n_used=first.n_used, scores=first.scores, normalises=first.normalises)
    if first.scale != 1:
        section["scale"] = first.scale
    at, n = written.at, written.n
    if at != written.feeding:
        step = next((step for step in range(1, n) if at == list(range(at[0], n, step))), None)
        if step is None:
            raise Unnamed(f"layers {at} have experts and the others none, which is no rule")
        section["layers"] = f"{step}*i+{at[0]}"
    return section


def _maps(written, layers):
    """The parts of the maps of the experts: gate and up in one tensor or apart, and down."""
    parts = {"down": _part(written, layers, lambda m: m.down)}
    if layers[0].each_has_gate:
        for order, per in _FUSED:
            def both(m, order=order, per=per):
                halves = [getattr(m, name) for name in order]
                join = torch.cat if per == "all" else lambda pair: torch.stack(pair, 1).flatten(0, 1)
                return join([weight for weight, _ in halves]), join([bias for _, bias in halves])

            part = _part(written, layers, both, is_needed=False)
            if part is not None:
                return {"gate_up": {**part, "order": " ".join(order), "per": per}, **parts}
        parts["gate"] = _part(written, layers, lambda m: m.gate)
    return {"up": _part(written, layers, lambda m: m.up), **parts}


def _part(written, layers, of, is_needed=True):
    """The part of one map of all experts; None where no stored tensors hold it."""
    maps = [{expert: of(mlp) for expert, mlp in m.each.items()} for m in layers]
    n = layers[0].n
    for axes, turned in ((None, lambda w: w), ("in out", lambda w: w.T)):
        values = [{expert: turned(weight) for expert, (weight, _) in own.items()} for own in maps]
        for find, name_axes in ((_apart, axes), (_slab, f"expert {axes or 'out in'}")):
            found = find(written, values, n)
            if found is None:
                continue
            part = {"weight": written.keep(found, n), **({"axes": name_axes} if name_axes else {})}
            biases = [{expert: bias for expert, (_, bias) in own.items()} for own in maps]
            if any(float(bias.abs().max()) > 0 for own in biases for bias in own.values()):
                bias = find(written, biases, n)
                if bias is None:
                    continue
                part["bias"] = written.keep(bias, n)
            return part
    if not is_needed:
        return None
    raise Unnamed("no stored tensors hold the maps of the experts as they are, one for each expert or all in one; an expert that no "
                  "token of the example chooses is known by its name alone: give a longer example")


def _apart(written, values, n):
    """A name with {expert} of tensors that hold one expert each; experts that the example did not choose are there by name."""
    by_name, whole = written.stored.by_name, []
    for own in values:
        names = {expert: written.stored.holding(value) for expert, value in own.items()}
        numbers = sorted(names)
        if len(numbers) < 2:
            whole.append([])
            continue
        first, second = numbers[:2]
        found = []
        for a in names[first]:
            for b in names[second]:
                words = in_words(a, b, (first, second))
                if words is not None and "{layer}" in words and all(in_layer(words, e) in names[e] for e in numbers) \
                        and all(in_layer(words, e) in by_name for e in range(n)):
                    found.append(words.replace("{layer}", "\0"))
        whole.append(found)
    found = one_of(whole, written.at)
    return None if found is None else found.replace("\0", "{expert}")


def _slab(written, values, n):
    """A name of tensors that hold all experts of a layer."""
    stored, whole = written.stored, []
    for own in values:
        one = next(iter(own.values()))
        names = stored.by_size.get(n * one.numel(), ())
        whole.append([name for name in names if stored.by_name[name].shape == (n, *one.shape) and all(
            torch.equal(stored.by_name[name][expert], value.to(torch.float32)) for expert, value in own.items())])
    found = one_of(whole, written.at)
    return found if found is None or all(name in stored.by_name for name in in_layers(found, written.at)) else None
