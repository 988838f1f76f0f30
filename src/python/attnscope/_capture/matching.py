"""Which recorded value is which hook, found by comparing with a trace of the checkpoint."""

from __future__ import annotations

import json
import math
import re
import warnings

import torch

# Hooks of attention that its operands are, and those that modules around it give.
_OF_CALLS = ("rot_q", "rot_k", "scores", "pattern", "v", "z")
_OF_MODULES = ("resid_pre", "q", "k", "v", "attn_out", "mlp_out", "resid_post")


# What a trace holds beside them.
_COMPUTED = ("contribution", "value_norms")


class _Matching:
    """Finds what a trace of another implementation calls the values of a model."""

    def __init__(self, owner):
        self.owner, self.reference = owner, owner.reference
        self.why = {}  # template of a hook -> why nothing was found for it
        self.layers = {}  # (prefix, attention) -> number of layers, in the order of execution
        for name in self.reference:
            hook = _hook_of(name)
            if hook is not None:
                self.layers.setdefault(hook[:3], {})[hook[3]] = self.reference[name]
        order = {"encoder.": 0, "": 1, "decoder.": 1}
        self.attentions = sorted((key for key in self.layers if key[2] in ("attn", "cross_attn")),
                                 key=lambda key: (order[key[0]], key[1], key[2] == "cross_attn"))

    def found(self):
        found = {}
        calls = self.owner.calls
        if len(calls) == len(self.attentions):
            for (prefix, layer, kind), call in zip(self.attentions, calls):
                for what in _OF_CALLS:
                    reference = self.layers[prefix, layer, kind].get(what)
                    tensor = call.tensors.get(what)
                    tensor = tensor if reference is None or tensor is None else _without_repeats(tensor, reference)
                    if reference is not None and tensor is not None and _has_size_of(tensor, reference):
                        found[f"{prefix}blocks.{layer}.{kind}.{what}"] = (tensor, f"{call.path} ({what} of its attention)")
        elif calls:
            warnings.warn(f"attnscope: {len(calls)} attentions ran, the trace has {len(self.attentions)}: only modules are matched",
                          stacklevel=4)
        for prefix in {prefix for prefix, *_ in self.layers}:
            for kind in ("attn", "cross_attn", ""):
                for what in _OF_MODULES:
                    self.modules(prefix, kind, what, found)
                for what in _COMPUTED:
                    self.why[_place(prefix, kind) + what] = "attnscope computes it from other hooks, so no module has it"
        self.after(found)
        return found

    def modules(self, prefix, kind, what, found):
        """One hook of all layers: the template of paths whose values come nearest in its best layer."""
        layers = {layer: hooks[what] for (p, layer, k), hooks in self.layers.items()
                  if (p, k) == (prefix, kind) and what in hooks}
        if not layers:
            return
        candidates = {}  # template -> layer -> event
        numbers = {}
        for event in self.owner.events:
            for general, number in _numbered(event.path):
                numbers.setdefault(general, set()).add(number)
                key = (general, event.what, event.nth)
                candidates.setdefault(key, {}).setdefault(number, event)
        best = None
        for key, events in candidates.items():
            shared = sorted(set(events) & set(layers))
            if len(shared) < len(layers):
                continue
            for cut in _cuts(what, self.owner.events and events[shared[0]].tensor, layers[shared[0]], self.sizes(prefix, kind)):
                distances = [_apart(cut(events[layer].tensor), layers[layer]) for layer in shared]
                if any(distance is None for distance in distances):
                    continue
                rank = (min(distances), events[shared[0]].order)
                if best is None or rank < best[0]:
                    best = (rank, events, cut)
        hook = _place(prefix, kind) + what
        if best is None:
            size = " x ".join(str(n) for n in next(iter(layers.values())).shape)
            self.why[hook] = (f"no module is given or gives {size} values in all {len(layers)} layers; where code computes it"
                              " without a module, put that step into one")
            return
        (distance, _), events, cut = best
        if distance > 0.7:  # nothing like it anywhere: a name would be a guess
            source = _general(events[min(layers)].source)
            self.why[hook] = (f"the nearest is {source}, {100 * distance:.0f} % apart in its best layer, too far to be taken for it;"
                              f" if it is the same step, pass names={{'{source}': '{hook}'}}")
            return
        for layer in layers:
            name = f"{prefix}blocks.{layer}." + (f"{kind}." if kind else "") + what
            if name not in found or what == "v":
                found[name] = (cut(events[layer].tensor), events[layer].source)

    def sizes(self, prefix, kind):
        for (p, _, k), hooks in self.layers.items():
            if (p, k) == (prefix, kind) and "q" in hooks and "k" in hooks:
                return hooks["q"].shape, hooks["k"].shape
        return None

    def after(self, found):
        """Logits, or the last hidden state: the output of the model that comes nearest."""
        for name in ("logits", "last_hidden_state", "encoder.last_hidden_state"):
            reference = self.reference.get(name)
            if reference is None:
                continue
            outputs = [event for event in self.owner.events if event.what == "output"]
            if name == "logits":
                outputs = [event for event in outputs if event.path == ""] or outputs
            ranked = [(_apart(event.tensor, reference), -event.order, event) for event in outputs]
            ranked = sorted((rank for rank in ranked if rank[0] is not None), key=lambda rank: rank[:2])
            if ranked:
                found[name] = (ranked[0][2].tensor, ranked[0][2].source)


def _cuts(what, tensor, reference, sizes):
    """Ways in which a tensor may hold a hook: as it is, or as a third of queries, keys and values side by side."""
    cuts = [lambda tensor: tensor]
    if sizes is not None and what in ("q", "k", "v"):
        (n_heads, _, d), (n_kv, _, _) = sizes
        widths = {"q": n_heads * d, "k": n_kv * d, "v": n_kv * d}
        whole = sum(widths.values())
        start = {"q": 0, "k": widths["q"], "v": widths["q"] + widths["k"]}[what]
        nth = "qkv".index(what)

        def together(tensor):
            is_fused = tensor.dim() == 2 and tensor.shape[-1] == whole
            return tensor[:, start:start + widths[what]] if is_fused else tensor[:0]

        def by_heads(tensor):
            is_fused = tensor.dim() == 2 and tensor.shape[-1] == whole and n_heads == n_kv
            return tensor.reshape(len(tensor), n_heads, 3, d)[:, :, nth].flatten(1) if is_fused else tensor[:0]

        cuts += [together, by_heads]
    return cuts


def _apart(tensor, reference):
    """How far two tensors lie apart, as a share of the second; None where they do not hold the same number of values."""
    if tensor.numel() != reference.numel() or not tensor.numel():
        return None
    reference = reference.float()
    if reference.dim() == 3 and tensor.dim() == 2:  # [head, position, d] beside [position, head * d]
        reference = reference.transpose(0, 1).flatten(1)
    elif reference.dim() == 3 and tensor.dim() == 3 and tensor.shape != reference.shape:
        tensor = tensor.transpose(0, 1)
    if tensor.shape != reference.shape:
        return None
    share = ((tensor - reference).norm() / reference.norm().clamp_min(1e-30)).item()
    return math.inf if math.isnan(share) else share


def _without_repeats(tensor, reference):
    """Keys and values that were written once for each query head, once for each of their own. Where copies of a head do not
    stand side by side, all of them stay, so that a comparison sees their order."""
    n = max(reference.shape[0], 1)
    times = tensor.shape[0] // n
    if times < 2 or tensor.shape[0] != times * n:
        return tensor
    copies = tensor.reshape(n, times, *tensor.shape[1:])
    return copies[:, 0] if torch.equal(copies, copies[:, :1].expand_as(copies)) else tensor


def _has_size_of(tensor, reference):
    """Whether a tensor has a hook's number of values, or several copies of each head."""
    if tensor.numel() == reference.numel():
        return True
    return (tensor.dim() == reference.dim() == 3 and tensor.shape[1:] == reference.shape[1:]
            and tensor.shape[0] % reference.shape[0] == 0)


def _hook_of(name):
    """(prefix, layer, attention, hook) of the name of a trace."""
    match = re.fullmatch(r"(encoder\.|decoder\.|)blocks\.(\d+)\.(?:(attn|cross_attn)\.)?(\w+)", name)
    return (match[1], int(match[2]), match[3] or "", match[4]) if match else None


def _numbered(path):
    """A path with each of its numbers in turn taken out: the template, and the number."""
    for match in re.finditer(r"(?<![^.])\d+(?![^.])", path):
        yield path[:match.start()] + "{i}" + path[match.end():], int(match[0])


def _place(prefix, kind):
    """What stands before the name of a hook in any layer."""
    return f"{prefix}blocks.{{i}}." + (f"{kind}." if kind else "")


def _general(name):
    return re.sub(r"(?<![^.])\d+(?![^.:\[ ])", "{i}", name)


def _read_trace(path):
    """The tensors of a safetensors file, those that are numbers of 32 or 64 bits."""
    kinds = {"F32": torch.float32, "I64": torch.int64}
    with open(path, "rb") as file:
        content = file.read()
    n = int.from_bytes(content[:8], "little")
    header, tensors = json.loads(content[8:8 + n]), {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] in kinds:
            start, end = (8 + n + offset for offset in entry["data_offsets"])
            values = torch.frombuffer(bytearray(content[start:end]), dtype=kinds[entry["dtype"]])
            tensors[name] = values.reshape(entry["shape"])
    return tensors
