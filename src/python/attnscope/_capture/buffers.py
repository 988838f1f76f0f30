"""Memory that one capture after another writes into: the system takes longer to give new memory than a recording takes to fill it."""

from __future__ import annotations

import math

import torch

MOST_KEPT = 256 << 20  # bytes


class _Buffers:
    """Float tensors of a capture, taken over by the next one. Those of a capture are valid until the next begins."""

    def __init__(self):
        self.kept, self.free, self.n_bytes = {}, {}, 0  # by number of values

    def begin(self):
        self.free = {size: list(kept) for size, kept in self.kept.items()}

    def empty(self, shape):
        """A float tensor of this shape on the CPU, with any values."""
        size = math.prod(shape)
        free = self.free.get(size)
        if free:
            return free.pop().view(shape)
        with torch.inference_mode(False):  # or it could be written in that mode only
            new = torch.empty(size, dtype=torch.float32, device="cpu")
        if self.n_bytes + 4 * size <= MOST_KEPT:
            self.kept.setdefault(size, []).append(new)
            self.n_bytes += 4 * size
        return new.view(shape)

    def end(self):
        """Lets go of what this capture did not use: the next one is likely to be of its lengths."""
        for size, unused in self.free.items():
            used = {id(x) for x in self.kept[size]} - {id(x) for x in unused}
            self.kept[size] = [x for x in self.kept[size] if id(x) in used]
            self.n_bytes -= 4 * size * len(unused)
        self.free = {}
