"""Reads experts that run in one product: all of them on every token, or those that a token chooses, gathered for it."""

from __future__ import annotations

import contextlib
import copy

from .replay import _run
from .tracing import Elements, Unnamed


def is_slab(p, source, chooses, ups, n):
    """Whether one product holds several experts: their matrices are gathered by the choice, or stand side by side."""
    d_in = source.value.shape[-1]
    width = ups[0].value.numel() // n
    return any(i in p.gathered for up in ups for i in up.inputs) or any(
        i not in p.active and i.value.numel() == d_in * width and width % chooses.n_experts == 0 and i.value.dim() == 3
        for up in ups for i in _sources(p, up))


def _sources(p, node):
    """The parameters that a product reads, before they are moved."""
    found, stack = [], [i for i in node.inputs if i not in p.active]
    while stack:
        one = stack.pop()
        found.append(one)
        stack += one.inputs
    return [one for one in found if hasattr(one.value, "numel")]


def read_slab(p, source, chooses, group, sizes, read_mlp, with_bias, inside):
    """{expert: Mlp} of the experts that a pair of products, or three, hold."""
    (down, ups), (n, d_model) = group, sizes
    are_gathered = any(i in p.gathered for up in ups for i in up.inputs)
    end, each = with_bias(p, down, inside, None), {}
    for expert in range(chooses.n_experts):
        values = chooses.only(expert) if are_gathered else {}
        n_blocks = chooses.chosen.shape[1] if are_gathered else chooses.n_experts
        with with_values(p, values, [end]):
            each[expert] = _one(held(p, values), source, end, (n, d_model), read_mlp, 0 if are_gathered else expert, n_blocks)
    return each


def _one(p, source, end, sizes, read_mlp, idx, n_blocks):
    """One of several feed-forward layers, whose values lie in blocks or take turns."""
    why = None
    for takes_turns in (False, True):
        def block(at, takes_turns=takes_turns):
            if at is None or at.at.shape[1] % n_blocks:
                return None
            width = at.at.shape[1] // n_blocks
            return Elements(at.at[:, idx::n_blocks] if takes_turns else at.at[:, idx * width:(idx + 1) * width])

        try:
            return read_mlp(p, source, end, *sizes, block)[0]
        except Unnamed as unnamed:
            why = why or unnamed
    raise why


def held(p, values):
    """The pass, where some nodes keep their values whatever the text is."""
    held = copy.copy(p)
    held.run = lambda others, targets: p.run({**values, **others}, targets)
    return held


@contextlib.contextmanager
def with_values(p, values, ends):
    """For the length of the block, nodes hold what they would if some of them had other values."""
    before = {}
    try:
        for node in p._order(tuple(values), tuple(ends)) if values else ():
            before[node] = node.value
            node.value = _run(node, lambda n: values.get(n, n.value))
        for node, value in values.items():
            before[node], node.value = node.value, value
        yield
    finally:
        for node, value in before.items():
            node.value = value
