"""Reads heads that read each other: a matrix over heads between scores and softmax, or between the softmax and the values.

Both are said by wider heads. A score that is a sum of the scores of other heads is the product of a query of all heads' queries, each
times its weight, and a key of all heads' keys, side by side. What is mixed after the softmax is a part of each head's output map.
"""

from __future__ import annotations

import torch

from . import fitting
from .replay import like
from .tracing import Map, Unnamed


class Mix:
    """Weights over heads before the softmax [head, of] and after it [head, of], and the softmax between them."""

    def __init__(self, before, after, rows, pattern):
        self.before, self.after, self.rows, self.pattern = before, after, rows, pattern


def read_mix(p, ends, places, shape):
    """The Mix between scores and pattern; None where there is none. `ends` are the nodes of scores and pattern, `places` those of
    [head, query, key] in the flattened values of each."""
    (scores, pattern), (score_at, pattern_at) = ends, places
    for node in reversed(p.bottlenecks([scores], pattern)):
        value = node.value
        if node is scores or not isinstance(value, torch.Tensor) or value.numel() != pattern.value.numel():
            continue

        def f(of_cells, node=node):
            return _run(p, scores, score_at, of_cells, node, pattern_at)

        rows, before = _before(f, shape)
        if rows is None:
            continue
        after = torch.eye(shape[0], dtype=torch.float64) if node is pattern else _after(p, (node, pattern), pattern_at, shape)
        if after is None:
            continue
        return Mix(before, after, rows, value.reshape(-1)[pattern_at])
    return None


def _run(p, source, source_at, cells, target, target_at):
    flat = source.value.reshape(-1).clone()
    flat[source_at.reshape(-1)] = cells.reshape(-1)
    return p.run({source: like(source, flat)}, [target])[0].reshape(-1)[target_at]


def _before(f, shape):
    """(Rows of a softmax, weights [head, of]) of a function from scores that heads may share; (None, None) where it is none."""
    n_heads = shape[0]
    zero = f(torch.zeros(shape, dtype=torch.float64))
    if not bool(torch.isfinite(zero).all()) or float((zero.sum(2) - 1).abs().max()) > 1e-6:
        return None, None
    visible = zero > 1e-25
    log = torch.where(visible, zero.clamp_min(1e-300).log(), torch.zeros_like(zero))

    def centred(x):
        x = torch.where(visible, x, torch.zeros_like(x))
        return torch.where(visible, x - x.sum(2, keepdim=True) / visible.sum(2, keepdim=True), x)

    probe, weights = 1e-3 * fitting.random(*shape, seed=25), torch.zeros(n_heads, n_heads, dtype=torch.float64)
    for of in range(n_heads):
        one = torch.zeros(shape, dtype=torch.float64)
        one[of] = probe[of]
        got = centred(f(one).clamp_min(1e-300).log() - log)
        given = centred(probe[of].expand(shape))
        size = (given * given).sum((1, 2))
        if not bool((size > 0).all()):
            return None, None
        weights[:, of] = (got * given).sum((1, 2)) / size
    other = fitting.random(*shape, seed=26)
    expected = torch.softmax(torch.where(visible, log + torch.einsum("hg,gqk->hqk", weights, other), -torch.inf), 2)
    if not fitting.close(expected, f(other), 1e-6):
        return None, None
    return fitting.Rows("keys", 1.0, centred(log), visible, None), weights


def _after(p, ends, at, shape):
    """Weights [head, of] of a sum over heads between two nodes; None where what stands between them is none."""
    source, target = ends

    def f(cells):
        return _run(p, source, at, cells, target, at)

    if float(f(torch.zeros(shape, dtype=torch.float64)).abs().max()) > 1e-12:
        return None
    weights = torch.zeros(shape[0], shape[0], dtype=torch.float64)
    for of in range(shape[0]):
        one = torch.zeros(shape, dtype=torch.float64)
        one[of] = 1
        weights[:, of] = f(one)[:, 0, 0]
    probe = fitting.random(*shape, seed=27)
    return weights if fitting.close(torch.einsum("hg,gqk->hqk", weights, probe), f(probe), 1e-7) else None


def widened(mix, maps, out):
    """(maps, output map) of heads as wide as all of them that give what mixed heads give."""
    for m, name in zip(maps, ("queries", "keys", "values")):
        if m.norm is not None or m.turns is not None:
            raise Unnamed(f"heads are mixed, and their {name} are normed or turned", [m.node])
    q, k, v = maps
    (weight, bias), n_heads = out, len(q.weight)
    wide_q = mix.before[:, :, None, None] * q.weight[None] * q.factor * k.factor  # [head, of, d, in]
    wide_bias = mix.before[:, :, None] * q.bias[None] * q.factor * k.factor

    def shared(m, factor):
        return Map((m.weight * factor).flatten(0, 1).expand(n_heads, -1, -1), (m.bias * factor).flatten().expand(n_heads, -1), node=m.node)

    # Head g's pattern reaches the output through every head h that reads it: after[h, g] times the map of h.
    wide_out = mix.after.T[None, :, :, None] * weight[:, None]  # [d_model, head, of, d]
    return (Map(wide_q.flatten(1, 2), wide_bias.flatten(1, 2), node=q.node), shared(k, 1.0), shared(v, v.factor)), \
        (wide_out.flatten(2, 3), bias)
