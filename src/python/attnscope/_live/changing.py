"""What-ifs on the person's own code: the attention of a forward call, changed where capture sees it."""

from __future__ import annotations

import math
import types

import torch
from torch.overrides import TorchFunctionMode

from .._capture.axes import _name, _ordered, _without_override
from .._capture.following import _Mark, _mark
from .._capture.shared import _is_dynamo, _tensors
from .._capture.words import FUSED, PRODUCT, SOFTMAX
from .faults import Unusable


class Changes(TorchFunctionMode):
    """Changes attention inside a block in which `watched`, a capture, is on; the capture then records what became of it.

    changes    [{"key", "value", "places": [{"layer": name, "head"}, …] or null}], as `run` has them
    places     {(module, call): (name of the layer, head of a module of one head)}, of a run without changes
    """

    def __init__(self, watched, changes, places):
        super().__init__()
        self.watched, self.changes, self.places = watched, changes, places
        self.made, self.n_seen = set(), 0

    def check(self):
        """Refuses a change that changed nothing."""
        missed = [change for idx, change in enumerate(self.changes) if idx not in self.made]
        if missed:
            words = ", ".join(f"{change['key']}={change['value']}" for change in missed)
            raise Unusable(f"{words}: no attention was changed by it; what is written without a softmax cannot be changed")

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = _name(func)
        if _is_dynamo() or not self.watched.watching:
            return func(*args, **kwargs)
        if name == "multi_head_attention_forward" and isinstance(func, types.FunctionType):
            with self.watched.mode, self:
                return _without_override(func)(*args, **kwargs)
        if name in SOFTMAX:
            return self._softmax(func, args, kwargs)
        if name in FUSED:
            return self._fused(func, args, kwargs)
        if name in PRODUCT:
            return self._product(func, args, kwargs)
        return func(*args, **kwargs)

    def _here(self):
        """The changes of the attention that comes next, each with the heads it is for; None stands for all of them."""
        frame = self.watched.place()
        module = frame.name(self.watched.model)
        layer, head = self.places.get((module, self.watched.n_calls.get(module, 0)), (None, None))
        found = []
        for idx, change in enumerate(self.changes):
            places = change.get("places")
            if places is None:
                found.append((idx, change, None))
                continue
            heads = [place.get("head") for place in places if place["layer"] == layer]
            if head is not None:  # a module of one head
                heads = [None if own is None else 0 for own in heads if own in (None, head)]
            if heads:
                found.append((idx, change, None if None in heads else heads))
        return found

    def _softmax(self, func, args, kwargs):
        x = args[0] if args else kwargs.get("input", kwargs.get("self"))
        mark = _mark(x)
        if mark.record is not None or self.watched.rejects(_ordered(x, mark.axes), mark) is not None:
            return func(*args, **kwargs)
        dim = kwargs["dim"] if "dim" in kwargs else args[1] if len(args) > 1 else None
        here = self._here()
        if not here or dim is None:
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            scores = _ordered(x, mark.axes)
            own = mark.factors and _own_scale(scores, *mark.factors)
            scores, axis = self._changed(scores, own, here, -2 if dim % x.dim() == x.dim() + mark.axes[0] else -1)
        return _back(self._patterns(scores, axis, mark.factors), mark.axes)

    def _patterns(self, scores, axis, factors):
        """The softmax of changed scores, seen by the capture."""
        self.watched.set_mark(scores, _Mark("product", factors=factors))
        return torch.softmax(scores, axis)

    def _changed(self, x, own, here, axis):
        """Ordered scores [..., query, key] after the changes, and the axis of their softmax. `own` is what `_own_scale` gives."""
        before = x
        for idx, change, heads in here:
            key, value = change["key"], change["value"]
            changed = x
            if key == "softmax_axis":
                if heads is not None:
                    raise Unusable(f"softmax_axis={value}: a live model's softmax runs over one axis for all heads of a layer")
                axis = self._axis_named(x, value)
            elif key == "temperature":
                changed = x / float(value)
            elif key == "scale" and str(value).startswith("x"):
                changed = x * float(value[1:])
            elif key == "scale":
                changed = x * (_factor(value, self._known(own, change)[2]) / own[1])
            elif key == "softcap":
                changed = torch.where(torch.isfinite(x), float(value) * torch.tanh(x / float(value)), x)
            elif key == "mask":
                changed = self._masked(x, own, change)
            elif key == "drop":
                continue  # done where the pattern is used
            else:
                raise Unusable(f"{key}={value}: a live model cannot be run so; what it can be asked for: scale=inv_sqrt_d|inv_d|none|xF, "
                               "temperature=T, softmax_axis=keys|queries|heads, mask=none|causal|window:W, softcap=C, drop=zero|mean")
            x = changed if heads is None else _with_heads(x, changed, self._axis_of_heads(x), heads)
            self.made.add(idx)
        if axis not in (-1, -2) and bool(torch.isneginf(x).all(axis).any()):
            raise Unusable("softmax_axis=heads: its mask is -inf in every head, and a softmax of nothing else is not a number")
        # a row of which nothing is left is what it was
        if x is not before:
            x = torch.where(torch.isneginf(x).all(axis, keepdim=True), before, x)
        return (x.clone() if x is before else x), axis

    def _known(self, own, change):
        if own is None:
            raise Unusable(f"{change['key']}={change['value']}: these scores are not a multiple of q·k that is seen here; scale=xF multiplies "
                           "them by a factor")
        return own

    def _masked(self, x, own, change):
        n_queries, n_keys = x.shape[-2:]
        value = str(change["value"])
        if value in ("none", "declared"):
            if value == "declared":
                return x
            raw, factor, _ = self._known(own, change)
            return raw * factor
        query = torch.arange(n_keys - n_queries, n_keys, device=x.device)[:, None]
        key = torch.arange(n_keys, device=x.device)[None]
        hidden = key > query
        if value.startswith("window:"):
            hidden = hidden | (key <= query - int(value.partition(":")[2]))
        elif value != "causal":
            raise Unusable(f"mask={value}: expected none, causal or window:W")
        return x.masked_fill(hidden, -math.inf)

    def _axis_named(self, x, value):
        if value != "heads":
            return -2 if value == "queries" else -1
        axis, n_heads = self._axis_of_heads(x)
        if n_heads < 2 or x.shape[axis] != n_heads:
            raise Unusable("softmax_axis=heads: the heads of this attention are not one axis of its scores")
        return axis

    def _axis_of_heads(self, x):
        """The axis of ordered scores that counts heads, and how many of its entries belong to one row of the batch."""
        if x.dim() == 3:
            return 0, x.shape[0] // self.watched.batch_size(x.shape[0], x.shape[1])
        return 1, x.shape[1]

    def _fused(self, func, args, kwargs):
        here = self._here()
        if not here:
            return func(*args, **kwargs)
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = dict(zip(names, args), **kwargs)
        query, key, value = given["query"], given["key"], given["value"]
        scale = given.get("scale")
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        if key.dim() > 3 and key.shape[-3] != query.shape[-3]:
            times = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
        with torch._C.DisableTorchFunction():
            raw = torch.matmul(query, key.transpose(-2, -1))
            x = raw * scale
            mask = given.get("attn_mask")
            if mask is not None:
                x = x.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else x + mask
            if given.get("is_causal"):
                x = x.masked_fill(~torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril(), -math.inf)
            x, axis = self._changed(x, (raw, scale, query.shape[-1]), here, -1)
        pattern = self._patterns(x, axis, (query, key))
        dropped = self._dropped(pattern, here)
        if dropped is not pattern:
            with torch._C.DisableTorchFunction():
                return torch.matmul(dropped, value)
        return torch.matmul(pattern, value)

    def _product(self, func, args, kwargs):
        """A product of a pattern and values, with the heads that a change drops left out of it."""
        x = next((x for x in _tensors((args, kwargs)) if _mark(x).record is not None), None)
        if x is None:
            return func(*args, **kwargs)
        record = _mark(x).record
        layer, head = self.places.get((record.info["module"], record.info["call"]), (None, None))
        here = []
        for idx, change in enumerate(self.changes):
            if change["key"] != "drop":
                continue
            places = change.get("places")
            heads = [None] if places is None else [p.get("head") for p in places if p["layer"] == layer]
            if head is not None:
                heads = [None if own is None else 0 for own in heads if own in (None, head)]
            if heads:
                here.append((idx, change, None if None in heads else heads))
        if not here:
            return func(*args, **kwargs)
        axes = _mark(x).axes
        dropped = _back(self._dropped(_ordered(x, axes), here), axes)
        swapped = [dropped if arg is x else arg for arg in args]
        return func(*swapped, **{name: dropped if arg is x else arg for name, arg in kwargs.items()})

    def _dropped(self, pattern, here):
        for idx, change, heads in here:
            if change["key"] != "drop":
                continue
            with torch._C.DisableTorchFunction():  # what is recorded is the pattern before
                gone = torch.zeros_like(pattern) if change["value"] == "zero" else pattern.mean(-2, keepdim=True).expand_as(pattern)
                pattern = gone if heads is None else _with_heads(pattern, gone, self._axis_of_heads(pattern), heads)
            self.made.add(idx)
        return pattern


def _own_scale(x, query, key):
    """(q·k, the factor between it and the scores, d_head), where the visible scores are one multiple of it; None otherwise."""
    with torch._C.DisableTorchFunction():
        raw = query @ key.transpose(-1, -2)
        if raw.shape != x.shape:
            raw = raw.reshape(x.shape) if raw.numel() == x.numel() else raw
        if raw.shape != x.shape:
            return None
        seen = torch.isfinite(x) & (x > -5000) & (raw.abs() > 1e-6)
        if not bool(seen.any()):
            return None
        ratios = (x[seen].double() / raw[seen].double())
        weights = raw[seen].double().abs()
        factor = float((ratios * weights).sum() / weights.sum())
        error = (x[seen].double() - factor * raw[seen].double()).abs().max()
        if float(error) > 1e-3 * float(x[seen].double().abs().max()) + 1e-6:
            return None
        return raw, factor, query.shape[-1]


def _factor(value, d_head):
    factors = {"inv_sqrt_d": d_head ** -0.5, "inv_d": 1 / d_head, "none": 1.0}
    if value not in factors:
        raise Unusable(f"scale={value}: a live model's scores can be scaled by inv_sqrt_d, inv_d, none or xF")
    return factors[value]


def _back(y, axes):
    return y if axes == (-2, -1) else y.movedim((-2, -1), axes)


def _with_heads(x, changed, where, heads):
    """`x`, with some of its heads as they are in `changed`."""
    axis, n_heads = where
    chosen = torch.zeros(x.shape[axis], dtype=torch.bool, device=x.device)
    for head in heads:
        if head >= n_heads:
            raise Unusable(f"there is no head {head}: this layer has {n_heads}")
        chosen[head::n_heads] = True
    return torch.where(chosen.reshape([-1 if i == axis else 1 for i in range(x.dim())]), changed, x)
