"""Finds reshapes that mix heads with positions, by the numbers before and after them.

A layer gives [position, head * d_head], and attention takes [head, position, d_head]. Code that reshapes one to the other without moving the
axis of heads gives each head a stretch of the text, and code that forgets to move it back scatters outputs over positions.
"""

from __future__ import annotations

from collections import deque

import torch

N_KEPT = 8  # outputs of layers: of queries, keys and values, and of what a block computes between them and their product


class _Reshapes:
    """The part of a capture that compares queries, keys, values and outputs of heads with the layers before and after."""

    def begin_reshapes(self):
        self.projected = deque(maxlen=N_KEPT)  # (output of a layer with weights, what it took), the newest last

    def note_projection(self, inputs, out):
        """A layer with weights ran: what it took may be outputs of heads, what it gave may become queries, keys or values."""
        activation = next((x for x in inputs if x.is_floating_point() and not self.is_weight(x)), None)
        if activation is not None:
            self.look_at_merge(activation)
            self.projected.append((out.detach(), activation.detach()))

    def look_at_merge(self, x):
        """Whether `x` holds the outputs of the heads of a record, side by side at each position or not."""
        for record in self.records[-2:]:
            z = record.values.get("z")
            if z is None or "z" in record.reshapes or min(z.shape[:2]) < 2:
                continue
            n_heads, n_positions, d_head = z.shape
            flat = self.flat_row(x, n_positions, n_heads * d_head)
            if flat is not None:
                self.decide(record, "z", flat, z.transpose(0, 1).reshape(flat.shape), z.reshape(flat.shape))

    def look_at_split(self, record, what):
        """Whether a kept [head, position, d_head] was made of the output of a layer by moving its heads, or by a reshape alone."""
        heads = record.values[what]
        n_heads, n_positions, d_head = heads.shape
        if min(n_heads, n_positions) < 2:
            return
        for out, activation in reversed(self.projected):
            for n_fused in (1, 2, 3):
                flat = self.flat_row(out, n_positions, n_fused * n_heads * d_head)
                for right, wrong in () if flat is None else _splits(flat, n_fused, n_heads):
                    if self.decide(record, what, heads, right, wrong):
                        record.made_of[what] = activation, n_fused
                        return

    def decide(self, record, what, found, right, wrong):
        """Notes which of two layouts was found, and whether it was one of them. Nothing is known where they are equal."""
        is_right, is_wrong = _is_equal(found, right), _is_equal(found, wrong)
        if is_right != is_wrong:
            record.reshapes[what] = is_right
        return is_right or is_wrong

    def flat_row(self, x, n_positions, width):
        """The kept row of [batch, position, width] or [batch * position, width]; None for other shapes."""
        if x.shape[-1:] != (width,) or not x.is_floating_point():
            return None
        if x.dim() == 2 and x.shape[0] % n_positions == 0:
            x = x.unflatten(0, (-1, n_positions))
        if x.dim() == 3 and x.shape[0] == n_positions != x.shape[1]:
            x = x.transpose(0, 1)  # position before batch
        if x.dim() != 3 or x.shape[1] != n_positions or self.row >= x.shape[0] > 1:
            return None
        return x[min(self.row, x.shape[0] - 1)].detach().to("cpu", torch.float32).contiguous()


def _is_equal(a, b):
    """As torch.equal. Values in another order differ in their last rows already."""
    return torch.equal(a[-1], b[-1]) and torch.equal(a, b)


def _splits(flat, n_fused, n_heads):
    """Each way to take [head, position, d_head] out of [position, n_fused * head * d_head]: (with heads moved, by a reshape alone)."""
    n_positions, size = flat.shape[0], flat.shape[1] // n_fused // n_heads
    parts_first = flat.view(n_positions, n_fused, n_heads, size)
    heads_first = flat.view(n_positions, n_heads, n_fused, size)
    for i in range(n_fused):
        right = parts_first[:, i].transpose(0, 1)
        yield right, parts_first[:, i].reshape(n_heads, n_positions, size)
        if n_fused > 1:
            yield right, flat.reshape(n_fused, n_heads, n_positions, size)[i]
            yield heads_first[:, :, i].transpose(0, 1), flat.reshape(n_heads, n_positions, n_fused, size)[:, :, i]
