"""Says which branches form a layer where attention and feed-forward layers do not take turns."""

from __future__ import annotations

import copy
import re


def of_branches(layers):
    """The layers as they are, or one for each branch where the code holds each branch in a place of its own."""
    if all(layer.attention is not None and (layer.mlp is None) == (layers[0].mlp is None) for layer in layers):
        return layers
    both = [layer for layer in layers if layer.attention is not None and layer.mlp is not None]
    if not any(_number(layer.paths["attn"]) != _number(layer.paths["mlp"]) for layer in both):
        return layers
    return [part for layer in layers for part in _parts(layer)]


def _number(path):
    """The first number in the name of a module: that of its layer."""
    found = re.search(r"\d+", path)
    return found and int(found[0])


def _parts(layer):
    if layer.attention is None or layer.mlp is None:
        return [layer]
    attention, mlp = copy.copy(layer), copy.copy(layer)
    attention.mlp, mlp.attention, mlp.cross = None, None, None
    attention.norms = {place: norm for place, norm in layer.norms.items() if not place.startswith("mlp")}
    attention.residuals = {branch: times for branch, times in layer.residuals.items() if branch == "attn"}
    mlp.residuals = {branch: times for branch, times in layer.residuals.items() if branch == "mlp"}
    mlp.norms = {place: norm for place, norm in layer.norms.items() if place.startswith("mlp")}
    return [attention, mlp]
