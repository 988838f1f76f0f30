"""What capture keeps while a model runs: the mode that sees calls, marks on tensors, records, frames."""

from __future__ import annotations

import inspect
import re
import types

import torch
from torch.overrides import TorchFunctionMode

from .axes import MASKED, _dropout, _name, _without_override
from .shared import _blind, _is_dynamo, _own_modes, _tensors
from .words import DRAWS, FUSED, KERNEL, SILENT, SOFTMAX


class _Watch(TorchFunctionMode):
    """Sees every torch function that runs between entering and leaving the block."""

    def __init__(self, owner):
        super().__init__()
        self.owner = owner

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _is_dynamo():  # the compiler traces this very function: nothing of it may end up in its graph
            return func(*args, **kwargs)
        owner = self.owner
        name = _name(func)
        if name == "multi_head_attention_forward" and isinstance(func, types.FunctionType):
            # It hands itself over as a whole, and what it calls would not be seen. A copy that does not is run instead.
            whole = owner.guarded(name, _without_override, func)
            if whole is not None:
                with self:
                    return whole(*args, **kwargs)
        is_wanted = name not in SILENT and owner.watching
        if name in DRAWS and owner.watching and _draws(name, args, kwargs):
            owner.drawn.add(name)
        blind = _blind(args) if is_wanted else None
        if blind is not None:
            if name in SOFTMAX or name in FUSED or name == "flex_attention":
                owner.guarded(name, owner.skip, None, None, None, f"{blind}: nothing is recorded in it", True)
            is_wanted = False
        if not is_wanted:
            return func(*args, **kwargs)
        kept = None
        if name not in SOFTMAX and name not in FUSED:
            kept = owner.guarded(name, self.before, name, args, kwargs)
        out = func(*args, **kwargs)
        owner.guarded(name, self.after, name, func, args, kwargs, out, kept)
        return out

    def before(self, name, args, kwargs):
        with _own_modes():
            return self.owner.before(name, args, kwargs)

    def after(self, name, func, args, kwargs, out, kept):
        owner = self.owner
        with _own_modes():
            if name in SOFTMAX:
                owner.softmax(args, kwargs, out)
            elif name in FUSED:
                owner.fused(func.__name__.split(".")[0], func, args, kwargs, out)
            elif name == "flex_attention":
                owner.flex(args, kwargs, out)
            elif KERNEL.search(name) and type(func).__name__ in ("OpOverload", "OpOverloadPacket") \
                    and next(_tensors(out), None) is not None:
                owner.skip(owner.place(), next(_tensors(out)), None, f"{func} is a kernel called directly", tell=True)
            else:
                owner.follow(name, func, args, kwargs, out, kept)


def _draws(name, args, kwargs):
    """Whether a function that may draw random numbers does."""
    return "dropout" not in name or bool(_dropout(args, kwargs))


class _Drawing(TorchFunctionMode):
    """Notes the functions that draw random numbers while a block runs."""

    def __init__(self):
        super().__init__()
        self.drawn = set()

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = "" if _is_dynamo() else _name(func)
        if name in DRAWS and _draws(name, args, kwargs):
            self.drawn.add(name)
        elif name in FUSED and kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0):
            self.drawn.add("dropout")
        return func(*args, **kwargs)


class _Refused(Exception):
    """What was asked for cannot be done: told as an error when the block ends, not inside the forward call."""


class _NothingSeen(RuntimeError):
    """No attention ran, or none that can be seen."""


class _Mark:
    """What is known of a tensor: where it comes from, and which scores or pattern it is."""

    __slots__ = ("origin", "axes", "steps", "scores", "record", "dtype", "is_reduced", "p", "at", "is_outer", "factors", "pooled",
                 "context")

    def __init__(self, origin=None, axes=(-2, -1), steps=(), scores=None, record=None, dtype=None, reduced=False, p=0.0,
                 at=None, outer=False, factors=None, pooled=None, context=None):
        self.origin = origin  # "product" of two activations, "outer" product, "weights", "parameter"
        self.axes = axes  # of queries and of keys, from the end
        self.steps = steps  # since the product
        self.scores = scores  # [head, query, key], copied before the first step that is not a step of scores
        self.record = record
        self.dtype = dtype  # of the scores
        self.is_reduced = reduced  # a maximum or a sum of scores
        self.p = p  # of dropout
        self.is_outer = outer  # made by a product and a sum, not by a matrix product
        self.factors = factors  # ([.., query, d_head], [.., key, d_head]) that the product was made of, where they are known
        self.pooled = pooled  # what a softmax over one row of keys gave, until it is used
        self.context = context  # the record whose pattern weighed values to give it, where that may be a half of linear attention
        self.at = len(steps) if at is None else at  # how many steps came before the copy of the scores

    @property
    def is_scores(self):
        return self.origin == "product" and not self.is_reduced and self.record is None


NO_MARK = _Mark()


class _Record:
    """One attention: what went into its softmax and what came out."""

    def __init__(self, owner, path, info):
        self.owner, self.path, self.info = owner, path, info
        self.scores = self.pattern = None  # [head, query, key]
        self.sinks = None  # [head, query, sink]: scores of columns that are no keys
        self.values = {}  # rot_q, rot_k, v and z, each [head, position, d_head]
        self.is_root = False  # what ran in no module but the model itself has no number in its path
        self.is_unproven = False  # whether the input of its softmax was seen to be no product of queries and keys
        self.is_cross = False  # whether its keys are of another sequence
        self.frame = self.key_source = None  # the call that it ran in, and (what its queries, what its keys are made of) where they differ
        self.made_of = {}  # {part of values: (what the layer took that gives it, how many parts that layer gives), as far as that is known}
        self.reshapes = {}  # {part of values: whether its heads were moved, rather than mixed with positions}, as far as that is known
        self.last_keys = None  # rot_k of the newest step, where a window left keys behind
        self.turned = {}  # {part of values: whether it is rotated from position to position}, as far as the numbers tell
        self.after = []  # what happened to the pattern before it was used
        self.added = None  # what was added to the pattern: a tensor of its shape, and [head, query, key] once the pattern is used

    def hides(self):
        """Whether some keys were hidden from some queries, as far as scores are kept."""
        return self.scores is not None and bool((self.scores <= MASKED).any())

    def values_are_alike(self):
        """Whether all keys but one at most weigh the same vector, and are of rows that are alike, as frames of a still picture are: then
        it says nothing where a query looks. Vectors that are alike although their rows are not were made so."""
        v = self.values.get("v")
        if v is None or v.shape[1] < 4 or not _rows_are_alike(v):
            return False
        taken = self.made_of.get("v", (None, 0))[0]
        if taken is None or not taken.is_floating_point() or taken.dim() < 2 or taken.numel() < v.shape[1] * taken.shape[-1]:
            # What values were made of is not known. Queries of such rows are as long as each other, however far they were turned.
            q = self.values.get("rot_q")
            return q is None or q.shape[1] != v.shape[1] or _rows_are_alike(q.norm(dim=-1, keepdim=True))
        return _rows_are_alike(taken.reshape(-1, taken.shape[-1])[:v.shape[1]][None])

    def values_are_of_queries(self):
        """Whether its values come from what its queries are made of, however many other sequences the call was given."""
        if "v" not in self.made_of:
            return False
        taken, n_fused = self.made_of["v"]
        of_queries = self.made_of.get("rot_q", (None, 0))[0]
        return n_fused == 3 or taken is of_queries or _is_alike(taken, self.key_source[0]) or (
            of_queries is not None and _is_alike(taken, of_queries) and not _is_alike(taken, self.key_source[1]))


class _Frame:
    """One running module and the shapes that it was given."""

    def __init__(self, module, path, tensors, args=(), kwargs=None):
        self.module, self.path, self.args, self.kwargs = module, path, args, kwargs or {}
        self.shapes = [tuple(t.shape) for t in tensors if 0 < t.dim() <= 4]
        self.lengths = set()
        for tensor in tensors:
            if tensor.dim() == 1 and not tensor.is_floating_point():
                self.lengths.add(tensor.shape[0])
            elif tensor.dim() == 2:
                self.lengths.update(tensor.shape[:1] if tensor.is_floating_point() else tensor.shape)
            elif tensor.dim() == 3:
                self.lengths.update(tensor.shape[:2])
            elif tensor.dim() == 4:
                self.lengths.update(tensor.shape[1:3])  # [batch, head, position, d_head], or position before head

    def name(self, root):
        return self.path or type(root).__name__

    @property
    def has_weights(self):
        return any(p.dim() >= 2 for p in self.module.parameters())

    def key_source(self):
        """The activations that queries and that keys are made of, where these are two; None otherwise.

        By the names of the arguments, or else by their order.
        """
        try:
            named = dict(inspect.signature(self.module.forward).bind(*self.args, **self.kwargs).arguments)
        except (TypeError, ValueError):
            named = {str(i): value for i, value in enumerate(self.args)}
        found = [(name, x) for name, value in named.items() for x in _tensors(value)
                 if x.is_floating_point() and x.dim() == 3 and "mask" not in name and x.shape[-1] != x.shape[-2]]
        found = [(name, x) for name, x in found if x.shape[-1] == found[0][1].shape[-1]]
        if len(found) < 2:
            return None
        query = next((x for name, x in found if re.match(r"q$|query|queries", name)), None)
        key = next((x for name, x in found if re.match(r"k$|kv$|key|mem|context|enc|src|source", name)), None)
        first, second = (found[0][1], found[1][1]) if query is None or key is None or query is key else (query, key)
        return None if _is_part(first, second) else (first, second)


def _rows_are_alike(rows):
    """Whether all rows but one at most are the same, in each of several matrices."""
    if not bool(torch.isfinite(rows).all()):
        return False
    for one in (rows[:, -1:], rows[:, :1]):
        apart = (rows - one).abs().amax(-1) > 1e-5 * rows.abs().amax(-1)
        if bool((apart.sum(-1) <= 1).all()):
            return True
    return False


def _is_alike(a, b):
    return a.shape == b.shape and (a.data_ptr() == b.data_ptr() or torch.equal(a, b))


def _is_part(first, whole):
    """Whether `first` is `whole`, or some of its positions at the beginning or the end: queries of some tokens of one sequence."""
    if first is whole or first.shape == whole.shape and torch.equal(first, whole):
        return True
    differing = [axis for axis in range(first.dim()) if first.shape[axis] != whole.shape[axis]]
    if len(differing) != 1 or first.shape[differing[0]] > whole.shape[differing[0]]:
        return False
    axis, n = differing[0], first.shape[differing[0]]
    return any(torch.equal(first, whole.narrow(axis, start, n)) for start in (0, whole.shape[axis] - n))


def _mark(x):
    return getattr(x, "_attnscope_mark", NO_MARK)
