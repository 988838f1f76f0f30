"""Labels among the inputs of a model: ids that its loss reads and its attention does not."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from .._capture.axes import _name
from .._capture.shared import _plain_pytorch
from .inputs import other_tokens, with_argument

# What a token of a decoder changes: which rows of a table are read, and what attention gives.
READING = ("embedding",)
ATTENDING = ("softmax", "scaled_dot_product_attention", "multi_head_attention_forward")


class _Reads(TorchFunctionMode):
    """The ids that tables are read with in a run, and sums of what attention gives."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        name = _name(func)
        if name in READING:
            given = [*args, *(kwargs or {}).values()]
            self.seen += [x.flatten().tolist() for x in given if isinstance(x, torch.Tensor) and not x.is_floating_point()]
        elif name in ATTENDING:
            first = made[0] if isinstance(made, tuple) else made
            self.seen.append([float(x) for x in (first.double().sum(), first.double().square().sum())])
        return made


def are_labels(model, inputs):
    """Whether the ids of a target beside the source are read by a loss alone: with another token in place of each of them, tables
    and attention are asked for the same. False where that cannot be told."""
    place = inputs.places[-1]
    target = inputs._at(place)
    other = other_tokens(target)
    if other is None:
        return False
    seen = []
    with torch.no_grad(), _plain_pytorch(model):
        for ids in (target, other):
            args, kwargs = with_argument(*inputs.of(None, None), place, inputs._moved(ids))
            with _Reads() as reads:
                model(*args, **kwargs)
            seen.append(reads.seen)
    return bool(seen[0]) and seen[0] == seen[1]
