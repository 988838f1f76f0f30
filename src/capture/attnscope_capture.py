"""Captures the attention of a PyTorch model for attnscope. Needs only torch.

Two things are offered. `capture` writes what every attention of one forward call did:

    from attnscope_capture import capture
    with capture(model, "trace.safetensors", mask="causal"):
        model(ids)

    $ attnscope trace.safetensors            # look at it
    $ attnscope check trace.safetensors      # judge it

`probe` changes the input and writes which modules noticed: later tokens, padding, other rows of the batch, other
documents. It finds any leak, also those that leave no trace in the pattern:

    from attnscope_capture import probe
    probe(model, ids, "probe.safetensors", mask="causal")

    $ attnscope check probe.safetensors      # names the first module that leaks

What counts as attention
    Every call of scaled_dot_product_attention inside a module of the model, and every softmax inside a module that
    1. is over a float tensor of 3 dimensions ([batch*head, query, key]), 4 ([batch, head, query, key]) or 5
       ([batch, kv_head, group, query, key]);
    2. has as many queries (last dimension but one) as some input of an enclosing module has positions; and as many
       keys, unless its input is known to be a product of two activations (a cache makes keys outnumber positions);
    3. does not have as its input the output of a layer with weights: that is how a router or a vocabulary softmax,
       [batch, position, expert or token], is told from one head of attention.
    What was passed over is listed in the metadata as `attnscope.skipped`.

What is not seen: a softmax written out as exp and sum, log_softmax, kernels called directly (flash_attn, xformers,
flex_attention outside transformers), TorchScript, forward calls in other threads or processes (DataParallel).

The scores are what goes into the softmax; the pattern is what comes out, followed through casts, dropout, masks and
gates until it is multiplied by the values. For scaled_dot_product_attention both are computed here, in float32, from
its arguments, with scores of -inf where masked; its dropout happens inside the kernel and is only named, not seen.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import json
import math
import os
import re
import sys
import types

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

__all__ = ["capture", "probe"]

SOFTMAX = {"softmax", "special_softmax"}
PRODUCT = {"matmul", "__matmul__", "__rmatmul__", "bmm", "baddbmm", "addbmm", "mm", "addmm", "einsum"}
WEIGHTED = {"linear", "bilinear", "conv1d", "conv2d", "conv3d", "embedding"}
# Reading an attribute or a size makes no tensor that matters here, and happens more often than anything else.
SILENT = {"__get__", "__set__", "size", "dim", "stride", "numel", "is_contiguous", "item", "__len__", "__bool__"}
CROSS = re.compile(r"cross|enc_?dec|encoder_(attn|attention)|enc_attn|src_attn|context_attn", re.IGNORECASE)


# ---------------------------------------------------------------------------------------------------- capture


class capture:
    """Records the attention of the first forward call of `model` and writes it to `path` when the block ends.

    tokens, attention_mask   [position] or [batch, position]; found in the arguments of the call when not given
    mask                     "causal", "bidirectional" or "none": what the model is meant to be; attnscope infers it otherwise
    window                   how many keys a query is meant to see, itself included
    documents                starts of packed documents, e.g. [0, 17, 40]
    row                      which row of the batch is kept
    every_call               record every forward call of the model, not the first only
    scores                   False keeps the pattern alone, half the size
    only                     regular expression: keep the modules whose path it finds
    max_bytes                more than this is an error before memory is spent
    """

    def __init__(self, model, path, *, tokens=None, attention_mask=None, mask=None, window=None, documents=None,
                 row=0, every_call=False, scores=True, only=None, max_bytes=2 << 30):
        _check_choice("mask", mask, (None, "causal", "bidirectional", "none"))
        self.model, self.path = model, _checked_path(path)
        self.given = {"tokens": tokens, "attention_mask": attention_mask}
        self.declared = {"mask": mask, "window": window, "documents": documents}
        self.row, self.every_call, self.keep_scores, self.max_bytes = row, every_call, scores, max_bytes
        self.only = re.compile(only) if only else None

    def __enter__(self):
        self.records, self.skipped, self.found = [], {}, {}
        self.stack, self.root_calls, self.bytes = [], 0, 0
        self.n_calls = {}
        self.weights = {_address(p) for p in self.model.parameters()} - {0}
        self.cleanup = contextlib.ExitStack()
        try:
            for path, module in self.model.named_modules():
                self.cleanup.callback(_hook(module, True, self._enter_module(path)))
                self.cleanup.callback(_hook(module, False, self._leave_module))
            self.cleanup.enter_context(_plain_pytorch(self.model))
            self.cleanup.enter_context(_Watch(self))
        except BaseException:
            self.cleanup.close()
            raise
        return self

    def __exit__(self, kind, error, trace):
        self.cleanup.close()
        try:
            if kind is None:
                self._write()
        finally:
            for record in self.records:  # a tensor that the caller kept may still point at its record
                record.owner = record.scores = record.pattern = None
        return False

    # Which modules are running, and with what inputs.

    def _enter_module(self, path):
        def hook(module, args, kwargs):
            tensors = list(_tensors((args, kwargs)))
            if module is self.model:
                self.stack.clear()  # whatever an earlier, failed call left behind
                self.root_calls += 1
                if self.recording:
                    self._read_arguments(module, args, kwargs)
            elif path.split(".")[-1] == "decoder" and self.recording:
                ids = kwargs.get("input_ids", args[0] if args else None)
                if _is_ids(ids):
                    self.found.setdefault("decoder_tokens", ids.detach().cpu())
            self.stack.append(_Frame(module, path, tensors))

        return hook

    def _leave_module(self, module, args, output):
        while self.stack and self.stack.pop().module is not module:
            pass
        if module is self.model and not self.stack and not self.every_call:
            self.root_calls = max(self.root_calls, 1) + 1  # the first call is over: nothing after it is recorded

    @property
    def recording(self):
        return self.every_call or self.root_calls <= 1

    def _read_arguments(self, module, args, kwargs):
        try:
            named = dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
        except (TypeError, ValueError):
            named = {str(i): arg for i, arg in enumerate(args)}
            named.update(kwargs)
        for name in [name for name, value in named.items() if isinstance(value, dict)]:
            named.update(named.pop(name))  # the **kwargs of forward
        plain = [name for name, value in named.items() if _is_ids(value)
                 and not re.search(r"mask|label|target_out|type|position|decoder|tgt|trg", name)]
        later = [name for name, value in named.items() if _is_ids(value) and re.search(r"decoder_input|tgt|trg", name)
                 and "mask" not in name]
        plain.sort(key=lambda name: name != "input_ids")
        if plain:
            self.found.setdefault("tokens", named[plain[0]].detach().cpu())
        if later:
            self.found.setdefault("decoder_tokens", named[later[0]].detach().cpu())
        for name in ("attention_mask", "src_key_padding_mask", "key_padding_mask"):
            mask = named.get(name)
            if isinstance(mask, torch.Tensor) and mask.dim() == 2 and "attention_mask" not in self.found:
                # In PyTorch's own layers a key padding mask marks what is *not* attended to: True, or -inf.
                real = mask if name == "attention_mask" else (~mask if mask.dtype == torch.bool else mask == 0)
                self.found["attention_mask"] = real.detach().cpu()

    # What a softmax or scaled_dot_product_attention does.

    def place(self):
        """The innermost module, but for nn.Softmax, which says nothing about where it stands."""
        frames = [f for f in self.stack if not isinstance(f.module, (nn.Softmax, nn.Softmax2d))] or self.stack
        return frames[-1]

    def wants(self, frame):
        return self.only is None or self.only.search(frame.name(self.model))

    def rejects(self, x):
        """Why a softmax over `x` is not attention; None when it is."""
        if not x.is_floating_point() or not 3 <= x.dim() <= 5:
            return "not a float tensor of 3 to 5 dimensions"
        origin = getattr(x, "_attnscope_origin", None)
        if origin == "weights":
            return "its input comes from a layer with weights, not from queries and keys"
        lengths = {n for frame in self.stack for n in frame.lengths}
        if x.shape[-2] not in lengths:
            return "its last dimension but one is no sequence length"
        if x.shape[-1] not in lengths and origin != "product":
            return "its last dimension is no sequence length"
        return None

    def batch_size(self, n_rows, n_queries):
        """Rows of the batch in a leading dimension that may hold batch*head: what the inputs around it have."""
        for frame in reversed(self.stack):
            for shape in frame.shapes:
                if len(shape) < 2 or n_queries not in shape[:2]:
                    continue
                batch = shape[0] if shape[1] == n_queries else shape[1]
                if n_rows % max(batch, 1) == 0:
                    return batch
        return 1

    def rows(self, x):
        """[…, query, key] → ([head, query, key] of the kept row, how many rows)."""
        if x.dim() == 3:
            batch = self.batch_size(x.shape[0], x.shape[1])
            x = x.unflatten(0, (batch, -1))
        elif x.dim() > 4:
            x = x.flatten(1, -3)
        if self.row >= x.shape[0] > 1:
            raise RuntimeError(f"row {self.row} was asked for, and the batch has {x.shape[0]}")
        return x[min(self.row, x.shape[0] - 1)], x.shape[0]

    def reserve(self, frame, shape, what):
        size = 4 * math.prod(shape)
        if self.bytes + size > self.max_bytes:
            raise RuntimeError(
                f"{frame.name(self.model)}: {what} of shape {list(shape)} take {_readable(size)} on top of "
                f"{_readable(self.bytes)} already captured, more than max_bytes = {_readable(self.max_bytes)}; "
                "use a shorter prompt, only=… for some modules, scores=False, or a larger max_bytes")
        self.bytes += size

    def copy(self, row):
        return row.detach().to("cpu", torch.float32, copy=True).contiguous()  # [head, query, key]

    def add(self, frame, info):
        name = frame.name(self.model)
        record = _Record(self, name, {"module": name, "call": self.n_calls.get(name, 0), **info,
                                      "training": bool(frame.module.training)})
        self.n_calls[name] = record.info["call"] + 1
        self.records.append(record)
        return record

    def softmax(self, func, args, kwargs):
        x = args[0] if args else kwargs.get("input", kwargs.get("self"))
        y = func(*args, **kwargs)
        if not self.stack or not self.recording or not isinstance(x, torch.Tensor):
            return y
        dim = kwargs["dim"] if "dim" in kwargs else args[1] if len(args) > 1 else None
        if dim is None:  # what torch takes when none is given; rarely what was meant
            dim = 0 if x.dim() in (0, 1, 3) else 1
        if not isinstance(dim, int):
            return y
        dim = dim % x.dim() if x.dim() else 0
        frame = self.place()
        earlier = getattr(x, "_attnscope_record", None)
        if earlier is not None and earlier.owner is self:
            # A softmax of a pattern: one attention with two softmaxes, whose scores went into the first.
            earlier.after.append("softmax")
            earlier.info.setdefault("dims", [earlier.info["dim"]]).append(dim)
            earlier.pattern = self.copy(self.rows(y)[0])
            y._attnscope_record = earlier
            return y
        why = self.rejects(x)
        if why is not None:
            self.skip(frame, x, dim, why)
            return y
        if not self.wants(frame):
            return y
        row, n_rows = self.rows(x)
        self.reserve(frame, row.shape, "scores and pattern" if self.keep_scores else "pattern")
        if self.keep_scores:
            self.reserve(frame, row.shape, "scores and pattern")
        record = self.add(frame, {
            "kind": "softmax", "dim": dim, "axis": _axis(x.dim(), dim, n_rows), "shape": list(x.shape),
            "dtype": _dtype(y), "scores_dtype": _dtype(x), "dropout_p": 0.0, "is_causal": None, "has_mask": None,
            "scale": None})
        record.scores = self.copy(row) if self.keep_scores else None
        record.pattern = self.copy(self.rows(y)[0])
        y._attnscope_record = record
        return y

    def skip(self, frame, x, dim, why):
        entry = {"module": frame.name(self.model), "shape": list(x.shape), "dim": dim, "why": why}
        if len(self.skipped) < 32:
            self.skipped.setdefault((entry["module"], why), entry)

    def sdpa(self, func, args, kwargs):
        out = func(*args, **kwargs)
        frame = self.place() if self.stack else None
        if frame is None or not self.recording or not self.wants(frame):
            return out
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = dict(zip(names, args), **kwargs)
        query, key, mask = given["query"], given["key"], given.get("attn_mask")
        is_causal, scale = bool(given.get("is_causal", False)), given.get("scale")
        if query.is_nested or not 3 <= query.dim() <= 5:
            self.skip(frame, query, -1, "nested, or not of 3 to 5 dimensions")
            return out
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        full = query.shape[:-1] + (key.shape[-2],)
        q = self.rows(query)[0]  # [head, query, d_head]
        k = self.rows(key)[0]  # [kv_head, key, d_head]
        shape = (q.shape[0], q.shape[1], k.shape[1])
        for _ in range(2 if self.keep_scores else 1):
            self.reserve(frame, shape, "scores and pattern" if self.keep_scores else "pattern")
        with torch.no_grad(), _no_autocast(query.device.type):
            if k.shape[0] != q.shape[0]:
                k = k.repeat_interleave(q.shape[0] // k.shape[0], dim=0)
            scores = (q.detach().float() * scale) @ k.detach().float().transpose(-1, -2)  # [head, query, key]
            if mask is not None:
                mask = self.rows(mask.detach().expand(full))[0]
                scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.float()
            if is_causal:
                # torch aligns its causal mask at the top left, also when keys outnumber queries
                visible = torch.ones(shape[1:], dtype=torch.bool, device=scores.device).tril()
                scores = scores.masked_fill(~visible, -math.inf)
            pattern = scores.softmax(-1)
            hidden = (scores == -math.inf).all(-1)  # [head, query]
            if hidden.any():
                # What a row that sees no key gives depends on version and kernel: zeros or NaN. The output tells.
                zero = torch.isfinite(self.rows(out.detach())[0]).all(-1) & hidden
                pattern = pattern.masked_fill(zero.unsqueeze(-1), 0.0)
        record = self.add(frame, {
            "kind": "sdpa", "dim": query.dim() - 1, "axis": "keys", "shape": list(full), "dtype": _dtype(query),
            "scores_dtype": _dtype(query), "dropout_p": float(given.get("dropout_p", 0.0) or 0.0),
            "is_causal": is_causal, "has_mask": mask is not None, "scale": scale})
        record.scores = self.copy(scores) if self.keep_scores else None
        record.pattern = self.copy(pattern)
        return out

    # Where a tensor comes from, and what becomes of a pattern. Kept as attributes of the tensors themselves, so that
    # they go when the tensors go.

    def is_weight(self, x):
        return (isinstance(x, nn.Parameter) or getattr(x, "_attnscope_origin", None) == "parameter"
                or _address(x) in self.weights)

    def follow(self, name, args, kwargs, out):
        inputs = list(_tensors((args, kwargs)))
        if not inputs:
            return
        first = next(_tensors(out), None)
        if first is None:
            return
        origins = [getattr(x, "_attnscope_origin", None) for x in inputs]
        if name in PRODUCT and any(hasattr(x, "_attnscope_record") for x in inputs):
            for x in inputs:
                self.used(x)
            origin = None  # attention's output, no longer scores
        elif name in WEIGHTED or name in PRODUCT and any(self.is_weight(x) for x in inputs):
            if "product" in origins and first.dim() == 4:
                origin = "product"  # heads mixed before the softmax: still scores
            else:
                # additive attention ends in a layer of width 1, whose output is scores
                origin = "weights" if first.shape[-1:] != (1,) and first.dim() else None
        elif name in PRODUCT:
            origin = "product"
        elif all(self.is_weight(x) for x in inputs):
            origin = "parameter"
        else:
            origin = next((o for o in ("product", "weights") if o in origins), None)
        for y in _tensors(out):
            if origin is not None or hasattr(y, "_attnscope_origin"):
                y._attnscope_origin = origin
        if name not in PRODUCT:
            self.follow_pattern(name, inputs, args, kwargs, first)

    def follow_pattern(self, name, inputs, args, kwargs, y):
        x = next((x for x in inputs if hasattr(x, "_attnscope_record")), None)
        if x is None or not y.is_floating_point():
            return
        record = x._attnscope_record
        if y is x:  # written in place
            if name.endswith("_"):
                record.after.append(name)
            return
        if name == "__getitem__" and y.shape[:-1] == x.shape[:-1] and 0 < y.shape[-1] < x.shape[-1]:
            # A learned sink is a key column added before the softmax and cut off after it: cut it from the scores too.
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if index[0] is Ellipsis and len(index) == 2 and record.scores is not None:
                record.scores = record.scores[(Ellipsis, index[1])].contiguous()
            record.pattern = self.copy(self.rows(y)[0])
            record.info["sink_columns"] = x.shape[-1] - y.shape[-1]
        elif y.shape[-2:] != x.shape[-2:] or y.numel() != x.numel():
            return
        elif "dropout" in name:
            training = kwargs.get("training", args[2] if len(args) > 2 else True)
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            if training and p:
                record.info["dropout_p"] = float(p)
                record.after.append("dropout")
        elif name not in ("to", "type", "type_as", "float", "half", "bfloat16", "view", "reshape", "contiguous",
                          "clone", "detach", "unflatten", "flatten", "requires_grad_"):
            record.after.append(name)
        y._attnscope_record = record

    def used(self, x):
        record = getattr(x, "_attnscope_record", None)
        if record is not None and record.owner is self:
            row = self.rows(x)[0]
            if row.shape == record.pattern.shape:
                record.pattern = self.copy(row)
                record.info["dtype"] = _dtype(x)
                del x._attnscope_record

    # The file.

    def _write(self):
        if not self.records:
            skipped = "; ".join(f"{s['module']} {s['shape']}: {s['why']}" for s in self.skipped.values())
            raise RuntimeError(
                f"no attention was captured in {type(self.model).__name__}"
                + ("" if self.root_calls else ": the model was not called")
                + (f" in the modules that only={self.only.pattern!r} finds" if self.only else "")
                + (f"; softmaxes passed over: {skipped}" if skipped else "")
                + "; a fused kernel or a softmax written out by hand cannot be seen")
        tensors = {}
        for name, records in _names(self.records).items():
            for what in ("pattern", "scores"):
                parts = [getattr(record, what) for record in records]
                if all(part is not None for part in parts):
                    tensors[f"{name}.{what}"] = parts[0] if len(parts) == 1 else torch.cat(parts)  # [head, query, key]
            for head, record in enumerate(records):
                record.info = {"name": name, **({"head": head} if len(records) > 1 else {}), **record.info}
                if record.after:
                    record.info["after"] = record.after
        lengths = [record.pattern.shape[1] for record in self.records]
        for name in ("tokens", "decoder_tokens", "attention_mask"):
            given = self.given.get(name)
            row = self._position_row(self.found.get(name) if given is None else given, lengths)
            if row is not None and (name != "decoder_tokens" or any(key.startswith("decoder.") for key in tensors)):
                tensors[name] = row
        calls = [record.info for record in self.records]
        axes, dtypes = {call["axis"] for call in calls}, sorted({call["dtype"] for call in calls})
        metadata = {
            "attnscope.capture": "1", "attnscope.source": _source(self.model), "attnscope.calls": json.dumps(calls),
            "attnscope.dtype": ",".join(dtypes),
            "attnscope.skipped": json.dumps(list(self.skipped.values())) if self.skipped else None,
            "attnscope.softmax_axis": axes.pop() if len(axes) == 1 else None}
        for name, value in self.declared.items():
            metadata["attnscope." + name] = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        _save(self.path, tensors, metadata)

    def _position_row(self, x, lengths):
        if x is None:
            return None
        x = torch.as_tensor(x).detach().cpu()
        if x.dim() == 2:
            position_first = x.shape[1] not in lengths and x.shape[0] in lengths  # [position, batch]
            x = x.T if position_first else x
            x = x[min(self.row, x.shape[0] - 1)]
        return x.to(torch.int64).contiguous() if x.dim() == 1 else None  # [position]


class _Watch(TorchFunctionMode):
    """Sees every torch function that runs between entering and leaving the block."""

    def __init__(self, owner):
        super().__init__()
        self.owner = owner

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "multi_head_attention_forward" and isinstance(func, types.FunctionType):
            # It hands itself over as a whole, and what it calls would not be seen. A copy that does not is run instead.
            scope = dict(func.__globals__, has_torch_function=lambda _: False)
            whole = types.FunctionType(func.__code__, scope, func.__name__, func.__defaults__, func.__closure__)
            whole.__kwdefaults__ = func.__kwdefaults__
            with self:
                return whole(*args, **kwargs)
        if name in SOFTMAX:
            return self.owner.softmax(func, args, kwargs)
        if name == "scaled_dot_product_attention":
            return self.owner.sdpa(func, args, kwargs)
        out = func(*args, **kwargs)
        if name not in SILENT and self.owner.stack and self.owner.recording:
            self.owner.follow(name, args, kwargs, out)
        return out


class _Record:
    """One attention: what went into its softmax and what came out."""

    def __init__(self, owner, path, info):
        self.owner, self.path, self.info = owner, path, info
        self.scores = self.pattern = None  # [head, query, key]
        self.after = []  # what happened to the pattern before it was used


class _Frame:
    """One running module and the shapes that it was given."""

    def __init__(self, module, path, tensors):
        self.module, self.path = module, path
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


def _axis(n_dims, dim, n_rows):
    if dim == n_dims - 1:
        return "keys"
    if dim == n_dims - 2:
        return "queries"
    if n_dims == 3:
        return "batch" if n_rows > 1 else "heads"  # batch*head in one dimension mixes both
    return "batch" if dim == 0 else "heads"


def _names(records):
    """{name: [record, …]}: `blocks.{i}.attn` when each layer has one call, `<module.path>#<call>` otherwise.

    Several records under one name are modules of one head each, [head] of them in one layer.
    """
    stacks = {}
    paths = {record.path for record in records}
    is_cross = {}
    for record in records:
        parent, _, last = record.path.rpartition(".")
        is_cross[id(record)] = bool(CROSS.search(record.path)) or (
            last == "multihead_attn" and f"{parent}.self_attn" in paths)  # nn.TransformerDecoderLayer
    crossed = {_before_number(record.path) for record in records if is_cross[id(record)]}
    for record in records:
        words = [word.lower() for word in record.path.split(".") if not CROSS.search(word)]
        side = next((s for word in words for s in ("decoder", "encoder") if s in word), "")
        if is_cross[id(record)]:
            side = "cross"
        elif _before_number(record.path) in crossed:
            side = "decoder"  # the layers that hold cross attention are a decoder, whatever they are called
        stacks.setdefault(side, []).append(record)
    if "cross" not in stacks and not ("encoder" in stacks and "decoder" in stacks):
        stacks = {"": records}
    prefixes = {"": "blocks.{}.attn", "encoder": "encoder.blocks.{}.attn", "decoder": "decoder.blocks.{}.attn",
                "cross": "decoder.blocks.{}.cross_attn"}
    named = {}
    for side, members in stacks.items():
        for layer, group in (_layers(members) or {}).items():
            named[prefixes[side].format(layer)] = group
    placed = {id(record) for group in named.values() for record in group}
    if len(placed) < len(records) and "" in stacks:
        named, placed = {}, set()
    for record in records:
        if id(record) not in placed:
            named[f"{record.path}#{record.info['call']}"] = [record]
    return named


def _before_number(path):
    return re.split(r"\d", path, maxsplit=1)[0]


def _layers(records):
    """{layer: [record, …]} from the numbers in the module paths; None when they do not tell the layers apart."""
    numbers = [[int(n) for n in re.findall(r"\d+", record.path)] for record in records]
    if len({record.path for record in records}) < len(records) or not all(numbers):
        return None  # a module was called twice, or has no number
    if len({_before_number(record.path) for record in records}) > 1:
        return None
    same_shape = len({re.sub(r"\d+", "{}", record.path) for record in records}) == 1
    varying = [i for i in range(len(numbers[0])) if len({n[i] for n in numbers}) > 1] if same_shape else [0]
    if len(varying) > 2:
        return None
    layer_at = varying[0] if varying else 0
    layers = {}
    for record, number in zip(records, numbers):
        layers.setdefault(number[layer_at], []).append(record)
    if list(layers) != sorted(layers):
        return None
    if len(varying) < 2:
        return layers if all(len(group) == 1 for group in layers.values()) else None
    # One module per head: blocks.2.attn.heads.0, blocks.2.attn.heads.1, …
    one_shape = len({tuple(record.pattern.shape) for record in records}) == 1 and records[0].pattern.shape[0] == 1
    heads = {tuple(n[varying[1]] for r, n in zip(records, numbers) if r in group) for group in layers.values()}
    return layers if one_shape and len(heads) == 1 and list(*heads) == list(range(len(*heads))) else None


# ------------------------------------------------------------------------------------------------------ probe


def probe(model, ids, path, *, mask="causal", pad_id=None, n_pads=3, n_cuts=8, documents=None, call=None, seed=0,
          max_bytes=2 << 30):
    """Changes the input of `model`, compares what every module gives, and writes how far each moved to `path`.

    ids         [position] or [batch, position] token ids; the first row is used, whole: give no padding
    mask        "causal" runs the test on later tokens; "bidirectional" or "none" leaves it out
    pad_id      the token that padding is made of; the model's config knows it in transformers, else 0
    documents   starts of the documents packed in `ids`, e.g. [0, 17]: each must not notice those before it
    call        how to run the model when model(ids) is not it: call(model, ids, **kw), where kw may hold attention_mask
                and position_ids if call takes them. For an encoder–decoder model, for instance:
                call=lambda m, ids: m(input_ids=source, decoder_input_ids=ids)

    The model runs in eval mode, without gradients, and gets its own mode back afterwards. Differences are |a - b| in
    float32; -1 stands for a module whose output could not be compared in that case.
    """
    _check_choice("mask", mask, ("causal", "bidirectional", "none"))
    target = _checked_path(path)
    ids = torch.as_tensor(ids)
    ids = (ids if ids.dim() == 1 else ids[0]).detach().cpu().to(torch.int64)  # [position]
    n = ids.shape[0]
    if n < 3:
        raise ValueError(f"a probe needs at least 3 tokens, and got {n}")
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), _plain_pytorch(model, attention=False):
            tensors, metadata = _Probe(model, ids, call, seed, max_bytes, pad_id).run(mask, n_pads, n_cuts, documents)
    finally:
        for module, training in modes.items():
            module.training = training
    _save(target, tensors, metadata)


class _Probe:
    def __init__(self, model, ids, call, seed, max_bytes, pad_id):
        self.model, self.ids, self.call, self.max_bytes = model, ids, call, max_bytes
        self.random = torch.Generator().manual_seed(seed)
        weight = next(model.parameters(), None)
        self.device = weight.device if weight is not None else torch.device("cpu")
        if pad_id is None:
            pad_id = getattr(getattr(model, "config", None), "pad_token_id", None)
        self.pad_id = pad_id if isinstance(pad_id, int) and pad_id >= 0 else 0
        # Other tokens of the same kind: the prompt's own, which cannot be special by surprise; the whole vocabulary
        # when the prompt has too few.
        self.pool = torch.unique(ids[ids != self.pad_id])
        sizes = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding) and m.num_embeddings > ids.max()]
        if len(self.pool) < 4 and sizes:
            self.pool = torch.tensor([t for t in range(max(sizes)) if t != self.pad_id])
        if len(self.pool) < 2:
            raise ValueError("the prompt holds one token only and no embedding was found to draw others from")

    def accepts(self, name):
        try:
            own = inspect.signature(self.model.forward).parameters
            outer = inspect.signature(self.call).parameters if self.call else own
        except (TypeError, ValueError):
            return False
        takes_all = self.call is not None and any(p.kind is p.VAR_KEYWORD for p in outer.values())
        return name in outer or takes_all and name in own

    def forward(self, ids, shapes_only=False, **inputs):
        """Runs [batch, position] ids; {module: [float outputs]} in the order in which the modules finish."""
        outputs, spent, hooks = {}, 0, []

        def keep(path):
            def hook(module, args, output):
                nonlocal spent
                kept = []
                for tensor in _tensors(output):
                    if not tensor.is_floating_point():
                        continue
                    spent += 0 if shapes_only else 4 * tensor.numel()
                    if spent > self.max_bytes:
                        raise RuntimeError(
                            f"{path}: its output of shape {list(tensor.shape)} brings the probe to {_readable(spent)}, "
                            f"more than max_bytes = {_readable(self.max_bytes)}; use a shorter prompt or a larger max_bytes")
                    # a copy, because the next module may write into this one
                    kept.append(tuple(tensor.shape) if shapes_only
                                else tensor.detach().to("cpu", torch.float32, copy=True))
                name, again = path, 0
                while name in outputs:  # a module that runs several times
                    again += 1
                    name = f"{path}#{again}"
                outputs[name] = kept
            return hook

        try:
            for path, module in self.model.named_modules():
                hooks.append(_hook(module, False, keep(path or type(self.model).__name__)))
            inputs = {name: value.to(self.device) for name, value in inputs.items()}
            run = self.call if self.call else (lambda model, ids, **kw: model(ids, **kw))
            run(self.model, ids.to(self.device), **inputs)
        finally:
            for remove in hooks:
                remove()
        return outputs

    def others(self, ids):
        """As many tokens, each different from the one that it replaces."""
        drawn = self.pool[torch.randint(len(self.pool), ids.shape, generator=self.random)]
        shifted = self.pool[(torch.searchsorted(self.pool, drawn) + 1) % len(self.pool)]
        return torch.where(drawn == ids, shifted, drawn)

    def run(self, mask, n_pads, n_cuts, documents):
        ids, n = self.ids, len(self.ids)
        base = self.forward(ids[None])
        axes = self.sequence_axes(base, n)
        names = [name for name in base if any(axis is not None for axis in axes[name])]
        if not names:
            raise RuntimeError(f"no module of {type(self.model).__name__} gives an output with {n} positions")
        self.names, self.axes, self.n = names, axes, n
        sizes = self.sizes(base)
        again = self.moved(base, self.forward(ids[None]), 0, n)
        noise = max((m / s for m, s in zip(again, sizes) if m > 0), default=0.0)
        tensors = {"tokens": ids}
        metadata = {"attnscope.probe": "1", "attnscope.mask": mask, "attnscope.source": _source(self.model),
                    "attnscope.modules": json.dumps(names), "attnscope.noise": repr(float(noise)),
                    "attnscope.deterministic": "true" if max(again) == 0 else "false"}

        if mask == "causal":
            self.future(base, sizes, n_cuts, tensors, metadata)
        else:
            metadata["attnscope.future.skipped"] = f"the mask is {mask}: earlier positions may see later ones"
        for test in ("padding", "batch"):
            try:
                getattr(self, test)(base, sizes, n_pads, tensors, metadata)
            except Exception as error:  # a model that takes no batch is no reason to lose the rest
                if "max_bytes" in str(error):
                    raise
                lines = str(error).strip().splitlines() or [""]
                metadata[f"attnscope.{test}.skipped"] = f"{type(error).__name__}: {lines[0]}"
        if documents is not None:
            starts = [int(start) for start in documents]
            columns = []
            for start, end in zip(starts[1:], starts[2:] + [n]):
                changed = torch.cat([self.others(ids[:start]), ids[start:]])
                columns.append(self.moved(base, self.forward(changed[None]), start, end - start))
            tensors["probe.documents.moved"] = torch.tensor(columns).T.contiguous()  # [module, document after the first]
            tensors["probe.documents.size"] = torch.tensor(sizes)
            metadata["attnscope.documents"] = ",".join(map(str, starts))
        return tensors, metadata

    def future(self, base, sizes, n_cuts, tensors, metadata):
        n = self.n
        n_cuts = min(n_cuts, n - 1)
        cuts = sorted({round(i * (n - 2) / max(n_cuts - 1, 1)) for i in range(n_cuts)})
        last = self.names[-1]
        part = next(i for i, axis in enumerate(self.axes[last]) if axis is not None)
        axis = self.axes[last][part]
        moved, influence = [], []
        for cut in cuts:
            changed = torch.cat([self.ids[:cut + 1], self.others(self.ids[cut + 1:])])
            after = self.forward(changed[None])
            moved.append(self.moved(base, after, 0, cut + 1))
            influence.append(_difference(base[last][part], after[last][part]).movedim(axis, 0).flatten(1).amax(1))
        tensors["probe.future.moved"] = torch.tensor(moved).T.contiguous()  # [module, cut]
        tensors["probe.future.size"] = torch.tensor(sizes)  # [module]
        tensors["probe.future.cuts"] = torch.tensor(cuts, dtype=torch.int64)  # [cut]
        tensors["probe.future.influence"] = torch.stack(influence)  # [cut, position]
        metadata["attnscope.output"] = last

    def padding(self, base, sizes, n_pads, tensors, metadata):
        inverted = not self.accepts("attention_mask") and self.accepts("src_key_padding_mask")
        if not inverted and not self.accepts("attention_mask"):
            metadata["attnscope.padding.skipped"] = "neither call nor forward takes an attention_mask" if self.call else (
                "the model's forward takes no attention_mask")
            return

        def run(left, right):
            pads = torch.tensor([self.pad_id])
            ids = torch.cat([pads.repeat(left), self.ids, pads.repeat(right)])[None]
            mask = torch.tensor([0] * left + [1] * self.n + [0] * right)[None]
            inputs = {"src_key_padding_mask": mask == 0} if inverted else {"attention_mask": mask}
            if self.accepts("position_ids"):
                inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
            return self.forward(ids, **inputs)

        plain = run(0, 0)  # padded against unpadded, both with a mask: a mask alone may choose another kernel
        cases = [(n_pads, 0), (0, n_pads)]
        columns = [self.moved(plain, run(*case), 0, self.n, left=case[0], longer=n_pads) for case in cases]
        tensors["probe.padding.moved"] = torch.tensor(columns).T.contiguous()  # [module, case]
        tensors["probe.padding.size"] = torch.tensor(self.sizes(plain))
        metadata["attnscope.padding.cases"] = json.dumps([f"left {n_pads}", f"right {n_pads}"])
        # without them a model with learned absolute positions rightly moves under left padding
        metadata["attnscope.padding.positions"] = "mask" if self.accepts("position_ids") else "model"

    def batch(self, base, sizes, n_pads, tensors, metadata):
        """The row alone against the same row between two others."""
        others = [self.ids[torch.randperm(self.n, generator=self.random)], self.others(self.ids)]
        after = self.forward(torch.stack([others[0], self.ids, others[1]]))
        tensors["probe.batch.moved"] = torch.tensor([self.moved(base, after, 0, self.n, row=1, rows=3)]).T.contiguous()
        tensors["probe.batch.size"] = torch.tensor(sizes)

    def sequence_axes(self, base, n):
        """{module: [axis of positions or None, per output]}: the one axis that shortens when the prompt does."""
        try:
            shorter = self.forward(self.ids[None, :-1], shapes_only=True)
        except Exception:  # a model of fixed length: the size has to tell
            shorter = None
        axes = {}
        for name, outputs in base.items():
            axes[name] = []
            for part, tensor in enumerate(outputs):
                equal = [axis for axis, size in enumerate(tensor.shape) if size == n]
                if shorter is not None:
                    other = shorter.get(name, [])[part:part + 1]
                    other = other[0] if other and len(other[0]) == tensor.dim() else tensor.shape
                    equal = [axis for axis in equal if other[axis] == n - 1]
                elif len(equal) > 1 and tensor.dim() == 3:
                    equal = [axis for axis in equal if axis == 1]
                # two axes of positions are scores or a pattern, where a hidden key may move without harm
                axes[name].append(equal[0] if len(equal) == 1 else None)
        return axes

    def sizes(self, outputs):
        return [max((float(t.abs().max()) for t, a in zip(outputs.get(name, []), self.axes[name])
                     if a is not None and t.numel()), default=0.0) for name in self.names]

    def moved(self, base, after, start, length, left=0, longer=0, row=0, rows=1):
        """Per module, max |difference| over `length` positions from `start`, after bringing both to one shape."""
        columns = []
        for name in self.names:
            worst = -1.0
            for part, axis in enumerate(self.axes[name]):
                if axis is None or name not in base or name not in after or part >= len(after[name]):
                    continue
                a, b = base[name][part], after[name][part]
                if b.dim() != a.dim():
                    continue
                if longer and b.shape[axis] == self.n + longer:
                    b = b.narrow(axis, left, self.n)
                choices = [b]
                differing = [i for i in range(a.dim()) if a.shape[i] != b.shape[i]]
                if rows > 1 and len(differing) == 1 and b.shape[differing[0]] == rows * a.shape[differing[0]]:
                    # batch alone (1 → rows), batch*head, or batch*position, where either may be the outer one
                    at, size = differing[0], a.shape[differing[0]]
                    choices = [b.narrow(at, row * size, size)]
                    if at == axis:
                        choices.append(b.unflatten(at, (size, rows)).select(at + 1, row))
                if choices[0].shape != a.shape or start + length > a.shape[axis]:
                    continue
                a = a.narrow(axis, start, length)
                differences = [_difference(a, b.narrow(axis, start, length)) for b in choices]
                worst = max(worst, min(float(d.max()) if d.numel() else 0.0 for d in differences))
            columns.append(worst)
        return columns


def _difference(a, b):
    """|a - b|; equal infinities and two NaNs differ by 0, a NaN and a number by infinity."""
    same = (a == b) | (a.isnan() & b.isnan())
    return (a - b).abs().nan_to_num(nan=math.inf, posinf=math.inf).masked_fill(same, 0.0)


# ----------------------------------------------------------------------------------------------------- shared


@contextlib.contextmanager
def _plain_pytorch(model, attention=True):
    """For the length of the block: no fused transformer layers, no compiled code, no kernels that cannot be watched."""
    with contextlib.ExitStack() as undo:
        mha = getattr(torch.backends, "mha", None)
        if attention and mha is not None and hasattr(mha, "set_fastpath_enabled"):
            undo.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            mha.set_fastpath_enabled(False)
        # Compiled code can exist only if something has imported the compiler; importing it here would cost seconds.
        if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
            undo.enter_context(torch.compiler.set_stance("force_eager"))
        if attention:
            undo.enter_context(_eager_transformers(model))
        yield


@contextlib.contextmanager
def _eager_transformers(model):
    """transformers models with flash, flex or paged attention run with their own eager attention instead.

    sdpa stays: it is seen as it is. Before version 4.48 each kind of attention was a class of its own and could not be
    changed afterwards; such a model is left alone.
    """
    changed = []
    modeling = sys.modules.get("transformers.modeling_utils")
    if modeling is not None and hasattr(modeling, "ALL_ATTENTION_FUNCTIONS"):
        configs = {}
        for module in model.modules():
            config = getattr(module, "config", None)
            for part in [config] + [getattr(config, key, None) for key in getattr(config, "sub_configs", None) or ()]:
                kind = getattr(part, "_attn_implementation_internal", None)
                if isinstance(kind, str) and kind not in ("eager", "sdpa"):
                    configs[id(part)] = (part, kind)
        for config, kind in configs.values():
            config._attn_implementation_internal = "eager"
            changed.append((config, kind))
    try:
        yield
    finally:
        for config, kind in changed:
            config._attn_implementation_internal = kind


def _hook(module, before, hook):
    """Registers a hook where that is possible and gives what removes it."""
    try:
        handle = (module.register_forward_pre_hook(hook, with_kwargs=True) if before
                  else module.register_forward_hook(hook))
    except RuntimeError:  # a scripted module takes none
        return lambda: None
    return handle.remove


def _no_autocast(device):
    try:
        return torch.autocast(device, enabled=False)
    except (RuntimeError, ValueError):
        return contextlib.nullcontext()


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def _address(tensor):
    try:
        return tensor.untyped_storage().data_ptr()
    except Exception:  # a tensor without storage: sparse, nested, meta
        return 0


def _is_ids(value):
    return (isinstance(value, torch.Tensor) and value.dim() in (1, 2) and value.dtype != torch.bool
            and not value.is_floating_point() and not value.is_complex())


def _dtype(tensor):
    return str(tensor.dtype).replace("torch.", "")


def _source(model):
    return f"torch {torch.__version__} · {type(model).__name__}"


def _readable(n_bytes):
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.2f} {unit}"
    return f"{n_bytes} bytes"


def _check_choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, choices))}")


def _checked_path(path):
    """Looked at before the model runs, which may take long."""
    path = os.path.abspath(os.fspath(path))
    if not os.path.isdir(os.path.dirname(path)):
        raise FileNotFoundError(f"{os.path.dirname(path)} is no directory, {os.path.basename(path)} cannot be written there")
    return path


def _save(path, tensors, metadata):
    """Writes safetensors: an 8-byte length, a JSON header, the bytes. Same input, same bytes; never half a file."""
    kinds = {torch.int64: "I64", torch.float32: "F32"}
    order = sorted(tensors, key=lambda name: (tensors[name].dtype != torch.int64, name))  # wide ones first stay aligned
    header, offset = {"__metadata__": {k: str(v) for k, v in sorted(metadata.items()) if v is not None}}, 0
    for name in order:
        tensor = tensors[name] = tensors[name].detach().contiguous()
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                size = tensors[name].numel() * tensors[name].element_size()
                if size:
                    file.write((ctypes.c_char * size).from_address(tensors[name].data_ptr()))
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
