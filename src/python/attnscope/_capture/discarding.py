"""Finds calls of layers whose results are thrown away: `self.norm(x)` as a statement of its own changes nothing.

The next instruction of the code that called the layer tells: it drops the result that it was given.
"""

from __future__ import annotations

import dis
import functools
import os
import sys

import torch

from .shared import _tensors

MACHINERY = "torch.nn.modules.module"  # what stands between a call of a module and its hooks


class _Discards:
    """The part of a capture that notes layers with weights whose results nobody takes."""

    def begin_discards(self):
        self.discarded = {}  # {path: where the call stands}

    def note_discarded(self, module, path, args, output):
        """A module ran: whether it has weights, makes something new of its input, and the caller drops that."""
        is_layer = next(module.children(), None) is None and next(module.parameters(recurse=False), None) is not None
        if not is_layer or module is self.model or path in self.discarded or not isinstance(output, torch.Tensor):
            return
        # A module that works in place, or that keeps what it gave, is called for that.
        if any(output is x for x in (*_tensors(args), *vars(module).values())):
            return
        frame = _caller()
        if frame is None:
            return
        code = frame.f_code
        if frame.f_lasti in _dropping(code):
            where = f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
            self.discarded[path] = {"module": path, "class": type(module).__name__, "where": where}


def _caller():
    """The frame that called the module whose hook is running."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != MACHINERY:
        frame = frame.f_back
    while frame is not None and frame.f_globals.get("__name__") == MACHINERY:
        frame = frame.f_back
    return frame


@functools.lru_cache(maxsize=1024)
def _dropping(code):
    """Offsets of the calls in `code` whose results the next instruction drops."""
    instructions = list(dis.get_instructions(code))
    pairs = zip(instructions, instructions[1:])
    return {call.offset for call, after in pairs if call.opname.startswith("CALL") and after.opname == "POP_TOP"}
