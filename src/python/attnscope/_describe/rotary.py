"""Reads a rotary embedding from what it does to unit vectors at every position.

Angles that do not grow with the position, such as those of rows and columns of a picture, are kept as a table.
"""

from __future__ import annotations

import math

import torch


_USUAL = (10_000.0, 500_000.0, 1_000_000.0, 100_000.0, 50_000.0, 200_000.0, 5_000_000.0, 10_000_000.0, 1_000.0)
_KEPT_IN = ((torch.bfloat16, 2.0 ** -8), (torch.float16, 2.0 ** -11))  # and how far rounding moves a cosine


class Rotary:
    """Base, pairing, number of dimensions and sense of a rotary embedding."""

    precision = None  # what its cosines and sines are rounded to, where that is less than float32

    def __init__(self, theta, interleaved, d_rotary, direction, divisors, angles=None):
        self.theta, self.interleaved, self.d_rotary, self.direction = theta, interleaved, d_rotary, direction
        self.divisors = divisors  # of the frequency of each pair, where the base alone does not give it
        self.angles = angles  # [position, pair], where no frequencies give them

    def key(self):
        return (self.theta, self.interleaved, self.d_rotary, self.direction, tuple(self.divisors or ()), self.precision)


def rotary(turns):
    """(Rotary, None) of matrices [position, out, in], the identity at position 0; (None, why) where they are no rotation."""
    found, why = _by_frequency(turns)
    found = found or _rounded(turns) or _by_table(turns)
    return (found, None) if found is not None else (None, why)


def _rounded(turns):
    """The Rotary whose cosines and sines are kept in a table of fewer bits; None where they are not."""
    n, d, _ = turns.shape
    moved = torch.nonzero((turns - torch.eye(d, dtype=torch.float64)).abs().amax((0, 2)) > 0)
    d_rotary = int(moved.max()) + 1 if len(moved) else 0
    d_rotary += d_rotary % 2
    if n < 2 or not 0 < d_rotary <= d:
        return None
    for interleaved in (False, True):
        pairs = _pairs(d_rotary, interleaved)
        sign = -1.0 if float(turns[1, pairs[0][1], pairs[0][0]]) < 0 else 1.0
        for theta in _USUAL:
            # as such code computes it: in float32, before it is rounded
            rates = 1 / theta ** (torch.arange(0, d_rotary, 2).float() / d_rotary)
            angles = torch.outer(torch.arange(n).float(), rates)
            for kept_in, step in _KEPT_IN:
                cos, sin = (of(angles).to(kept_in).double() for of in (torch.cos, torch.sin))
                missed = (_mixed(cos, sign * sin, pairs, d) - turns).abs()
                # an angle at the edge between two numbers may be rounded to either
                if float(missed.max()) <= step and int((missed > 1e-9).sum()) <= 4 + missed[:, 0].numel() // 50:
                    found = Rotary(theta, interleaved, d_rotary, "forward" if sign > 0 else "backward", None)
                    found.precision = str(kept_in).removeprefix("torch.")
                    return found
    return None


def _pairs(d_rotary, interleaved):
    """The dimensions of each pair: neighbours, or one of each half."""
    half = d_rotary // 2
    return [(2 * i, 2 * i + 1) if interleaved else (i, i + half) for i in range(half)]


def _by_table(turns):
    """The Rotary of pairs that each position turns by angles of its own; None where pairs are neither neighbours nor halves."""
    n, d, _ = turns.shape
    moves = (turns - torch.eye(d, dtype=torch.float64)).abs().amax((0, 2)) > 1e-12
    if not bool(moves.any()):
        return None
    last = int(torch.nonzero(moves).max())
    widths = [(True, last + 2 - last % 2), *((False, width) for width in range(2, d + 1, 2) if width > last)]
    for interleaved, d_rotary in widths:
        pairs = _pairs(d_rotary, interleaved)
        angles = torch.stack([torch.atan2(turns[:, b, a], turns[:, a, a]) for a, b in pairs], 1)
        if d_rotary <= d and float((_turned(angles, pairs, d) - turns).abs().max()) <= 2e-5:
            return Rotary(10_000.0, interleaved, d_rotary, "forward", None, angles)
    return None


def _by_frequency(turns):
    """(Rotary, None) of matrices [position, out, in], the identity at position 0; (None, why) where they are no rotation."""
    n, d, _ = turns.shape
    if n < 2:
        return None, "one position shows no rotation"
    first = turns[1]
    off = (first - torch.diag(torch.diagonal(first))).abs()
    partner = off.argmax(1)
    moves = off.max(1).values > 1e-12
    # A pair that turns hardly at all still belongs: dimensions before the last one that moves.
    moved = [j for j in range(d) if moves[j]]
    if not moved:
        return None, "positions change nothing at position 1"
    interleaved = int(partner[0]) == 1 and d > 2 or d == 2
    if moved[0] != 0:
        return None, f"the first dimension that turns is {moved[0]}"
    if interleaved:
        d_rotary = moved[-1] + 1
    else:
        d_rotary = 2 * int(partner[0])
    if d_rotary % 2 or d_rotary > d or d_rotary < 2:
        return None, "dimensions are paired neither with their neighbours nor by halves"
    half, pairs = d_rotary // 2, _pairs(d_rotary, interleaved)
    angles = torch.tensor([math.atan2(float(first[b, a]), float(first[a, a])) for a, b in pairs], dtype=torch.float64)
    direction = "forward" if float(angles[0]) > 0 else "backward"
    sign = 1.0 if direction == "forward" else -1.0
    rates = _rates(turns, pairs, sign * angles)
    theta, divisors = 10_000.0, None
    exponents = torch.arange(half, dtype=torch.float64) * 2 / d_rotary
    if half > 1 and float(rates.min()) > 0:
        fitted = float(torch.exp((-torch.log(rates[1:]) / exponents[1:]).median()))
        near = [round(fitted, digits) for digits in (-3, -2, -1, 0, 1, 2)]
        theta = next((base for base in near if base > 0 and abs(base / fitted - 1) < 2e-6), fitted)
    if _misses(turns, pairs, sign * theta ** -exponents) > 2e-5:
        theta = 10_000.0
        if float(rates.min()) <= 0 or _misses(turns, pairs, sign * rates) > 2e-5:
            return None, "they are turned otherwise than by an angle that grows with the position"
        divisors = [float(f"{d:.9g}") for d in (theta ** -exponents / rates).tolist()]
    return Rotary(theta, interleaved, d_rotary, direction, divisors), None


def _rates(turns, pairs, first):
    """Radians per position of each pair, more exact than the first position tells."""
    rates = first.clone()
    sign = 1.0 if float((turns[1, pairs[0][1], pairs[0][0]])) > 0 else -1.0
    at = 1
    while 2 * at < len(turns):
        at *= 2
        for i, (a, b) in enumerate(pairs):
            found = sign * math.atan2(float(turns[at, b, a]), float(turns[at, a, a]))
            whole = round((float(rates[i]) * at - found) / (2 * math.pi))
            rates[i] = (found + 2 * math.pi * whole) / at
    return rates


def _misses(turns, pairs, rates):
    """How far matrices are from turns of pairs by angles that grow with the position."""
    n, d, _ = turns.shape
    angles = torch.arange(n, dtype=torch.float64)[:, None] * rates
    return float((_turned(angles, pairs, d) - turns).abs().max())


def _turned(angles, pairs, d):
    """The matrices [position, out, in] of turns of pairs by angles [position, pair]."""
    return _mixed(torch.cos(angles), torch.sin(angles), pairs, d)


def _mixed(cos, sin, pairs, d):
    """The matrices [position, out, in] that mix pairs by cosines and sines [position, pair]."""
    turned = torch.eye(d, dtype=torch.float64).repeat(len(cos), 1, 1)
    for (a, b), c, s in zip(pairs, cos.T, sin.T):
        turned[:, a, a] = turned[:, b, b] = c
        turned[:, b, a], turned[:, a, b] = s, -s
    return turned
