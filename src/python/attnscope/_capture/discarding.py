"""Finds calls of layers whose results are thrown away: `self.norm(x)` as a statement of its own changes nothing.

The next instruction of the code that called the layer tells: it drops the result that it was given. And a result may go into a
variable that nothing reads, as that of values does where the pattern weighs keys by mistake: there the source tells.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import os
import re
import sys

import torch

from .shared import _tensors

MACHINERY = "torch.nn.modules.module"  # what stands between a call of a module and its hooks
FORM = re.compile(r"head|split|shape|transpose|permute|view")


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
        if frame.f_lasti in _dropping(code) or _goes_nowhere(code, frame.f_lasti):
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


@functools.lru_cache(maxsize=4096)
def _goes_nowhere(code, offset):
    """Whether what a call gives is assigned, as it is or by its own methods, to a variable that the function never reads."""
    positions = getattr(code, "co_positions", None)  # from Python 3.11 on
    function = _function(code.co_filename, code.co_name, code.co_firstlineno)
    if positions is None or function is None:
        return False
    place = list(positions())[offset // 2]
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
    read |= {node.target.id for node in ast.walk(function) if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}
    read |= {name for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    if read & {"locals", "vars", "eval", "exec"}:
        return False
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is_made_of(node.value, place):
            return all(isinstance(to, ast.Name) and to.id not in read and not to.id.startswith("_") for to in node.targets)
    return False


def _is_made_of(value, place):
    """Whether an expression is the call at a place of the source, a method of what it gives, or a change of its form by a function."""
    while True:
        if isinstance(value, ast.Call):
            if (value.lineno, value.end_lineno, value.col_offset, value.end_col_offset) == place:
                return True
            if _changes_form(value.func) and any(_is_made_of(arg, place) for arg in value.args):
                return True
            value = value.func
        elif isinstance(value, (ast.Attribute, ast.Subscript)):
            value = value.value
        else:
            return False


def _changes_form(function):
    """Whether a function is called by a plain name, as rearrange is, or by one of self that says so, as self.split_heads."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self":
        return FORM.search(function.attr) is not None
    return isinstance(function, ast.Name)


@functools.lru_cache(maxsize=256)
def _function(file, name, line):
    """The syntax tree of a function, where its source can be read."""
    tree = _tree(file)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name
             and line in (node.lineno, *(each.lineno for each in node.decorator_list))] if tree is not None else []
    return found[0] if len(found) == 1 else None


@functools.lru_cache(maxsize=64)
def _tree(file):
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
