"""Finds calls of layers whose results are thrown away: `self.norm(x)` as a statement of its own changes nothing.

The next instruction of the code that called the layer tells: it drops the result that it was given. And a result may go into a
variable that nothing reads, as that of values does where the pattern weighs keys by mistake: there the source tells, where nothing was
computed of the result, in whatever form, and nobody keeps it. So it does of the parts that a result is taken apart into.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import os
import sys
import weakref

import torch

from .shared import _tensors
from .words import VIEWS

MACHINERY = "torch.nn.modules.module"  # what stands between a call of a module and its hooks
PARTING = {"chunk", "split", "split_with_sizes", "tensor_split", "unbind"}
N_RESULTS = 4  # newest results of layers, of which one may be taken apart
FORMS = VIEWS | {"getitem", "split", "chunk", "unbind", "narrow", "select", "tensor_split"}


class _Discards:
    """The part of a capture that notes layers with weights whose results nobody takes."""

    def begin_discards(self):
        self.discarded = {}  # {path: where the call stands}
        self.unread = {}  # {id of what a layer gave, or of another form of it: (a weak reference to it, the path of the layer)}
        self.nowhere = {}  # {path: where the call stands}, of those whose variables nothing reads
        self.results = []  # (a weak reference to what a layer gave, its path, its class), the newest last

    def note_discarded(self, module, path, args, output):
        """A module ran: whether it has weights, makes something new of its input, and the caller drops that."""
        if module is self.model:
            self.end_discards()
        is_layer = next(module.children(), None) is None and next(module.parameters(recurse=False), None) is not None
        if not is_layer or module is self.model or path in self.discarded or not isinstance(output, torch.Tensor):
            return
        # A module that works in place, or that keeps what it gave, is called for that.
        if any(output is x for x in (*_tensors(args), *vars(module).values())):
            return
        self.results = [*self.results[1 - N_RESULTS:], (weakref.ref(output), path, type(module).__name__)]
        frame = _caller()
        if frame is None:
            return
        code = frame.f_code
        where = f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
        note = {"module": path, "class": type(module).__name__, "where": where}
        if frame.f_lasti in _dropping(code):
            self.discarded[path] = note
        elif _goes_nowhere(code, frame.f_lasti):
            self.nowhere[path] = note
            self.unread[id(output)] = weakref.ref(output), path

    def see_unread(self, name, inputs, out):
        """An operation ran: what it computes of a result is read, and another form of it is that result still."""
        for x in inputs:
            kept, path = self.unread.get(id(x), (None, None))
            if kept is None or kept() is not x:
                continue
            if name not in FORMS:
                self.nowhere.pop(path, None)
                continue
            for other in _tensors(out):
                if other is not x:
                    self.unread[id(other)] = weakref.ref(other), path

    def see_parts(self, name, x, out):
        """What a layer gave was taken apart: parts that go into variables which nothing reads are looked after as whole results are."""
        path, kind = next(((path, kind) for kept, path, kind in self.results if kept() is x), (None, None))
        if path is not None and name not in PARTING:  # the same numbers in another shape
            self.results = [*self.results[1 - N_RESULTS:], (weakref.ref(out), path, kind)]
            return
        frame = None if path is None or not isinstance(out, (tuple, list)) else _written_in()
        if frame is None:
            return
        for part in _unread_parts(frame.f_code, frame.f_lasti, len(out)):
            of = f"{path}:{part}"
            self.nowhere[of] = {"module": path, "class": kind, "where": _place_of(frame), "part": f"part {part + 1} of {len(out)}"}
            self.unread[id(out[part])] = weakref.ref(out[part]), of

    def end_discards(self):
        """The model has run: what is left of a result is kept by somebody, or is part of what the model gives."""
        held = {path for kept, path in self.unread.values() if kept() is not None}
        self.discarded.update({path: note for path, note in self.nowhere.items() if path not in held and path not in self.discarded})
        self.unread, self.nowhere, self.results = {}, {}, []


def _caller():
    """The frame that called the module whose hook is running."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != MACHINERY:
        frame = frame.f_back
    while frame is not None and frame.f_globals.get("__name__") == MACHINERY:
        frame = frame.f_back
    return frame


def _written_at():
    """The line of the model's own code that is running."""
    frame = _written_in()
    return None if frame is None else _place_of(frame)


def _place_of(frame):
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _written_in():
    """The frame of the model's own code that is running: what is neither of torch nor of the recorder."""
    own = __name__.rpartition(".")[0] or __name__
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not any(module == of or module.startswith(f"{of}.") for of in (own, "torch", "einops")):
            return frame
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=1024)
def _dropping(code):
    """Offsets of the calls in `code` whose results the next instruction drops."""
    instructions = list(dis.get_instructions(code))
    pairs = zip(instructions, instructions[1:])
    return {call.offset for call, after in pairs if call.opname.startswith("CALL") and after.opname == "POP_TOP"}


@functools.lru_cache(maxsize=4096)
def _goes_nowhere(code, offset):
    """Whether what a call gives is assigned, as it is or by its own methods, to a variable that the function never reads."""
    assigned, read = _assigned(code, offset)
    return assigned is not None and all(_is_never_read(to, read) for to in _targets(assigned))


@functools.lru_cache(maxsize=4096)
def _unread_parts(code, offset, n):
    """The numbers of the parts, of the n that a call gives, that are assigned to variables which the function never reads."""
    assigned, read = _assigned(code, offset)
    to = _targets(assigned) if assigned is not None else []
    if len(to) != 1 or not isinstance(to[0], (ast.Tuple, ast.List)) or len(to[0].elts) != n:
        return ()
    return tuple(i for i, part in enumerate(to[0].elts) if _is_never_read(part, read))


def _is_never_read(to, read):
    return isinstance(to, ast.Name) and to.id not in read and not to.id.startswith("_")


def _assigned(code, offset):
    """The assignment of what a call gives, and the names that the function reads; None where there is none, or nothing tells."""
    positions = getattr(code, "co_positions", None)  # from Python 3.11 on
    function = _function(code.co_filename, code.co_name, code.co_firstlineno)
    if positions is None or function is None:
        return None, set()
    place = list(positions())[offset // 2]
    aside = {node for statement in ast.walk(function) for node in _renewed(statement)}
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in aside}
    read |= {node.target.id for node in ast.walk(function) if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}
    read |= {name for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    if read & {"locals", "vars", "eval", "exec"}:
        return None, set()
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _is_made_of(node.value, place):
            return node, read
    return None, set()


def _targets(node):
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _renewed(statement):
    """The reads of a variable that change its own form, as in `v = v.view(…)`, or only ask about it: no value is taken from it there."""
    if isinstance(statement, ast.Assert):
        return [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return []
    own = {to.id for to in _targets(statement) if isinstance(to, ast.Name)}
    return [node for node in ast.walk(statement.value) if isinstance(node, ast.Name) and node.id in own]


def _is_made_of(value, place):
    """Whether an expression is the call at a place of the source, a method of what it gives, or a function of it."""
    while True:
        if isinstance(value, ast.Call):
            if (value.lineno, value.end_lineno, value.col_offset, value.end_col_offset) == place:
                return True
            if any(_is_made_of(arg, place) for arg in value.args):
                return True
            value = value.func
        elif isinstance(value, (ast.Attribute, ast.Subscript)):
            value = value.value
        else:
            return False


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
