"""How positions enter attention, by numbers: which of queries, keys and values are rotated, and what is added to scores by distance."""

from __future__ import annotations

import torch

from .reshaping import _splits
from .turning import has_unlike_pairs

_EQUAL = 1e-4  # share by which lengths differ that are one length
_STRAIGHT, _TURNED = 1 - 1e-6, 0.99  # cosines of a row that was not turned, and of one that was
_MOST_ROWS = 64
_REST = 1e-3  # share of the scores that a sum of products and a bias may leave: as in the check score-scale


class _Positions:
    """The part of a capture that finds rotations of queries, keys and values."""

    def look_at_turn(self, record, what):
        """Whether a kept [head, position, d_head] is the output of a layer, turned from position to position as rotary positions do."""
        found = record.values[what]
        n_heads, n_positions, _ = found.shape
        for out, _ in reversed(self.projected):
            for n_fused in (1, 2, 3):
                flat = self.flat_row(out, n_positions, n_fused * n_heads * found.shape[-1])
                for right, _ in () if flat is None else _splits(flat, n_fused, n_heads):
                    if _is_turned(found, right):
                        record.turned[what] = True
                        return
                    if has_unlike_pairs(found, right):
                        record.turned[what] = "unlike"
                        return

    def positions_of(self, record):
        """How positions enter one attention, as metadata; None where nothing is known."""
        turned, found = record.turned, {}
        q, k = turned.get("rot_q"), turned.get("rot_k")
        is_self = record.key_source is None and record.pattern.shape[1] == record.pattern.shape[2]
        if is_self and q is not None and k is not None:
            found["rotated"] = "queries" if q and not k else "keys" if k and not q else "both" if q else "none"
        if "unlike" in (q, k):
            found["unlike_pairs"] = True
        if turned.get("v") and record.reshapes.get("z"):
            found["rotated_values"] = True
        taken = [record.made_of.get(what, (None, 0))[0] for what in ("rot_q", "v")]
        if None not in taken and taken[0] is not taken[1] and taken[0].shape == taken[1].shape and taken[0].dim() >= 2:
            rows = [x.detach().to("cpu", torch.float32).reshape(-1, *x.shape[-2:])[:1] for x in taken]
            found.update({"rotated_before": True} if _is_turned(*rows) else {})
        slopes = _slopes(record)
        if slopes is not None:
            found["slopes"] = [min(slopes), max(slopes)]
        return found or None


def _is_turned(found, right):
    """Whether rows kept their lengths, up to one factor, and turned, the first of them by nothing. // both [head, position, width]"""
    found, right = found.double(), right.double()
    ours, theirs = found.norm(dim=-1), right.norm(dim=-1)
    if found.shape[1] < 4 or not bool((theirs > 0).all()) or not bool(torch.isfinite(ours).all()):
        return False
    ratio = ours / theirs
    is_kept = float(ratio.max() - ratio.min()) <= _EQUAL * float(ratio.abs().max())
    if not is_kept or float(theirs.max() - theirs.min()) <= 10 * _EQUAL * float(theirs.max()):
        return False  # normalised vectors are as long as any others
    cosine = (found * right).sum(-1) / (ours * theirs)  # [head, position]
    return bool((cosine[:, 0] >= _STRAIGHT).all()) and bool((cosine.amin(-1) <= _TURNED).all())


def _slopes(record):
    """How much the scores of each head rise from key to key away from the query, where they are products of queries and keys, a factor and
    that; None where they are not."""
    q, k, scores = record.values.get("rot_q"), record.values.get("rot_k"), record.scores
    if q is None or k is None or scores is None or q.shape[1] != k.shape[1] or q.shape[1] < 6 or q.shape[0] % k.shape[0]:
        return None
    n_heads, n, _ = q.shape
    if scores.shape != (n_heads, n, n):
        return None
    rows = torch.arange(n - 1, 1, -max(1, -(-n // _MOST_ROWS)))
    distance = (rows[:, None] - torch.arange(n)).abs().double()
    slopes = []
    for head in range(n_heads):
        of_row = scores[head][rows].double()
        seen = torch.isfinite(of_row)
        product = q[head][rows].double() @ k[head // (n_heads // k.shape[0])].double().T

        def centred(x, seen=seen):
            x = x.masked_fill(~seen, 0)
            return (x - x.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1))[seen]

        y, a, b = centred(of_row), centred(product), centred(distance)
        basis = torch.stack([a, b], -1)
        square = basis.T @ basis
        if len(y) < 8 or not float(torch.linalg.det(square)) > 1e-9 * float(square[0, 0] * square[1, 1]):
            return None
        factors = torch.linalg.solve(square, basis.T @ y)
        alone = y - a * (a @ y / (a @ a))
        size = float(y.norm())
        if not float((y - basis @ factors).norm()) <= _REST * size or not float(alone.norm()) > 10 * _REST * size:
            return None
        slopes.append(float(factors[1]))
    return slopes
