"""Whether a model takes ids as [position, batch], found by running it on several rows."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings

import torch

from .._capture import capture

N_ROWS, N_POSITIONS = 5, 7  # of drawn ids: few, and two numbers that heads and their widths rarely have


class _Unwritten(capture):
    """Sees what a capture sees, and writes no file."""

    def __init__(self, model):
        super().__init__(model, os.path.join(tempfile.gettempdir(), "unwritten.safetensors"), scores=False)

    def _write(self):
        self.turn_ids()


def seen(model, args, kwargs):
    """The capture of one run that nobody asked for. What it cannot record is told by the run that was asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.no_grad(), _Unwritten(model) as watched:
            model(*args, **kwargs)
    return watched


def is_position_first(model, inputs):
    """Whether the first axis of the ids of a model, those that were given or drawn rows, holds positions."""
    if inputs.given is None:
        drawn = torch.tensor(inputs.drawn(N_ROWS * N_POSITIONS), device=inputs.device)
        return seen(model, *inputs.of(drawn.view(N_ROWS, N_POSITIONS), None)).is_position_first
    ids = inputs.first_ids
    if len(inputs.places) == 1 and ids.shape[0] == ids.shape[1]:  # sizes do not say along which axis attention runs
        with contextlib.suppress(Exception):  # what stands beside them may not be cut
            return seen(model, *inputs.of(ids[:, :-1], None, cuts=True)).is_position_first
    return seen(model, *inputs.of(None, None)).is_position_first
