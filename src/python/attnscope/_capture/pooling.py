"""Attention of one query: a softmax over one row of keys, as pooling and recurrent decoders have it, and steps put together."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .following import _mark, _Mark, NO_MARK
from .shared import _dtype
from .words import PRODUCT, VIEWS


class _Row:
    """What a softmax over one row of keys gave, until values are weighed with it."""

    def __init__(self, scores, pattern, info, frame):
        self.scores, self.pattern, self.info, self.frame = scores, pattern, info, frame
        self.n_keys = pattern.shape[-1]
        self.whole = None  # the input of the softmax, where it held further rows: those of a batch, or of as many queries


class _Pooling:
    """The part of a capture that sees attention of one query."""

    def begin_pooling(self, x, y, dim):
        """Whether a softmax may be one that weighs values with one row of keys: then it is kept until it does."""
        row = self.pooled_row(x, y, dim)
        if row is not None:
            self.set_mark(y, _Mark("pooled", pooled=row))
        return row is not None

    def pooled_row(self, x, y, dim):
        """What a softmax of [batch, key], with further axes of one entry, gave; None for one that cannot weigh a sequence."""
        if not x.is_floating_point() or not 1 <= x.dim() <= 4 or sum(n > 1 for i, n in enumerate(x.shape) if i != dim) > 1:
            return None
        n_keys = x.shape[dim]
        lengths = {n for frame in self.stack for n in frame.lengths}
        frame = self.place()
        if n_keys < 2 or n_keys not in lengths or not self.wants(frame):
            return None
        info = {"kind": "softmax", "dim": dim, "axis": "keys", "shape": list(x.shape), "dtype": _dtype(y), "scores_dtype": _dtype(x),
                "dropout_p": 0.0, "is_causal": None, "has_mask": None, "scale": None}
        row = _Row(self._one_row(x, dim), self._one_row(y, dim), info, frame)
        row.whole = x.detach().clone() if x.numel() > n_keys and x.dim() > 1 else None
        return row

    def _one_row(self, x, dim):
        """[1, 1, key] of the kept row of the batch."""
        rows = x.movedim(dim, -1).reshape(-1, x.shape[dim])
        return self.copy(rows[min(self.row, rows.shape[0] - 1)][None, None])

    def follow_pooling(self, name, inputs, marks, out):
        """A pattern of one query is a record once values are weighed with it; anything else but a change of form ends it.

        Gives False where it may still be one head without a batch, [query, key].
        """
        x, mark = next((x, mark) for x, mark in zip(inputs, marks) if mark.pooled is not None)
        if mark.origin == "product" and x.dim() == 2 and out.dim() == 2:
            return False
        row = mark.pooled
        others = [other for other in inputs if other is not x and other.is_floating_point()]
        weighs = any(row.n_keys in other.shape and other.dim() >= 2 and other.numel() > row.n_keys and not self.is_weight(other)
                     for other in others)
        if weighs and (name in PRODUCT or name in ("mul", "multiply") and out.numel() > x.numel()):
            self._take_all_rows(row, name, inputs, x, out)
            record = self.add(row.frame, row.info, row.pattern.shape)
            self.reserve(row.frame, row.pattern.shape, "scores and pattern" if self.keep_scores else "pattern", 1 + self.keep_scores)
            self.keep(record, row.scores, row.pattern)
        elif (name in VIEWS or "dropout" in name or name in ("getitem", "masked_fill", "where", "mul", "div", "true_divide")) \
                and out.numel() == x.numel() and out.is_floating_point():
            self.set_mark(out, _Mark("pooled", pooled=row))
        elif hasattr(out, "_attnscope_mark") and _mark(out).pooled is not None and out is not x:
            self.set_mark(out, NO_MARK)
        return True


    def _take_all_rows(self, row, name, inputs, x, out):
        """Where a matrix product makes a row of each of several rows, they are queries of one sequence and no batch of one query each."""
        if row.whole is None or name not in ("matmul", "bmm", "mm") or inputs[0] is not x or x.shape != row.whole.shape \
                or x.shape[-2] < 2 or len(inputs) != 2 or inputs[1].dim() != x.dim() or out.shape[:-1] != x.shape[:-1]:
            return
        dim = row.info["dim"]
        row.info["axis"] = {x.dim() - 1: "keys", x.dim() - 2: "queries"}.get(dim, row.info["axis"])
        row.scores, row.pattern = (self.copy(self.rows(each)[0]) for each in (row.whole, x.detach()))


def _stacked(records):
    """Records in which successive calls of one query of a module, as when a decoder writes, are the rows of one."""
    done = {}
    for record in records:
        earlier = done.setdefault(record.path, [])
        if earlier and _goes_on(earlier[-1], record):
            _append(earlier[-1], record)
        else:
            earlier.append(record)
    kept = {id(record) for group in done.values() for record in group}
    for group in done.values():
        for call, record in enumerate(group):
            record.info["call"] = call
    return [record for record in records if id(record) in kept]


def _goes_on(before, after):
    """Whether one query follows on those before: over the same keys, over one more, or over a window that moved on by one."""
    heads, n_queries, n_keys = after.pattern.shape
    of_before, n_last = before.pattern.shape, _n_last_keys(before)
    if n_queries != 1 or heads != of_before[0] or before.info["axis"] != "keys" or after.info["axis"] != "keys" or n_keys < 2:
        return False
    if before.info["kind"] != after.info["kind"] or (before.scores is None) != (after.scores is None):
        return False
    if before.last_keys is not None and "rot_k" not in after.values:
        return False  # nothing tells where its keys stand
    is_stepwise = of_before[1] == 1 or "steps_of_one" in before.info
    return n_keys == n_last and is_stepwise or n_keys == n_last + 1


def _n_last_keys(record):
    """How many keys the newest query of a record saw."""
    return record.pattern.shape[2] if record.last_keys is None else record.last_keys.shape[1]


def _append(before, after):
    n_keys, n_all = after.pattern.shape[2], before.pattern.shape[2]
    n_new = n_keys - _n_last_keys(before) + _moves_on(before, after)
    n_out_of_sight = n_all + n_new - n_keys  # keys that a window has left behind
    before.pattern = torch.cat([F.pad(before.pattern, (0, n_new)), F.pad(after.pattern, (n_out_of_sight, 0))], 1)
    if before.scores is not None:
        scores = F.pad(after.scores, (n_out_of_sight, 0), value=-torch.inf)
        before.scores = torch.cat([F.pad(before.scores, (0, n_new), value=-torch.inf), scores], 1)
    before.added = None
    if n_out_of_sight:
        before.last_keys = after.values["rot_k"]
    joined = {}
    for what in before.values.keys() & after.values.keys():
        first, second = before.values[what], after.values[what]
        of_keys = torch.cat([first, second[:, n_keys - n_new:]], 1) if n_out_of_sight else second
        joined[what] = torch.cat([first, second], 1) if what in ("rot_q", "z") else of_keys
    before.values = joined
    before.info["steps_of_one"] = before.info.get("steps_of_one", 1) + 1
    # Each over the same keys, which are those of another sequence or of none that is known.
    before.info["steps_over_all"] = before.info.get("steps_over_all", True) and n_new == 0 and not before.values_are_of_queries()


def _moves_on(before, after):
    """Whether as many keys as before are those of a window that moved on by one key."""
    first = before.values.get("rot_k") if before.last_keys is None else before.last_keys
    second = after.values.get("rot_k")
    if first is None or second is None or first.shape != second.shape or first.shape[1] < 2:
        return False
    as_bits = [x.contiguous().view(torch.int32) for x in (first, second)]  # a NaN is itself
    return not torch.equal(*as_bits) and torch.equal(as_bits[0][:, 1:], as_bits[1][:, :-1])
