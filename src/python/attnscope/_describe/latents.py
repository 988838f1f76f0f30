"""Reads maps of queries, keys and values that go through a narrow vector with a norm (latent attention, DeepSeek-AI 2024)."""

from __future__ import annotations

import torch

from . import fitting
from .fitting import close
from .naming import single
from .tracing import Elements, Unnamed, _affine_node, _parts, _read_map, function, read_map


class Latent:
    """The map from the input of an attention to a narrow vector, and the norm of that: `node` has the normed vectors."""

    def __init__(self, weight, bias, norm, node):
        self.weight, self.bias, self.norm, self.node = weight, bias, norm, node


class Own:
    """Dimensions of every head's keys that come from a latent, and the others, which all heads share and the input gives."""

    def __init__(self, latent, shared):
        self.latent, self.shared = latent, shared  # Latent, (weight [d, in], bias [d]) or None


def read_through(p, source, operand, places, n, name):
    """The Map of queries, keys or values, as [`read_map`]; it has an `own` where a latent stands between."""
    try:
        return read_map(p, source, operand, places, n, name)
    except Unnamed:
        found = _whole(p, source, operand, places, n, name)
        if found is None:
            found = _joined(p, source, operand, places, n, name)
        if found is None:
            raise
        return found


def _whole(p, source, operand, places, n, name):
    """The Map of values that all come from one latent; None where they do not."""
    latent = _latent(p, source, operand, n)
    if latent is None:
        return None
    m = read_map(p, latent.node, operand, places, n, name)
    m.own = Own(latent, None)
    return m


def _joined(p, source, operand, places, n, name):
    """The Map of heads that join dimensions of a latent with such as all heads share; None where they do not."""
    parts = _parts(p, operand, places)
    if parts is None or len(parts) != 2:
        return None
    of_latent = [_latent(p, source, node, n) for node, _, _ in parts]
    if sum(latent is not None for latent in of_latent) != 1:
        return None
    at = 0 if of_latent[0] is not None else 1
    (node, own_places, own), (direct_node, direct_places, shared) = parts[at], parts[1 - at]
    m = read_map(p, of_latent[at].node, node, own_places, n, name)
    direct = _read_map(p, source, direct_node, direct_places, n, name)
    if m.turns is not None or m.norm is not None or direct.norm is not None or m.factor != 1 or direct.factor != 1 \
            or not close(direct.weight, direct.weight[:1].expand_as(direct.weight)) \
            or not close(direct.bias, direct.bias[:1].expand_as(direct.bias)) and float(direct.bias.abs().max()) > 1e-12:
        return None
    d = places.shape[2]
    order = torch.cat([own, shared])
    if not torch.equal(order, torch.arange(d)):  # those of the latent come first
        raise Unnamed(f"{name} has dimensions that all heads share before those of a latent", [operand])
    turns = None
    if direct.turns is not None:
        turns = torch.eye(d, dtype=torch.float64).repeat(n, 1, 1)
        turns[:, len(own):, len(own):] = direct.turns
    m.turns, m.own = turns, Own(of_latent[at], (direct.weight[0], direct.bias[0]))
    return m


def _latent(p, source, operand, n):
    """The Latent that stands between a source and an operand; None where none does."""
    chain = [c for c in p.bottlenecks([source], operand) if isinstance(c.value, torch.Tensor) and c.value.is_floating_point()
             and c.value.numel() % n == 0]
    for end in reversed(chain[1:-1]):
        width = end.value.numel() // n
        if end.value.shape[-1] != width or width < 2:
            continue
        for start in chain:
            if start.idx >= end.idx or start is source or start.value.numel() != end.value.numel() or start.value.shape[-1] != width:
                continue
            norm = fitting.norm(function(p, start, end), n, width, start.value.reshape(n, -1))
            if norm is None or _affine_node(p, source, start, n, source.value.numel() // n) is None:
                continue
            d_in = source.value.numel() // n
            to = Elements(torch.arange(start.value.numel()).reshape(n, -1))
            found = fitting.affine(function(p, source, start, to), n, d_in)
            if found is not None:
                return Latent(*found, norm, end)
    return None


def latent_parts(written, attentions, place):
    """(the parts of latent vectors that queries, keys and values are made of, how many dimensions of a key all heads share)."""
    kinds = {tuple(None if m.own is None else m.own.shared is not None for m in (a.q, a.k, a.v)) for a in attentions}
    if kinds == {(None, None, None)}:
        return {}, 0
    if len(kinds) > 1 or attentions[0].k.own is None or any(
            a.v.own is None or a.v.own.latent.node is not a.k.own.latent.node for a in attentions):
        raise Unnamed("keys and values do not come from one latent vector with a norm", [attentions[0].node])
    if any(layer.cross is not None for layer in written.layers):
        raise Unnamed("heads read latent vectors with norms, in a decoder of two texts", [attentions[0].node])
    place, part, down = place + "latent.", {}, {"q": [a.q.own and a.q.own.latent for a in attentions]}
    down["kv"] = [a.k.own.latent for a in attentions]
    shared = [a.k.own.shared for a in attentions]
    maps = {name: [(single(of.weight), single(of.bias)) for of in own] for name, own in down.items() if own[0] is not None}
    if shared[0] is not None:
        maps["shared_key"] = [(single(weight), single(bias)) for weight, bias in shared]
        both = [torch.cat([own.weight, weight]) for own, (weight, _) in zip(down["kv"], shared)]
        name = written.stored.one_name(both, written.at[:len(both)])
        turns = attentions[0].k.turns is not None  # how many dimensions turn says where the one ends and the other begins
        if name and turns and not any(bool(bias.any()) for key in ("kv", "shared_key") for _, bias in maps[key]):
            part["kv_shared"] = {"weight": written.keep(name), "order": "kv shared_key", "per": "all"}
            del maps["kv"], maps["shared_key"]
    part.update({name: written.linear(name, place + name, own) for name, own in maps.items()})
    for name in ("q", "kv"):
        if down[name][0] is not None:
            part[f"{name}_norm"] = written.norm(f"{place}{name}_norm", [of.norm for of in down[name]])
    return part, 0 if shared[0] is None else shared[0][0].shape[0]
