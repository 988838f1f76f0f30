"""Whether a model is as its initialisation left it, by what training moves first."""

from __future__ import annotations

import math
import re

import torch
from torch import nn

from .shared import _no_autocast

_BEYOND_NOISE = 1.05  # as in the check untrained-layer
_FEWEST_ROWS = 8  # chance moves the singular values of smaller matrices too far
_LARGEST = 4096  # rows and columns that are looked at: a part of noise is noise
_MOST_MATRICES = 48


def _untrained(model):
    """Why the model cannot have been trained; None where nothing says so."""
    def alike(parameters, value=None):
        return bool(parameters) and all(bool((p == (p.flatten()[0] if value is None else value)).all()) for p in parameters if p.numel())

    gains = _gains(model)
    biases = [p for name, p in model.named_parameters() if re.search(r"(^|[._])(bias|b_\w+|b)$", name)]
    if gains:
        return "the gains of all norms are still alike: the model is not trained" if alike(gains) else None
    return "all biases are still 0: the model is not trained" if len(biases) > 2 and alike(biases, 0) else None


def _looks_untrained(model):
    """As `_untrained`; and of a model whose norms tell nothing, whether its matrices are random numbers and nothing else.

    Training gives a matrix a few directions that are longer than any of noise (Marchenko and Pastur 1967). No scale is asked for, so
    that every initialisation is known; matrices that shrank as a whole are told by the others, which grew.
    """
    why = _untrained(model)
    if why is not None or _gains(model):
        return why
    worst, matrices = 0.0, _matrices(model)
    for matrix in matrices:
        rows = min(matrix.shape)
        worst = max(worst, _beyond(matrix) - 0.5 * rows ** (-2 / 3))  # the edge itself moves by chance (Tracy and Widom 1994)
        if not worst <= _BEYOND_NOISE:
            return None
    why = "all matrices are random numbers, as an initialisation leaves them: the model is not trained"
    return why if len(matrices) > 2 else None


def _gains(model):
    in_norms = [(name, p) for m in model.modules() if "norm" in type(m).__name__.lower() for name, p in m.named_parameters(recurse=False)]
    return [p for name, p in in_norms if name not in ("bias", "beta", "b")]


def _matrices(model):
    """[row, column] of weights, tables of tokens and positions left out: these may have come from elsewhere."""
    tables = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters(recurse=False)}
    found = [p.detach().flatten(0, -2) for p in model.parameters()
             if p.dim() >= 2 and p.is_floating_point() and not p.is_meta and id(p) not in tables]
    found = [p for p in found if min(p.shape) >= _FEWEST_ROWS]
    step = max(1, math.ceil(len(found) / _MOST_MATRICES))
    return found[::step]


def _beyond(matrix, n_steps=24):
    """Largest singular value over that of noise of this size: σ(√m + √n), by power iteration. 0 for a matrix of zeros."""
    matrix = matrix[:_LARGEST, :_LARGEST].to("cpu", torch.float32)
    sigma = float(matrix.square().mean().sqrt())
    if sigma == 0:
        return 0.0
    edge = sigma * (matrix.shape[0] ** 0.5 + matrix.shape[1] ** 0.5)
    vector, ratio = torch.rand(matrix.shape[1], generator=torch.Generator().manual_seed(0), device="cpu") - 0.5, 0.0
    with torch.no_grad(), _no_autocast("cpu"):
        for _ in range(n_steps):
            image = matrix @ (vector / vector.norm())
            ratio = max(ratio, float(image.norm()) / edge)
            if ratio > 2 * _BEYOND_NOISE:
                break
            vector = image @ matrix
    return ratio
