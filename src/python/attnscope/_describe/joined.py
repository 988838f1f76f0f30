"""Joins branches that are added at once: the heads of all of them, or feed-forward layers as wide as all of them.

Norms before them may have gains and biases of their own. These belong to the maps behind them, and a norm without any is left.
"""

from __future__ import annotations

import torch

from .fitting import Norm
from .heads import _joined, _joined_rows
from .tracing import Unnamed


def bare(norms, terms):
    """The norm that several branches have in common, without gain and bias: a list of one, or of none."""
    if any(len(own) != len(norms[0]) or len(own) > 1 for own in norms):
        raise Unnamed("branches that are added at once have different norms before them", terms)
    own = [norm[0] for norm in norms if norm]
    if not own:
        return []
    if any((norm.kind, norm.eps, norm.alpha) != (own[0].kind, own[0].eps, own[0].alpha) for norm in own):
        raise Unnamed("branches that are added at once have different norms before them", terms)
    return [Norm(own[0].kind, None, None, own[0].eps, own[0].note, own[0].alpha)]


def folded(of, norms):
    """A map (weight [..., in], bias [...]) of a norm's output, as one of the bare norm's output."""
    weight, bias = of
    for norm in norms:
        bias = bias if norm.bias is None else bias + weight @ norm.bias
        weight = weight if norm.gain is None else weight * norm.gain
    return weight, bias


def fold(attention, norms):
    """Puts the gain and the bias of the norms before an attention into its maps."""
    for m in (attention.q, attention.k, attention.v):
        if m.own is not None:
            raise Unnamed("attentions that are added at once read latent vectors with norms", [m.node])
        m.weight, m.bias = folded((m.weight, m.bias), norms)


def attentions(parts):
    """One attention of the heads of several."""
    first = parts[0]
    if any(part.norm_out is not None or part.z_norm is not None or part.gate is not None or part.is_mixed for part in parts):
        raise Unnamed("several attentions are added at once, and their outputs are normed or multiplied", [first.node])
    if any(part.share is not None or part.distances is not None or any(one is not None for one in part.places) for part in parts):
        raise Unnamed("several attentions are added at once, and read values of the first layer, or positions in their own way", [first.node])
    first.rows = _joined_rows([part.rows for part in parts], [(part.q,) for part in parts])
    for name in "qkv":
        setattr(first, name, _joined([getattr(part, name) for part in parts], name))
    first.o = torch.cat([part.o for part in parts], 1)
    first.o_bias = sum(part.o_bias for part in parts)
    first.pattern = torch.cat([part.pattern for part in parts])
    first.sides = [side for part in parts for side in part.sides]
    return first


def mlps(parts, terms):
    """(up, gate, down, activation) of one feed-forward layer that gives the sum of several."""
    first = parts[0]
    if any((part.activation, part.gate is None) != (first.activation, first.gate is None) for part in parts):
        raise Unnamed("feed-forward layers that are added at once differ in their activation or gate", terms)

    def wide(name):
        maps = [getattr(part, name) for part in parts]
        return None if maps[0] is None else (torch.cat([weight for weight, _ in maps]), torch.cat([bias for _, bias in maps]))

    down = torch.cat([part.down[0] for part in parts], 1), sum(part.down[1] for part in parts)
    return wide("up"), wide("gate"), down, first.activation
