"""Tells the encoder of a pass from its decoder: two texts, and a value of the one by which patterns of the other are multiplied."""

from __future__ import annotations

import copy

import torch

from .replay import PRODUCTS


class Sides:
    """The two texts of a pass, and what the decoder reads of the encoder."""

    def __init__(self, source, target, leaving):
        self.source, self.target = source, target  # arguments: token ids, or numbers of which rows are made
        self.leaving = leaving  # values of the encoder that the decoder uses


def sides(p):
    """The Sides of a pass; None where it reads one text."""
    given = [node for node in p.nodes if node.kind == "argument" and isinstance(node.value, torch.Tensor)
             and node.value.dtype != torch.bool]
    texts = [node for node in given if not node.value.is_floating_point()]
    # Two texts first: numbers beside them may be masks.
    for some in (texts, given):
        seen = {argument: seen_from(p, argument).below for argument in some}
        for source, target in _pairs(p, seen):
            alone, below = seen[source] - seen[target], seen[target]
            needed = p.needed(seen[source] | below)
            leaving = [node for node in p.nodes if node in alone and node in needed
                       and any(user in below and user in needed for user in node.users)]
            return Sides(source, target, leaving)
    return None


def seen_from(p, argument, ends=None):
    """The pass as one argument sees it: as token ids, or as numbers of which the rows of the residual are made."""
    return p.seen_from_rows(argument, ends) if argument.value.is_floating_point() else p.seen_from(argument, ends)


def _pairs(p, seen):
    """Pairs of arguments, where queries of the second meet keys of the first, and patterns of both multiply values of the first. A mask
    meets no keys."""
    for source in seen:
        for target in seen:
            if source is not target:
                alone, both = seen[source] - seen[target], seen[source] & seen[target]
                of_target = seen[target] - seen[source]
                if any(_reads(p, m, alone, both) for m in both) and any(_reads(p, m, alone, of_target) for m in both):
                    yield source, target


def _reads(p, node, ones, others):
    """Whether a node is a product of one of `ones` and one of `others`."""
    if p.op(node) not in PRODUCTS or len(node.args) != 2:
        return False
    return any(a in ones and b in others for a, b in (node.args, node.args[::-1]))


def encoder_of(p, of):
    """The pass as the encoder sees it: its ids, and what of it the decoder uses as its end."""
    return seen_from(p, of.source, of.leaving)


def decoder_of(p, of, memory, n_memory):
    """The pass as the decoder sees it: values of the encoder are constant, and keys may be rows of them."""
    own = copy.copy(seen_from(p, of.target))
    own.memory, own.n_memory = memory, n_memory
    own.of_memory = {memory}
    for node in p.nodes:
        if any(i in own.of_memory for i in node.inputs):
            own.of_memory.add(node)
    return own
