"""Whether a model takes ids as [position, batch], found by running it on several rows."""

from __future__ import annotations

import contextlib

import torch
from torch.overrides import TorchFunctionMode

from .._capture.axes import _name
from .._capture.order import _Order
from .._capture.shared import _hook, _plain_pytorch, _tensors

N_ROWS, N_POSITIONS = 2, 7  # of drawn ids


class _Seeing(TorchFunctionMode):
    def __init__(self, order):
        super().__init__()
        self.order = order

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        first = next(_tensors(out), None)
        if first is not None:
            with torch._C.DisableTorchFunction():
                self.order.see(_name(func), args, kwargs or {}, first)
        return out


def is_position_first(model, inputs):
    """Whether the code of the model says that the first axis of its ids, those that were given or two drawn rows, holds positions."""
    if inputs.given is None:
        drawn = torch.tensor(inputs.drawn(N_ROWS * N_POSITIONS), device=inputs.device)
        args, kwargs = inputs.of(drawn.view(N_ROWS, N_POSITIONS), None)
        ids = args[0]
    else:
        args, kwargs = inputs.of(None, None)
        ids = inputs.first_ids
    order = _Order(model)
    order.shape = tuple(ids.shape)
    with contextlib.ExitStack() as undo, torch.no_grad(), _plain_pytorch(model):
        for module in model.modules():
            undo.callback(_hook(module, True, lambda module, args, kwargs: order.enter(module, args)))
        with _Seeing(order):
            model(*args, **kwargs)
    return order.is_position_first
