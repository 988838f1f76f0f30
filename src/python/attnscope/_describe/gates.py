"""Reads what multiplies the outputs of heads before their map: a sigmoid of a map of the branch's input."""

from __future__ import annotations

import torch

from . import fitting
from .replay import like
from .tracing import followed

# Inputs are made this small, so that no sigmoid is 0 or 1 in double precision.
_SMALL = 0.05


class Gate:
    """A map [head, d, in], or [head, 1, in] where all values of a head have one factor, and its bias [head, d]."""

    def __init__(self, node, weight, bias):
        self.node, self.weight, self.bias = node, weight, bias

    def opened(self):
        """The values with which it multiplies nothing."""
        return {self.node: torch.ones_like(self.node.value)}


def read_gate(p, source, outs, terms, n):
    """The Gate on the outputs of heads; None where there is none. `outs` are pairs with the places [head, query, d] of their outputs."""
    if len(outs) != 1 or len(terms) != 1:
        return None
    (pair, at), = outs
    path = p.between([pair.out], terms[0])
    inside = set(path)
    for node in path:
        sides = [i for i in node.inputs if i in p.active] if p.op(node) == "mul" and node is not pair.out else []
        factors = [i for i in sides if i not in inside]
        if len(sides) != 2 or len(factors) != 1:
            continue
        places = followed(p, pair.out, node)
        if places is None or places.numel() != pair.out.value.numel() or bool((places < 0).any()):
            return None
        order = torch.empty(places.numel(), dtype=torch.int64)
        order[places.reshape(-1)] = torch.arange(places.numel())
        d_in, shape, by_head = source.value.numel() // n, node.value.shape, order[at].transpose(0, 1)  # [query, head, d]

        def opening(rows, factor=factors[0], shape=shape, by_head=by_head):
            got = p.run({source: like(source, rows * _SMALL)}, [factor])[0].expand(shape).reshape(-1)[by_head]
            return torch.logit(got).reshape(n, -1)

        found = fitting.affine(opening, n, d_in)
        if found is None:
            return None
        heads, _, d = at.shape
        weight, bias = found[0].reshape(heads, d, d_in) / _SMALL, found[1].reshape(heads, d)
        if fitting.close(weight[:, :1].expand_as(weight), weight) and fitting.close(bias[:, :1].expand_as(bias), bias):
            weight, bias = weight[:, :1], bias[:, :1]
        return Gate(factors[0], weight, bias)
    return None
