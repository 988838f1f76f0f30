"""Finds the values of the first attention where later ones add them to their own (value residuals), and reads how much of them each adds.

For the time of reading, what later layers read of these values is a constant: so every layer depends on the residual alone.
"""

from __future__ import annotations

import contextlib

import torch

from .fitting import close, random
from .naming import single
from .replay import PRODUCTS
from .slabs import held, with_values
from .tracing import Unnamed
from .watching import Node


class Kept:
    """Values of the first attention: the node that later layers read, its twin that stands for it there, and the values that the
    first pattern multiplies."""

    def __init__(self, node, twin, values):
        self.node, self.twin, self.values = node, twin, values
        self.at = None  # [head, key, d] places in the flattened `values`

    def share(self, p, source, values, at):
        """How much of the first values is added to those at `at` [head, key, d] of a node, beside what is made of `source`; None where
        nothing is."""
        if self.at is None:
            self.at = at
            return None
        e, zero = random(*self.node.value.shape, seed=90), torch.zeros_like(self.node.value)

        def moved(node, target, places):
            with_e, without = (p.run({source: source.value, node: x}, [target])[0].reshape(-1)[places] for x in (e, zero))
            return with_e - without

        added = moved(self.twin, values, at)
        if not bool(added.any()):
            return None
        first = moved(self.node, self.values, self.at)
        if first.shape != added.shape:
            raise Unnamed("values of the first layer are added to values of other heads", [values])
        share = float((first * added).sum() / (first * first).sum())
        if not close(first * share, added, 1e-9):
            raise Unnamed("values of the first layer are added to later ones in shares that differ by token, head or dimension", [values])
        return share

    @contextlib.contextmanager
    def left_out(self, p, source, target):
        """The pass without these values in a later layer that reads `source`, for the length of the block."""
        without = {source: source.value, self.twin: torch.zeros_like(self.node.value)}
        with with_values(p, without, [target]):
            yield held(p, without)


@contextlib.contextmanager
def first_values(p, attentions):
    """The Kept values of a pass for the length of the block; None where later layers read none. `attentions` gives its products."""
    kept, moved = _find(p, attentions), []
    if kept is None:
        yield None
        return
    node, twin = kept.node, kept.twin
    active, gathered = p.active, p.gathered
    for user in list(twin.users):
        moved.append((user, user.args, user.kwargs))
        user.reads(node, twin)
        node.users.remove(user)
    try:
        p.forget()
        yield kept
    finally:
        for user, args, kwargs in moved:
            user.args, user.kwargs, user._inputs = args, kwargs, None
            node.users.append(user)
        p.active, p.gathered, p._orders = active, gathered, {}


def _find(p, attentions):
    found = attentions(p, sorted(p.active, key=lambda x: x.idx))
    for at, out in enumerate(found):
        scores = [m for m in found[:at] if m in set(p.between([m], out))]
        if not scores:
            continue
        of_scores = set(p.between(scores, out))
        values = next((i for i in out.args if i not in of_scores), None)
        if values not in p.active:
            return None
        chain = p.bottlenecks(p.roots, values)
        maps = [i for i, node in enumerate(chain) if p.op(node) in PRODUCTS]
        for node in chain[maps[-1]:] if maps else ():
            inside = set(p.between([node], out))
            users = [user for user in node.users if user not in inside and user in p.active]
            if users and isinstance(node.value, torch.Tensor) and min(user.idx for user in users) > out.idx:
                twin = Node(node.idx + 0.5, "held", node.op, path=node.path, line=node.line)
                twin.value, twin.users = node.value, users
                return Kept(node, twin, values)
        return None
    return None


def first_values_part(written, own, crosses):
    """Writes how much of the first attention's values each later one adds to its own."""
    shares = [a.share for a in own]
    if all(share is None for share in shares):
        return
    if crosses or written.within or any(share is None for share in shares[1:]) or any(a.is_mixed for a in own):
        raise Unnamed("values of the first layer are added to those of some layers, or in a model of two texts or of mixed heads",
                      [own[0].node])
    written.at = written.attending[1:]
    name = written.vector("blocks.{layer}.first_values", [single(torch.tensor([share], dtype=torch.float64)) for share in shares[1:]])
    written.at = written.attending
    written.parts.update({"first_values": name} if name else {})
