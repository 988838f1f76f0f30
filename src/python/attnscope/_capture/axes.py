"""Which axes of a product are queries and keys, and what else is read from the arguments of torch functions."""

from __future__ import annotations

import inspect
import math
import re
import types

import torch

from .shared import _tensors
from .words import MASK, OTHER_MASK, VIEWS


def _name(func):
    """A torch function's name without the underscores around it and without its overload; an attribute's own name."""
    name = getattr(func, "__name__", None) or ""
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", "")
        return name if name in ("T", "mT", "H", "mH", "data") else "get"
    return name.split(".")[0].strip("_")


def _ordered(x, axes):
    """[..., query, key], wherever the two axes stand."""
    return x if axes == (-2, -1) else x.movedim(axes, (-2, -1))


def _axis(n_dims, dim, n_rows, axes):
    if dim == n_dims + axes[1]:
        return "keys"
    if dim == n_dims + axes[0]:
        return "queries"
    if n_dims == 3:
        return "batch" if n_rows > 1 else "heads"  # batch*head in one dimension mixes both
    return "batch" if dim == min(set(range(n_dims)) - {n_dims + axis for axis in axes}) else "heads"


def _moved_axes(name, args, kwargs, x, axes, y):
    """Where the axes of queries and keys of `x` stand in `y`; None when they are lost."""
    n = x.dim()
    if name in ("T", "mT", "H", "mH", "t"):
        dims = (-1, -2)
    elif name in ("transpose", "swapaxes", "swapdims"):
        named = [kwargs[key] for key in ("dim0", "dim1", "axis0", "axis1") if key in kwargs]
        dims = tuple(d - n if d >= 0 else d for d in list(args[1:3]) + named)
    elif name == "permute":
        order = kwargs.get("dims", args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:])
        order = [d - n if d >= 0 else d for d in order]
        return tuple(order.index(axis) - n for axis in axes)
    elif name in ("movedim", "moveaxis"):
        numbered = torch.empty(tuple(range(2, n + 2)), device="meta")  # each axis has a size of its own
        moved = list(numbered.movedim(*args[1:], **kwargs).shape)
        return tuple(moved.index(n + axis + 2) - n for axis in axes)
    else:
        if y.dim() == n and (y.shape == x.shape or name not in VIEWS):
            return axes
        if set(axes) == {-1, -2} and y.dim() >= 2 and y.shape[-2:] == x.shape[-2:]:
            return axes
        return None
    swap = {dims[0]: dims[1], dims[1]: dims[0]}
    return tuple(swap.get(axis, axis) for axis in axes)


def _einsum(args):
    """(letters of each operand, letters of the output, operands) of an einsum, with dots replaced by letters; or None."""
    if not args or not isinstance(args[0], str):
        return None
    operands = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
    left, arrow, right = args[0].replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        return None
    n_dots = max([t.dim() - len(term.replace("...", "")) for term, t in zip(terms, operands) if "..." in term], default=0)
    dots = "".join(chr(0x400 + i) for i in range(n_dots))

    def spelt(term, n):
        return term.replace("...", dots[len(dots) - n:] if n else "")

    letters = [spelt(term, t.dim() - len(term.replace("...", "")) if "..." in term else 0)
               for term, t in zip(terms, operands)]
    if not arrow:
        every = "".join(letters)
        right = dots + "".join(sorted(c for c in set(every) - set(dots) if every.count(c) == 1))
    return letters, spelt(right, n_dots), list(operands)


def _einsum_axes(args):
    """Where queries and keys stand in what an einsum of two operands gives."""
    parsed = _einsum(args)
    if parsed is None or len(parsed[0]) != 2:
        return None
    (first, second), out, _ = parsed
    own = [c for c in out if c in first and c not in second], [c for c in out if c in second and c not in first]
    if len(own[0]) != 1 or len(own[1]) != 1:
        return None
    return out.index(own[0][0]) - len(out), out.index(own[1][0]) - len(out)


def _operands(name, args, kwargs):
    """Each operand of a product, the other one, its axes that are summed over, and where its other axes go."""
    if name == "einsum":
        parsed = _einsum(args)
        if parsed is None:
            for x in _tensors(args):
                yield x, None, None, None
            return
        letters, out, operands = parsed
        for i, (own, x) in enumerate(zip(letters, operands)):
            summed = {at - len(own) for at, letter in enumerate(own) if letter not in out}

            def after(query, key, own=own):
                return tuple(out.index(own[axis]) - len(out) for axis in (query, key))

            yield x, next((o for j, o in enumerate(operands) if j != i), None), summed, after
        return
    both = list(_tensors((args, kwargs)))
    both = both[1:] if name in ("baddbmm", "addbmm", "addmm") else both
    if name == "rmatmul":
        both = both[::-1]
    if len(both) < 2:
        return
    a, b = both[:2]
    yield a, b, {-1}, lambda query, key: (query, key)
    yield b, a, {-2} if b.dim() > 1 else {-1}, lambda query, key: (query, key)


def _factors(name, args, kwargs):
    """([.., query, d], [.., key, d]): the two operands of a product of queries and keys; None where their axes are not told."""
    if name == "einsum":
        parsed = _einsum(args)
        if parsed is None or len(parsed[0]) != 2:
            return None
        (first, second), out, (a, b) = parsed
        return _paired(first, second, out, a, b)
    both = list(_tensors((args, kwargs)))
    if name not in ("matmul", "bmm", "rmatmul", "mm") or len(both) != 2:
        return None
    a, b = both[::-1] if name == "rmatmul" else both
    return (a, b.transpose(-1, -2)) if a.dim() > 1 and b.dim() > 1 else None


def _paired(first, second, out, a, b):
    """The operands of an einsum with their own axis and the summed one last, and the others as in its output."""
    summed = [c for c in first if c in second and c not in out]
    if len(summed) != 1:
        return None
    ordered = []
    for letters, other, x in ((first, second, a), (second, first, b)):
        own = [c for c in letters if c in out and c not in other]
        shared = [c for c in out if c in letters and c in other]
        if len(own) != 1 or len(shared) + 2 != len(letters):
            return None
        ordered.append(x.permute([letters.index(c) for c in (*shared, own[0], summed[0])]))
    return tuple(ordered)


def _weighed(name, args, kwargs, pattern, other, key, out):
    """([.., key, d], [.., query, d]): the values that a pattern weighs, and what comes out; None where the axes are not told."""
    if name == "einsum":
        parsed = _einsum(args)
        if parsed is None or len(parsed[0]) != 2:
            return None
        letters, to, operands = parsed
        at = next(i for i, x in enumerate(operands) if x is pattern)
        own, theirs, summed = letters[at], letters[1 - at], letters[at][key]
        width = [c for c in theirs if c in to and c not in own]
        query = [c for c in own if c in to and c not in theirs]
        shared = [c for c in to if c in own and c in theirs]
        if len(width) != 1 or len(query) != 1 or set(theirs) != {*shared, summed, *width} or len(to) != len(shared) + 2:
            return None
        return (other.permute([theirs.index(c) for c in (*shared, summed, *width)]),
                out.permute([to.index(c) for c in (*shared, *query, *width)]))
    if name not in ("matmul", "bmm", "rmatmul", "mm") or key != -1 or other is None or other.dim() < 2:
        return None
    return other, out


def _sums_over_something(name, args, kwargs):
    x, _, summed, _ = next(_operands(name, args, kwargs), (None, None, None, None))
    return x is None or summed is None or any(x.shape[axis] > 1 for axis in summed if -axis <= x.dim())


def _dropout(args, kwargs):
    """The share that a dropout drops; 0 for one that does nothing."""
    p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return float(p) if training and p else 0.0


def _is_relu(args, kwargs):
    return kwargs.get("min", args[1] if len(args) > 1 else None) == 0


def _summed_axis(pattern):
    """The axis of [head, query, key] whose sums are 1, where there is one."""
    if not bool(torch.isfinite(pattern).all()):
        return None
    for axis, name in ((2, "keys"), (1, "queries"), (0, "heads")):
        sums = pattern.sum(axis)
        empty = (pattern == 0).all(axis)  # a query that sees no key
        if pattern.shape[axis] > 1 and bool((((sums - 1).abs() < 2e-2) | empty).all()) and not bool(empty.all()):
            return name
    return None


MASKED = -5000  # scores down to here are no mask


def _hide_masked(scores, pattern, over_keys):
    """Writes -inf where a finite value was added or put as a mask; gives that value, or None. // [head, query, key]

    Masked cells lie far below all others, close to one value or twice that, and their probability is exactly 0; in a row
    of which nothing else is left, it is whatever the row gave.
    """
    low = (scores <= MASKED) & (scores > -math.inf)
    if not bool(low.any()) or scores.shape != pattern.shape:
        return None
    others = torch.isfinite(scores) & ~low
    top = float(scores[low].max())
    floor = float(scores[others].abs().max()) if bool(others.any()) else 0.0
    if floor > 0.2 * abs(top):
        return None  # one wide spread, and no mask
    if top > -1e8:
        spread = 2 * floor + 0.02 * abs(top)
        near = [(scores[low] - times * top).abs() <= times * spread for times in (1, 2, 3)]
        if not bool((near[0] | near[1] | near[2]).all()):
            return None
    dead = ~others.any(-1, keepdim=True) & over_keys
    hidden = low & ((pattern == 0) | dead)
    if not bool(hidden.any()):
        return None
    value = float(scores[hidden].min())
    scores.masked_fill_(hidden, -math.inf)
    return value


def absent_masks(module, args, kwargs):
    """The arguments of a call that are None and may be, by their names, a mask of later positions."""
    try:
        call = inspect.signature(module.forward).bind_partial(*args, **kwargs)
    except (TypeError, ValueError):
        return []
    call.apply_defaults()
    return [name for name, value in call.arguments.items()
            if value is None and MASK.search(name) and not OTHER_MASK.search(name)]


def _padding_mask(name, mask, tokens, shape):
    """A mask of [batch, position] as true for real tokens, whatever its name and sense; None when it is no such mask."""
    by_name = name in ("attention_mask", "src_key_padding_mask", "key_padding_mask")
    if not by_name and (shape is None or tuple(mask.shape) != tuple(shape)):
        return None
    zero = mask == 0 if mask.dtype != torch.bool else ~mask
    if mask.is_floating_point() and bool((mask < -1).any()):
        return zero  # added to scores: 0 for what is seen
    if not bool((zero | (mask == 1)).all()):
        return None
    if name == "attention_mask":
        return ~zero
    if by_name and mask.dtype == torch.bool:
        return zero  # in PyTorch's own layers a key padding mask is true, or -inf, for what is *not* attended to
    if mask.shape[0] == mask.shape[1] and bool((mask.to(torch.float32).triu(1) == 0).all()):
        return None  # a causal mask of as many rows as positions
    # Padding is one kind of token at one end of a row.
    senses = []
    for real in (~zero, zero):
        pads = ~real
        fits = bool(real.any(-1).all()) and bool(((pads[:, 1:] != pads[:, :-1]).sum(-1) <= 1).all())
        if fits and tokens is not None and tokens.shape == mask.shape and bool(pads.any()):
            fits = len(torch.unique(tokens[pads])) == 1
        senses.append(fits)
    if senses[0] != senses[1]:
        return ~zero if senses[0] else zero
    if not senses[0]:
        return None
    return zero if re.search(r"pad", name) and not re.search(r"no_?n?_?pad|not_pad", name) else ~zero


def _labels(tokenizer, ids):
    """The text of each token."""
    def text(token):
        if isinstance(tokenizer, dict):
            return tokenizer.get(token, f"<{token}>")
        if isinstance(tokenizer, (list, tuple)):
            return tokenizer[token] if 0 <= token < len(tokenizer) else f"<{token}>"
        stored = next((getattr(tokenizer, method)(token) for method in ("convert_ids_to_tokens", "id_to_token", "IdToPiece")
                       if hasattr(tokenizer, method)), None)
        if stored is not None and "▁" in stored:
            return stored.replace("▁", " ")  # SentencePiece writes a leading space so, which decode would drop
        if hasattr(tokenizer, "decode"):
            return tokenizer.decode([token]) or stored
        return tokenizer(token) if stored is None else stored

    texts = {token: text(token) for token in dict.fromkeys(ids)}
    return [f"<{token}>" if texts[token] is None else str(texts[token]) for token in ids]


def _argument_names(name):
    """Of one of the kernels behind scaled_dot_product_attention."""
    schema = getattr(torch.ops.aten, name).default._schema
    return [argument.name for argument in schema.arguments]


def _without_override(func):
    scope = dict(func.__globals__, has_torch_function=lambda _: False)
    whole = types.FunctionType(func.__code__, scope, func.__name__, func.__defaults__, func.__closure__)
    whole.__kwdefaults__ = func.__kwdefaults__
    return whole
