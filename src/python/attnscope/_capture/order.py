"""Which axis of [a, b] ids, or of the vectors [a, b, feature] of a sequence, holds positions: what came with them says it, or the code of a
model, where it adds rows of positions, attends, and takes the last or the mean."""

from __future__ import annotations

import torch
from torch import nn

from .shared import _address, _is_ids, _tensors
from .words import ADDITIONS, VIEWS

FEWEST = 3  # positions that a row has: numbers of two rows rise as those of positions do


class _Order:
    """Sees the calls of one forward pass. Rows of a table, or of a buffer, that differ along one axis of the activations and are
    repeated along the other are those of positions; recurrent layers say the axis themselves. Where attention runs along the other
    axis, one of both is a mistake of the model, and ids are [batch, position]."""

    def __init__(self, model):
        self.ids = None  # [a, b]
        self.of_vectors = None  # (a, b), where there are no ids
        self.joined = set()  # axes of vectors of which the last is taken, or the mean, as one does of positions
        self.long_tables = set()  # axes along which the first rows of a longer table are added, as one does of positions
        self.is_told = False  # whether their shape, or what came with them, says [position, batch]
        self.axes = set()  # that were seen to hold positions
        self.of_positions = {}  # {id: a tensor of rows of positions}, which keeps them, and so the ids
        self.long_rows = {}  # those of `of_positions` that are the first rows of a longer table
        self.tables = {_address(x) for x in (*model.parameters(), *model.buffers()) if x.dim() >= 2} - {0}

    def begin(self, ids, named):
        """The model is called with these ids, among the arguments `named`."""
        if self.ids is None and ids.dim() == 2:
            self.ids, self.is_told = ids.detach().cpu(), _is_position_first(ids, named)

    def begin_with(self, vectors):
        """The model is called with a sequence of vectors [a, b, feature] in the place of ids."""
        if self.of_vectors is None and vectors.dim() == 3 and vectors.is_floating_point():
            self.of_vectors = tuple(vectors.shape[:2])

    @property
    def shape(self):
        return self.of_vectors if self.ids is None else tuple(self.ids.shape)

    def attends_along_batch(self, sizes):
        """Whether the code says twice that the second axis of vectors holds positions, and attention runs along the first. Once would be
        too little: agents may have a table and a mean as well. `sizes` are those of `attends_along_first`."""
        return self.axes | self.joined == {1} == self.long_tables & self.joined and self.attends_along_first(sizes)

    def is_told_by_attention(self, sizes):
        """Whether hardly more than attention says that the first axis of vectors holds positions: it may be a batch that was meant to come
        first."""
        return 0 not in self.axes | self.joined and not self.attends_along_batch(sizes) and self.attends_along_first(sizes)

    def attends_along_first(self, sizes):
        """Whether attention runs along the first axis of vectors, and nowhere else; `sizes` are how many queries and keys each attention
        had, and the shape of all its scores."""
        if self.ids is not None or self.of_vectors is None:
            return False
        n, n_others = self.of_vectors
        return n != n_others and n > 1 < n_others and bool(sizes) and all(
            (n_queries, n_keys) == (n, n) and _has_rows(shape, n_others) for n_queries, n_keys, shape in sizes)

    def is_position_first(self, sizes):
        """Whether the ids are [position, batch]; `sizes` are how many queries and keys each attention had, and the shape of all its scores."""
        if self.is_told:  # rows of one id each are rows of one token where no query saw a second key
            return self.shape[1] > 1 or any(max(each[:2]) > 1 for each in sizes)
        if self.ids is None or self.axes != {0} or self.shape[0] < FEWEST:
            return False
        n, n_others = self.shape
        lengths = [n_keys if n_keys in self.shape else n_queries for n_queries, n_keys, _ in sizes]
        return n in lengths and (n == n_others or lengths.count(n) > lengths.count(n_others))

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
                table = next((x for x in inputs if x.is_floating_point() and x.dim() == 2), None)
                self.look_up(asked, out, table)
        elif name in VIEWS or name == "getitem":
            if inputs and id(inputs[0]) in self.of_positions and isinstance(out, torch.Tensor):
                self.of_positions[id(out)] = out
                if id(inputs[0]) in self.long_rows:
                    self.long_rows[id(out)] = out
        elif name in ADDITIONS and len(inputs) == 2 and isinstance(out, torch.Tensor) and self.fits(out):
            for rows in inputs:
                if id(rows) in self.of_positions or _address(rows) in self.tables:
                    is_first_part = id(rows) not in self.of_positions and rows.numel() * rows.element_size() < rows.untyped_storage().nbytes()
                    self.add(rows.shape[:-1] if rows.dim() > 1 else (), id(rows) in self.long_rows or is_first_part)
        if name in ("getitem", "select", "mean") and self.ids is None and inputs and self.fits(inputs[0]):
            self.joined |= _joined(name, args, kwargs, inputs[0])

    def look_up(self, asked, out, table=None):
        """Rows of a table: those of positions where each index is one more than the last, and they are not the ids themselves."""
        steps = [asked.diff(dim=axis) for axis in range(asked.dim())]
        rising = [axis for axis, step in enumerate(steps) if asked.shape[axis] >= FEWEST and step.numel() and bool((step == 1).all())]
        still = all(bool((step == 0).all()) for axis, step in enumerate(steps) if axis not in rising)
        if len(rising) != 1 or not still:
            return
        is_of_ids = tuple(asked.shape) == self.shape
        if is_of_ids and self.ids is not None and bool((asked.cpu() == self.ids).all()):
            return
        self.of_positions[id(out)] = out
        if table is not None and table.shape[0] > asked.shape[rising[0]]:
            self.long_rows[id(out)] = out
        # numbers of the rows rise along the batch: where attention may run along either axis, they say nothing
        if is_of_ids and min(self.shape) > 1 and (rising[0] == 1 or self.shape[0] != self.shape[1]):
            self.axes.add(rising[0])
            self.long_tables |= {rising[0]} if id(out) in self.long_rows else set()

    def add(self, sizes, are_of_longer=False):
        """Rows were added that differ along axes of these sizes."""
        sizes = (1,) * (2 - len(sizes)) + tuple(sizes)
        for axis in (0, 1):
            if len(sizes) == 2 and sizes[axis] == self.shape[axis] > 1 == sizes[1 - axis] < self.shape[1 - axis]:
                self.axes.add(axis)
                self.long_tables |= {axis} if are_of_longer else set()


def _joined(name, args, kwargs, x):
    """The axis of [a, b, feature] of which a call takes the last or the mean, in a set; nothing where it takes something else."""
    def given(at, *names):
        return next((kwargs[one] for one in names if one in kwargs), args[at] if len(args) > at else None)

    axis = None
    if name == "mean":
        axis = given(1, "dim", "axis")
        axis = axis[0] if isinstance(axis, (tuple, list)) and len(axis) == 1 else axis
    elif name == "select" and type(given(2, "index")) is int and given(2, "index") == -1:
        axis = given(1, "dim")
    elif name == "getitem":
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        rest = [one for one in index if not (type(one) is int and one == -1)]
        if len(rest) == len(index) - 1 and all(isinstance(one, slice) and one == slice(None) for one in rest):
            axis = next(at for at, one in enumerate(index) if type(one) is int)
    if type(axis) is not int:
        return set()
    axis += 3 * (axis < 0)
    return {axis} if axis in (0, 1) and x.shape[axis] > 1 else set()


def _has_rows(shape, n_rows):
    """Whether scores of this shape are of so many rows: [row, head, query, key], or [row * head, query, key]."""
    return len(shape) == 4 and shape[0] == n_rows or len(shape) == 3 and shape[0] % n_rows == 0


def _is_position_first(ids, named):
    """Whether ids are [position, batch]: several rows of one id each, or a square mask of their first size, or a mask of their shape
    turned, came with them."""
    if ids.dim() != 2 or ids.shape[0] == ids.shape[1]:
        return False
    n, n_rows = ids.shape
    if n_rows == 1:
        return True
    others = [value for value in named.values() if isinstance(value, torch.Tensor) and value.dim() == 2 and value is not ids]
    squares = [value for value in others if value.shape == (n, n) and n != n_rows]
    turned = [value for value in others if value.shape == (n_rows, n) and bool(((value == 0) | (value == 1)).all())]
    same = [value for value in others if value.shape == (n_rows, n_rows)]
    return bool(squares or turned) and not same
