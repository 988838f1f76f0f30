"""Which axis of [a, b] ids holds positions, as far as the code of a model says: where it adds rows that are one for each position."""

from __future__ import annotations

import torch
from torch import nn

from .shared import _address, _is_ids, _tensors
from .words import ADDITIONS, VIEWS


class _Order:
    """Sees the calls of one forward pass. Rows of a table, or of a buffer, that differ along one axis of the activations and are
    repeated along the other are those of positions; recurrent layers say the axis themselves."""

    def __init__(self, model):
        self.shape = None  # of the ids
        self.axes = set()  # that were seen to hold positions
        self.of_positions = {}  # {id: a tensor of rows of positions}, which keeps them, and so the ids
        self.tables = {_address(x) for x in (*model.parameters(), *model.buffers()) if x.dim() >= 2} - {0}

    @property
    def is_position_first(self):
        return self.axes == {0}

    def enter(self, module, args):
        """A module begins to run."""
        x = next((x for x in args if isinstance(x, torch.Tensor)), None)
        if isinstance(module, nn.RNNBase) and x is not None and self.fits(x):
            self.axes.add(1 if module.batch_first else 0)

    def fits(self, x):
        return self.shape is not None and x.dim() == 3 and tuple(x.shape[:2]) == self.shape

    def see(self, name, args, kwargs, out):
        """A function ran."""
        inputs = list(_tensors((args, kwargs)))
        if name == "embedding":
            asked = next((x for x in inputs if _is_ids(x)), None)
            if asked is not None:
                self.look_up(asked, out)
        elif name in VIEWS or name == "getitem":
            if inputs and id(inputs[0]) in self.of_positions and isinstance(out, torch.Tensor):
                self.of_positions[id(out)] = out
        elif name in ADDITIONS and len(inputs) == 2 and isinstance(out, torch.Tensor) and self.fits(out):
            for rows in inputs:
                if id(rows) in self.of_positions or _address(rows) in self.tables:
                    self.add(rows.shape[:-1] if rows.dim() > 1 else ())

    def look_up(self, asked, out):
        """Rows of a table: those of positions where each index is one more than the last."""
        steps = [asked.diff(dim=axis) for axis in range(asked.dim())]
        rising = [axis for axis, step in enumerate(steps) if step.numel() and bool((step == 1).all())]
        still = all(bool((step == 0).all()) for axis, step in enumerate(steps) if axis not in rising)
        if len(rising) != 1 or not still:
            return
        self.of_positions[id(out)] = out
        if self.shape is not None and tuple(asked.shape) == self.shape and min(self.shape) > 1:
            self.axes.add(rising[0])

    def add(self, sizes):
        """Rows were added that differ along axes of these sizes."""
        sizes = (1,) * (2 - len(sizes)) + tuple(sizes)
        for axis in (0, 1):
            if len(sizes) == 2 and sizes[axis] == self.shape[axis] > 1 == sizes[1 - axis] < self.shape[1 - axis]:
                self.axes.add(axis)
