"""What capture keeps beside scores and patterns: queries, keys, values, outputs of heads, residuals and logits."""

from __future__ import annotations

import re

from .shared import _blind, _tensors
from .words import CROSS


def _version(x):
    """How often a tensor was written to; None where torch does not count that."""
    return None if x.is_inference() else x._version


class _Values:
    """The part of a capture that keeps values."""

    def keep_factors(self, record, factors):
        """The queries and keys that the scores of a record were made of."""
        if self.keep_values and factors is not None:
            self.keep_value(record, "rot_q", factors[0])
            self.keep_value(record, "rot_k", factors[1])

    def keep_value(self, record, what, x):
        """Keeps [.., position, d_head] of a record as [head, position, d_head], where its heads can be told."""
        row = self.rows(x)[0]
        n_positions = record.pattern.shape[1 if what in ("rot_q", "z") else 2]
        n_heads = record.pattern.shape[0]
        if row.dim() != 3 or row.shape[1] != n_positions or n_heads % row.shape[0]:
            return
        self.reserve(self.place(), row.shape, what)
        record.values[what] = self.copy(row)
        if what != "z":
            self.look_at_split(record, what)
            if what in record.made_of:
                record.turned[what] = False
            else:
                self.look_at_turn(record, what)

    def _keep_around(self, module, path, args, output):
        """What goes into a numbered module and comes out of it in one shape, and what the model gives of each position."""
        out = next((x for x in _tensors(output) if x.is_floating_point() and x.dim() == 3), None)
        if out is None or _blind() is not None:
            return
        is_root = module is self.model
        if is_root and self.root_calls <= 1:
            self.logits = self._position_values(out)
        elif re.search(r"(^|\.)\d+$", path) and path not in self.around:
            into = next((x for x in _tensors(args) if x.is_floating_point() and x.shape == out.shape), None)
            if into is not None:
                last, state, values = self.last_out
                # What one block gives, the next one takes.
                before = values if into is last and state == _version(into) is not None else self._position_values(into)
                after = self._position_values(out)
                self.around[path], self.last_out = (before, after), (out, _version(out), after)

    def _position_values(self, x):
        """[position, width] of the kept row of [batch, position, width]; None where that is too much to keep."""
        tokens = self.found.get("tokens")
        n = self.records[-1].pattern.shape[1] if self.records and self.records[-1].pattern is not None else None  # of the newest attention
        if x.shape[0] == n != x.shape[1] or (
                tokens is not None and tokens.dim() == 2 and x.shape[:2] == tokens.shape[::-1] != tokens.shape):
            x = x.transpose(0, 1)
        if self.row >= x.shape[0] > 1:
            return None
        row = x[min(self.row, x.shape[0] - 1)]
        size = 4 * row.numel()
        if self.bytes + size > self.max_bytes:
            return None
        self.bytes += size
        return self.copy(row)

    def _add_around(self, name, records, tensors):
        """The residuals of the numbered module that holds a layer's attention, and of no other layer's."""
        block = re.match(r"((?:encoder\.|decoder\.)?blocks\.\d+)\.attn$", name)
        if block is None:
            return
        path = records[0].path
        held = [outer for outer in self.around if path.startswith(outer + ".") and not any(
            record not in records and record.path.startswith(outer + ".") and not CROSS.search(record.path)
            for record in self.records)]
        if held:
            pre, post = self.around[min(held, key=len)]
            if pre is not None and post is not None:
                tensors[f"{block[1]}.resid_pre"], tensors[f"{block[1]}.resid_post"] = pre, post
