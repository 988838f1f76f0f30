"""Reads rows of positions that are added to what queries or keys are made of, and not to what values are made of (DETR)."""

from __future__ import annotations

import contextlib

import torch

from .naming import one_of
from .replay import PRODUCTS
from .slabs import held, with_values
from .tracing import Unnamed


class Places:
    """The node that is added, and its rows [position, d_model]."""

    def __init__(self, node, rows):
        self.node, self.rows = node, rows


def places_of(p, source, operand, n):
    """The Places that are added to a source before it is mapped to an operand; None where none are."""
    width = source.value.numel() // n
    for node in p.bottlenecks([source], operand)[1:]:
        if p.op(node) in PRODUCTS:
            return None
        others = [i for i in node.inputs if i not in p.active] if p.op(node) == "add" and len(node.args) == 2 else []
        value = others[0].value if len(others) == 1 else None
        if isinstance(value, torch.Tensor) and value.shape[-1:] == (width,) and node.value.numel() == n * width:
            rows = value.expand(node.value.shape).reshape(n, width)
            if bool((rows != rows[:1]).any()):
                return Places(others[0], rows)
    return None


@contextlib.contextmanager
def without(p, places, operand):
    """The pass without the rows, for the length of the block."""
    if places is None:
        yield p
        return
    zeros = {places.node: torch.zeros_like(places.node.value)}
    with with_values(p, zeros, [operand]):
        yield held(p, zeros)


def _place_rows(written, key, by_layer):
    """The name of the tables of rows, one of each layer or one for all."""
    n, d_model = by_layer[0].shape
    singles = [rows.to(torch.float32) for rows in by_layer]

    def holding(rows):
        for name, value in written.stored.by_name.items():
            table = value.squeeze()
            if table.dim() == 2 and table.shape[1] == d_model and table.shape[0] >= n and torch.equal(table[:n], rows):
                yield name

    name = one_of([list(holding(rows)) for rows in singles], written.at)
    if name is not None:
        return written.keep(name)
    alike = len(singles) > 1 and all(torch.equal(rows, singles[0]) for rows in singles)
    return written.copy("places" if alike else f"blocks.{{layer}}.{key}", singles,
                        f"what is added to the input of queries or keys at the first {n} positions: a copy")


def places_parts(written, own):
    """Writes the rows that are added to the input of queries and of keys."""
    for which, key in enumerate(("q_places", "k_places")):
        rows = [a.places[which] for a in own]
        if all(one is None for one in rows):
            continue
        if any(one is None for one in rows) or "latent" in written.parts:
            raise Unnamed("rows of positions are added to the input of queries or keys in some layers, or of latent vectors",
                          [own[0].node])
        written.parts[key] = _place_rows(written, key, rows)
