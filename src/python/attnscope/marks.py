"""Follows queries and keys through the functions of torch: which tensors are scores, and what scale brought them there."""

import types

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from . import _capture as seen
from .attention import Softmax

# A scale that queries or keys were multiplied by lives on through these.
LINEAR_STEPS = seen.VIEWS | {"mul", "neg", "cat", "concat", "stack", "getitem", "chunk", "split", "split_with_sizes", "unbind",
                             "narrow", "select", "view_as_complex", "view_as_real", "add", "sub", "repeat",
                             "repeat_interleave", "index_select", "pad", "tensor_split"}
MULTIPLY, DIVIDE = {"mul", "multiply", "rmul", "imul"}, {"div", "divide", "true_divide", "truediv", "itruediv"}


class Scaled:
    """A tensor that was multiplied by a number on its way: queries, perhaps."""

    def __init__(self, factor):
        self.factor = factor


class Pattern:
    """What came out of a softmax that was recorded."""


class Reduced:
    """A maximum or a sum of scores."""


class Scores:
    """A product of queries and keys, and what was done to it since."""

    def __init__(self, q, k, axes, q_scale, k_scale, factor=1.0):
        self.q, self.k = q, k  # [..., query, d] and [..., key, d], broadcast against the product's leading dimensions
        self.axes = axes  # of queries and of keys, from the end
        self.q_scale, self.k_scale = q_scale, k_scale
        self.factor = factor  # what multiplied the product
        self.is_capped = False  # between the tanh of a softcap and the factor that undoes its division
        self.source = None  # the scores before a maximum was subtracted
        self.sinks = (0, True)

    def after(self, **changes):
        new = object.__new__(Scores)
        new.__dict__.update(self.__dict__, **changes)
        return new


class Deferred:
    """A softmax of which only its use tells what it is."""

    def __init__(self, scores, x, axes, finish):
        self.scores, self.x, self.axes, self.finish = scores, x, axes, finish


class Marks:
    """What is known of the tensors of one pass. `found(attention, …)` is called for every attention made by a softmax."""

    def __init__(self, weights, found):
        self.known = WeakIdKeyDictionary()
        self.weights, self.found = weights, found
        self.deferred = []

    def of(self, x):
        return self.known.get(x)

    def scale_of(self, x):
        mark = self.known.get(x)
        return mark.factor if isinstance(mark, Scaled) else 1.0

    def is_weight(self, x):
        return isinstance(x, nn.Parameter) or seen._address(x) in self.weights

    def follow(self, name, args, kwargs, out):
        """One torch function that has run."""
        if name in seen.SILENT or name in seen.COMPARISONS:
            return
        inputs = list(seen._tensors((args, kwargs)))
        first = next(seen._tensors(out), None)
        if not inputs:
            return
        if first is None:
            if name == "setitem":
                first = inputs[0]
            else:
                return
        if name in seen.PRODUCT:
            self.product(name, args, kwargs, first)
            return
        marks = [self.known.get(x) for x in inputs]
        at = next((i for i, m in enumerate(marks) if isinstance(m, Scores)), None)
        if at is not None:
            self.step(name, args, kwargs, inputs, marks, at, first)
        elif any(isinstance(m, (Pattern, Deferred)) for m in marks):
            mark = next(m for m in marks if isinstance(m, (Pattern, Deferred)))
            x = inputs[marks.index(mark)]
            if first is not x and first.is_floating_point() and first.numel() == x.numel():
                if isinstance(mark, Deferred):
                    axes = seen._moved_axes(name, args, kwargs, x, mark.axes, first)
                    mark = Deferred(mark.scores, mark.x, axes, mark.finish) if axes is not None else Pattern()
                self.known[first] = mark
        else:
            self.scaling(name, args, inputs, marks, out)

    # Queries and keys before their product.

    def scaling(self, name, args, inputs, marks, out):
        number = _number(args)
        if name in MULTIPLY | DIVIDE and number is not None and inputs[0].dim() >= 2 and out.is_floating_point() and number:
            before = next((m.factor for m in marks if isinstance(m, Scaled)), 1.0)
            if name in DIVIDE and not isinstance(args[0], torch.Tensor):
                return  # a number divided by a tensor
            self.known[out] = Scaled(before / number if name in DIVIDE else before * number)
        elif name in LINEAR_STEPS:
            factors = {m.factor for m in marks if isinstance(m, Scaled)}
            if len(factors) != 1:
                return
            if name in ("add", "sub", "cat", "concat", "stack") and not all(isinstance(m, Scaled) for m in marks):
                return
            if name == "mul":  # queries by what is broadcast over their heads; a scaled cosine does not scale its queries
                scaled = next(x for x, m in zip(inputs, marks) if isinstance(m, Scaled))
                if any(x.numel() >= scaled.numel() for x in inputs if x is not scaled):
                    return
            for y in seen._tensors(out):
                self.known[y] = Scaled(*factors)

    # The product.

    def product(self, name, args, kwargs, out):
        operands = list(seen._operands(name, args, kwargs))
        for x, _, summed, _ in operands:
            mark = self.known.get(x)
            if isinstance(mark, Deferred):
                mark.finish(summed is None or mark.axes[1] in {a if a < 0 else a - x.dim() for a in summed})
                self.known[x] = Pattern()
                return
            if isinstance(mark, (Pattern, Scores)):
                return  # values are gathered
        if len(operands) != 2 or not out.is_floating_point() or any(self.is_weight(x) for x, *_ in operands):
            return
        pair = self.einsum_pair(args, out) if name == "einsum" else self.matmul_pair(name, operands, out)
        if pair is None or pair[0].shape[-1] < 2:  # a sum over nothing is an outer product: angles of positions by frequencies
            return
        q, k, axes, q_from, k_from = pair
        factor = kwargs.get("alpha", 1.0) if name in ("baddbmm", "addbmm", "addmm") else 1.0
        self.known[out] = Scores(q.detach(), k.detach(), axes, self.scale_of(q_from), self.scale_of(k_from), factor)

    def matmul_pair(self, name, operands, out):
        a, b = operands[0][0], operands[1][0]
        if a.dim() < 2 or b.dim() < 2:
            return None
        return a, b.transpose(-1, -2), (-2, -1), a, b

    def einsum_pair(self, args, out):
        """Operands of an einsum as [..., query, d] and [..., key, d], in the order of the output's other axes."""
        parsed, axes = seen._einsum(args), seen._einsum_axes(args)
        if parsed is None or axes is None:
            return None
        (first, second), right, (a, b) = parsed
        shared = [c for c in first if c in second and c not in right]
        lead = [c for i, c in enumerate(right) if i - len(right) not in axes]
        if not shared:
            return None

        def arranged(x, letters, own):
            order = [c for c in lead if c in letters] + [own] + shared
            if set(order) != set(letters):
                return None
            x = x.permute([letters.index(c) for c in order])
            for i, c in enumerate(lead):
                if c not in letters:
                    x = x.unsqueeze(i)
            return x.flatten(-len(shared))

        q, k = arranged(a, first, right[axes[0]]), arranged(b, second, right[axes[1]])
        return None if q is None or k is None else (q, k, axes, a, b)

    # From the product to the softmax.

    def step(self, name, args, kwargs, inputs, marks, at, out):
        x, mark = inputs[at], marks[at]
        if name in seen.REDUCTIONS and out.shape != x.shape:
            self.known[out] = Reduced()
            return
        if not out.is_floating_point():
            return
        axes = seen._moved_axes(name, args, kwargs, x, mark.axes, out)
        if axes is None:
            return
        before, after = _sides(x, mark.axes), _sides(out, axes)
        changes = {"axes": axes}
        if name in ("cat", "concat") and after[0] == before[0] and after[1] > before[1]:
            changes["sinks"] = (after[1] - before[1], at == 0)
        elif after != before:
            return  # some of the scores only
        if name in MULTIPLY | DIVIDE:
            number = _factor(args, x, axes)
            if number is not None:
                if name in DIVIDE:
                    number = 1 / number
                changes["factor"] = mark.factor * number
        elif name in ("neg", "negative"):
            changes["factor"] = -1 * mark.factor
        elif name in seen.SHIFTS and any(isinstance(m, Reduced) for m in marks):
            changes["source"] = x if mark.source is None else mark.source
        elif name in seen.WEIGHTED:
            return
        self.known[out] = mark.after(**changes)

    def softmax(self, args, kwargs, y, n_sequences, is_length, path):
        """A softmax that has run; n_sequences(n_queries) gives the batch where the surroundings tell."""
        x = args[0] if args else kwargs.get("input", kwargs.get("self"))
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor) or not 2 <= x.dim() <= 5:
            return
        mark = self.known.get(x)
        if not isinstance(mark, Scores) or y.shape != x.shape:
            return
        dim = kwargs["dim"] if "dim" in kwargs else args[1] if len(args) > 1 else None
        if dim is None:
            dim = 0 if x.dim() in (0, 1, 3) else 1
        dim = dim if dim < 0 else dim - x.dim()
        n_queries = _sides(x, mark.axes)[0]
        if not is_length(n_queries) and not is_length(_sides(x, mark.axes)[1]):
            return
        scores = x.detach() if mark.source is None else mark.source.detach()

        def found(swapped=False):
            axes, q, k = mark.axes, mark.q, mark.k
            q_scale, k_scale = mark.q_scale, mark.k_scale
            if swapped:
                axes, q, k, q_scale, k_scale = axes[::-1], k, q, k_scale, q_scale
            over_keys = dim == axes[1]
            arranged = _arranged(scores, q, k, axes, n_sequences)
            if arranged is None:
                return
            x4, q4, k4, shape = arranged
            pattern = None
            if not over_keys:
                pattern = seen._ordered(y.detach(), axes).reshape(shape) if shape else None
                if pattern is None:
                    return
                pattern = pattern.movedim(1, 0) if x4.shape[:2] != pattern.shape[:2] else pattern
            total = _scale_of(mark.factor, x4) * q_scale * k_scale
            attention = Softmax(path, q4, k4, total, x4, pattern, mark.sinks, q_scale, k_scale)
            attention.over = "keys" if over_keys else "queries" if dim == axes[0] else "heads or sequences"
            self.found(attention)

        if dim == mark.axes[1] and x.dim() > 2:
            found()
            self.known[y] = Pattern()
            return
        # Of a softmax over the first axis, or of two axes alone, its use tells which one is summed over: the keys.
        done = []

        def finish(is_key):
            if not done:
                done.append(True)
                found(swapped=not is_key)

        self.known[y] = Deferred(mark, x, mark.axes, finish)
        if x.dim() > 2:
            self.deferred.append(finish)

    def settle(self):
        """The end of the pass: what was never used is taken as it was written."""
        for finish in self.deferred:
            finish(True)
        self.known.clear()


def whole_mha(name, func):
    """A copy of multi_head_attention_forward that does not hand itself over as a whole; None for other functions."""
    if name == "multi_head_attention_forward" and isinstance(func, types.FunctionType):
        return seen._without_override(func)
    return None


def _sides(x, axes):
    return x.shape[axes[0]], x.shape[axes[1]]


def _number(args):
    """The number among the two operands of a function; None where both are tensors of more than one value."""
    for x in args[:2]:
        if isinstance(x, (int, float)) and not isinstance(x, bool):
            return float(x)
        if isinstance(x, torch.Tensor) and x.dim() == 0 and x.is_floating_point() and not x.requires_grad:
            return float(x)
    return None


def _factor(args, x, axes):
    """What scores are multiplied by: a number, or a tensor with one value for each head; None for anything else."""
    number = _number(args)
    if number is not None:
        return number or None
    other = next((a for a in args[:2] if isinstance(a, torch.Tensor) and a is not x), None)
    if other is None or not other.is_floating_point():
        return None
    if other.numel() == 1:
        return float(other)
    is_per_head = axes == (-2, -1) and 3 <= other.dim() <= 4 and other.shape[-2:] == (1, 1)
    return other.detach().float() if is_per_head and (other.dim() == 3 or other.shape[0] == 1) else None


def _scale_of(factor, x4):
    if isinstance(factor, torch.Tensor):
        return factor.reshape(1, -1, 1, 1)
    return factor


def _arranged(scores, q, k, axes, n_sequences):
    """Scores [sequence, head, query, key], queries and keys of them, and the shape before sequences came first."""
    x = seen._ordered(scores, axes)
    lead, n_queries, n_keys = x.shape[:-2], x.shape[-2], x.shape[-1]
    n = n_sequences(n_queries, lead)
    if len(lead) == 0:
        shape = (1, 1)
    elif len(lead) == 1:
        shape = (n, lead[0] // n) if n else (1, lead[0])
    else:
        shape = (lead[0], lead[1:].numel())
    full = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])

    def by_head(t):
        """[sequence, head, position, d]: heads that share keys stay one where they can."""
        if len(full) >= 2 and full[0] == lead[0] if lead else False:
            t = t.reshape((1,) * (len(full) + 2 - t.dim()) + t.shape)
            if all(size == 1 for size in t.shape[2:-2]):
                return t.expand(full[0], *t.shape[1:]).reshape(full[0], t.shape[1], *t.shape[-2:])
        t = t.expand(*full, *t.shape[-2:])
        return t.reshape(*shape, *t.shape[-2:]) if full.numel() == shape[0] * shape[1] else None

    q4, k4 = by_head(q), by_head(k)
    if q4 is None or k4 is None or q4.shape[2] != n_queries or q4.shape[1] != shape[1] or shape[1] % k4.shape[1]:
        return None
    x4 = x.reshape(*shape, n_queries, n_keys)
    if len(lead) >= 2 and n and lead[0] != n and lead[1:].numel() == n:  # [head, sequence, …]
        q4 = q4 if q4.shape[1] == n else q4.expand(-1, n, -1, -1)
        k4 = k4.expand(-1, n, -1, -1)
        x4, q4, k4 = x4.movedim(1, 0), q4.movedim(1, 0), k4.movedim(1, 0)
    return x4, q4, k4, (*shape, n_queries, n_keys)
