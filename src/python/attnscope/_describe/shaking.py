"""Parameters that still hold their first values: a gain of ones says nothing of what it is for until it is another."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import torch

SIZE = 0.1


class Kept(NamedTuple):
    """What a description keeps of its model: names of tensors as the model has them, and what was read."""

    names: list
    reading: object


@contextlib.contextmanager
def shaken(model):
    """For the length of the block, parameters whose values are all alike hold others; gives the names of those.

    Afterwards all of them are as before, to the bit.
    """
    alike = {}
    draw = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if parameter.numel() > 1 and parameter.is_floating_point() and not parameter.is_meta \
                and bool((parameter == parameter.flatten()[0]).all()):
            alike[name] = (parameter, parameter.detach().clone())
    try:
        with torch.no_grad():
            for parameter, _ in alike.values():
                noise = torch.randn(parameter.shape, generator=draw).to(parameter.device, parameter.dtype)
                parameter.add_(SIZE * noise)
        yield list(alike)
    finally:
        with torch.no_grad():
            for parameter, before in alike.values():
                parameter.copy_(before)
