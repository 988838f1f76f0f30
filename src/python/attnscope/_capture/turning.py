"""Rotations of pairs of features that are none: both features of a pair are turned, by two angles."""

from __future__ import annotations

import torch

_HEADS_TO_FIT = 3  # two factors are fitted to each feature; with as many heads any two fit
_REST_OF_PAIRS = 1e-3  # share of a row that two factors may leave
_PAIRS_APART = 1e-2  # by which factors of one pair differ, of at most 1


def has_unlike_pairs(found, right):
    """Whether rows are x·c + y·s, where y is the other feature of a pair, as rotary positions are computed, and the two features of a pair
    have other factors, so that nothing is rotated. False where rows are not made so. // both [head, position, width]"""
    n_heads, n_positions, width = found.shape
    if n_heads < _HEADS_TO_FIT or n_positions < 4 or width < 4 or width % 2:
        return False
    rows = sorted({1, 2, 3, n_positions - 1})
    found, right = found.double(), right.double()
    if not bool(torch.isfinite(found).all()) or not _are_rows_near(found[:, 0], right[:, 0]) or _are_rows_near(found, right):
        return False
    found, right = found[:, rows], right[:, rows]
    features = torch.arange(width)
    for partner in (features ^ 1, (features + width // 2) % width):
        c, s = _factors_of_pairs(found, right, right[..., partner])
        if float(s.abs().max()) <= _PAIRS_APART:
            continue  # each feature has a factor of its own, and nothing is turned
        if not _are_rows_near(c * right + s * right[..., partner], found):
            continue
        # A rotation adds what it takes away: the factors of one pair are c, −s and c, s.
        return max(float((c - c[:, partner]).abs().max()), float((s + s[:, partner]).abs().max())) > _PAIRS_APART
    return False


def _are_rows_near(a, b):
    return bool((a - b).norm() <= _REST_OF_PAIRS * b.norm())


def _factors_of_pairs(y, a, b):
    """c and s of y = c·a + s·b, fitted over heads. // [position, width] from [head, position, width]"""
    aa, ab, bb = (a * a).sum(0), (a * b).sum(0), (b * b).sum(0)
    ay, by = (a * y).sum(0), (b * y).sum(0)
    size = (aa * bb - ab * ab).clamp_min(1e-300)
    return (ay * bb - by * ab) / size, (by * aa - ay * ab) / size
