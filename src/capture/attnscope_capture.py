"""Captures the attention of a PyTorch model for attnscope. Needs only torch.

Two things are offered. `capture` writes what every attention of one forward call did:

    from attnscope_capture import capture
    with capture(model, "trace.safetensors", mask="causal"):
        model(ids)

    $ attnscope trace.safetensors            # look at it
    $ attnscope check trace.safetensors      # judge it

`probe` changes the input and writes which modules noticed: later tokens, padding, other rows of the batch, other
documents, another order, a cache, a shorter prompt, a second pass. It finds any leak, also those that leave no trace in the
pattern:

    from attnscope_capture import probe
    probe(model, ids, "probe.safetensors", mask="causal")

    $ attnscope check probe.safetensors      # names the first module that leaks

`record` writes what modules gave under the names of hooks, so that a port can be compared with the checkpoint it is a port of:

    from attnscope_capture import record
    with record(model, "port.safetensors", names={"layers.{i}.attn.q_proj": "blocks.{i}.attn.q"}):
        model(ids)

    $ attnscope diff CHECKPOINT port.safetensors        # where the port parts first

Call model.eval() before. Where the model draws random numbers, as dropout does, the recording says so, and nothing is judged by it.

Without names it finds them by itself, against a trace of the checkpoint, and prints what it matched:

    $ attnscope trace CHECKPOINT --tokens 5,9,2 --hooks all --output reference.safetensors
    record(model, "port.safetensors", against="reference.safetensors")

What counts as attention
    Every call of scaled_dot_product_attention or of a kernel behind it, and of flex_attention, inside a module of the model.
    Every softmax inside a module that
    1. is over a float tensor of 3 dimensions ([batch*head, query, key]), 4 ([batch, head, query, key]) or 5
       ([batch, kv_head, group, query, key]);
    2. has as many queries (last dimension but one) as some input of an enclosing module has positions; and as many
       keys, unless its input is known to be a product of two activations (a cache makes keys outnumber positions);
    3. does not have as its input the output of a layer with weights: that is how a router or a vocabulary softmax,
       [batch, position, expert or token], is told from one head of attention.
    And everything else that is made of a product of two activations, [.., query, key], and is then multiplied by values: exp
    and sum, log_softmax and exp, sigmoid, ReLU, sparsemax, functions of your own, or nothing at all (linear attention).
    Where einsum leaves the axes in another order, queries and keys are known by what the products sum over.
    What was passed over is listed in the metadata as `attnscope.skipped`; what may matter is also told in a warning.

What is not seen: kernels called directly (flash_attn, xformers), TorchScript, attention that never makes a matrix of
queries by keys, calls in other threads or processes (DataParallel), whatever runs inside torch.vmap, torch.func, torch.export
and torch.jit.trace, and code that is compiled while the capture is on (code that was compiled before runs uncompiled). The
forward call gives what it gives without a capture, to the bit, but for what `attnscope.changed` lists.

The scores are what goes into the softmax; the pattern is what comes out, followed through casts, dropout, masks and
gates until it is multiplied by the values. For scaled_dot_product_attention both are computed here, in float32, from
its arguments, with scores of -inf where masked; its dropout happens inside the kernel and is only named, not seen. A finite
value that hides cells as -inf does (torch.finfo.min, -1e9) is written as -inf, and told as `mask_value`.

What the metadata says of a capture
    attnscope.calls            JSON: of each attention its module, call, kind (softmax, sdpa, flex, written-out, linear), shape,
                               dtypes, dim and axis of the softmax (keys, queries, heads, batch, or null), dropout_p, training,
                               is_causal, causal_alignment, has_mask, scale, mask_value, sink_columns (their scores are the
                               array .sinks beside .scores), token_axis (the axis of tokens_shape along which queries run: 1,
                               or 0 where the first dimension is attended over), steps (torch functions
                               between the product and the values, of one that is written out), after (what happened to the
                               pattern), transposed (scores were laid out as [key, query])
    attnscope.softmax_axis     where all calls have one: keys, queries, heads or batch
    attnscope.dropout_p        the largest, where any is above 0
    attnscope.training         true, false or mixed: whether the modules were in training mode
    attnscope.random           JSON: modules that drew random numbers while they ran, as dropout does
    attnscope.is_causal        true, false or mixed: of scaled_dot_product_attention
    attnscope.sinks            1 where a column of learned sinks was cut off after the softmax
    attnscope.tokens_shape     of the token ids that the model was given, e.g. 2,17
    attnscope.attention_mask_name   the argument that the padding was read from
    attnscope.labels, attnscope.decoder_labels   JSON: the text of each token, given a tokenizer
    attnscope.skipped, attnscope.changed   JSON: what was not recorded, and what ran otherwise than without a capture
    attnscope.mask, attnscope.window, attnscope.documents   as given
"""

# Made of the modules in src/python/attnscope/_capture: change it there.

from __future__ import annotations

import contextlib
import ctypes
import inspect
import json
import math
import os
import re
import sys
import threading
import types
import warnings
import weakref

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

__all__ = ["capture", "probe", "record"]


# ------------------------------------------------------------------------------------------------------------- words


# Names of torch functions, without the underscores around them: add, add_ and __add__ are one.
SOFTMAX = {"softmax", "special_softmax", "safe_softmax"}
FUSED = {"scaled_dot_product_" + kernel for kernel in (
    "attention", "flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention",
    "attention_math", "fused_attention_overrideable")}
PRODUCT = {"matmul", "rmatmul", "bmm", "baddbmm", "addbmm", "mm", "addmm", "einsum"}
WEIGHTED = {"linear", "bilinear", "conv1d", "conv2d", "conv3d", "embedding"}
# Reading an attribute or a size makes no tensor that matters here, and happens more often than anything else.
SILENT = {"get", "set", "size", "dim", "stride", "numel", "is_contiguous", "item", "len", "bool", "is_floating_point",
          "format", "repr", "tolist", "data_ptr", "backward", "register_hook"}
VIEWS = {"to", "type", "type_as", "float", "half", "bfloat16", "double", "view", "view_as", "reshape", "contiguous", "clone",
         "detach", "unflatten", "flatten", "requires_grad", "transpose", "swapaxes", "swapdims", "permute", "movedim",
         "moveaxis", "t", "T", "mT", "H", "mH", "data", "unsqueeze", "squeeze", "expand", "expand_as", "cpu", "cuda"}
REDUCTIONS = {"max", "min", "amax", "amin", "sum", "mean", "logsumexp", "norm", "argmax", "any", "all", "topk", "kthvalue"}
COMPARISONS = {"gt", "lt", "ge", "le", "eq", "ne", "isnan", "isinf", "isfinite", "greater", "less", "new_zeros", "new_ones",
               "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like"}
# After these, scores are still scores; anything else begins to make a pattern of them.
SCORE_STEPS = VIEWS | {"mul", "div", "true_divide", "rdiv", "rtruediv", "multiply", "divide", "add", "sub", "rsub", "subtract",
                       "neg", "masked_fill", "where", "tanh", "setitem", "copy", "fill", "nan_to_num", "maximum", "minimum",
                       "max", "min", "addcmul", "masked_scatter", "gather", "roll", "pad", "cat", "concat", "tril", "triu",
                       "clamp", "clip", "getitem", "narrow", "split", "chunk", "select", "index_select", "repeat",
                       "repeat_interleave", "lerp", "stack", "as_strided", "index_put", "index_fill"}
SHIFTS = {"sub", "rsub", "log_softmax", "special_log_softmax"}
ATTENTION = re.compile(r"attn|attention|mha$", re.IGNORECASE)
KERNEL = re.compile(r"attention|attn|flash|fmha", re.IGNORECASE)
CROSS = re.compile(r"cross|enc_?dec|encoder_(attn|attention)|enc_attn|src_attn|context_attn", re.IGNORECASE)


# --------------------------------------------------------------------------------------------------------- recording


class capture:
    """Records the attention of the first forward call of `model` and writes it to `path` when the block ends.

    tokens, attention_mask   [position] or [batch, position]; found in the arguments of the call when not given
    tokenizer                gives the tokens their text: anything with convert_ids_to_tokens, id_to_token or decode, a list or
                             dict of texts by id, or a function from an id to its text
    mask                     "causal", "bidirectional" or "none": what the model is meant to be; attnscope infers it otherwise
    window                   how many keys a query is meant to see, itself included
    documents                starts of packed documents, e.g. [0, 17, 40]
    row                      which row of the batch is kept
    every_call               record every forward call of the model, not the first only
    scores                   False keeps the pattern alone, half the size
    only                     regular expression: keep the modules whose path it finds
    max_bytes                recording ends before more than this is kept; the block then ends with an error and no file

    The forward call itself never fails because of a capture: what cannot be recorded is left out, listed in the metadata,
    and told in one warning when the block ends.
    """

    def __init__(self, model, path, *, tokens=None, attention_mask=None, mask=None, window=None, documents=None,
                 row=0, every_call=False, scores=True, only=None, max_bytes=2 << 30, tokenizer=None):
        _check_choice("mask", mask, (None, "causal", "bidirectional", "none"))
        self.model, self.path = model, _checked_path(path)
        self.given = {"tokens": tokens, "attention_mask": attention_mask}
        self.declared = {"mask": mask, "window": window, "documents": documents}
        self.row, self.every_call, self.keep_scores, self.max_bytes = row, every_call, scores, max_bytes
        self.only = re.compile(only) if only else None
        self.tokenizer = tokenizer

    def __enter__(self):
        self.records, self.skipped, self.found, self.changed = [], {}, {}, []
        self.stack, self.root_calls, self.bytes = [], 0, 0
        self.n_calls, self.ran, self.refused, self.in_threads = {}, {}, None, False
        self.marked = []  # weak references to the tensors that carry a mark
        self.draws = _Draws(self.model)
        self.thread = threading.get_ident()
        self.weights = {_address(p) for p in self.model.parameters()} - {0}
        self.cleanup = contextlib.ExitStack()
        try:
            for path, module in self.model.named_modules():
                self.cleanup.callback(_hook(module, True, self._guarded_hook(self._enter_module(path))))
                self.cleanup.callback(_hook(module, False, self._guarded_hook(self._leave_module)))
            self.cleanup.enter_context(_plain_pytorch(self.model, changed=self.changed))
            self.n_compiled, self.has_compiler = _n_compiled(), "torch._dynamo" in sys.modules
            self.cleanup.enter_context(_Watch(self))
        except BaseException:
            self.cleanup.close()
            raise
        return self

    def __exit__(self, kind, error, trace):
        self.cleanup.close()
        try:
            if kind is None:
                if self.refused is not None:
                    raise self.refused
                self._note_unseen()
                self._write()
        finally:
            for reference in self.marked:  # leave nothing behind on tensors that the caller kept
                tensor = reference()
                if tensor is not None and hasattr(tensor, "_attnscope_mark"):
                    del tensor._attnscope_mark
            self.marked = []
            for record in self.records:
                record.owner = record.scores = record.pattern = None
        if kind is None and self.skipped:
            told = [f"{s['module']} {s['shape']}: {s['why']}" for s in self.skipped.values() if s.get("tell")]
            if told:
                more = f"; and {len(told) - 4} more, see attnscope.skipped in the file" if len(told) > 4 else ""
                warnings.warn(f"attnscope: not recorded: {'; '.join(told[:4])}{more}", stacklevel=2)
        return False

    # Nothing that goes wrong in here reaches the model.

    def guarded(self, what, step, *args):
        """Runs a step of the recorder; what it raises is noted and goes no further."""
        try:
            with torch._C.DisableTorchFunction():
                return step(*args)
        except _Refused as refused:
            self.refused = self.refused or RuntimeError(str(refused))
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            place = self.stack[-1].path if self.stack else ""
            self.note(place or type(self.model).__name__, None, None,
                      f"{what} could not be recorded: {type(error).__name__}: {lines[0][:200]}", tell=True)
        return None

    def _guarded_hook(self, hook):
        def run(module, *args):
            if _is_dynamo():
                return None
            if threading.get_ident() != self.thread:
                self.in_threads = True
                return None
            self.guarded(type(module).__name__, hook, module, *args)
            return None  # a hook that gave something would replace the model's own input or output

        return run

    # Which modules are running, and with what inputs.

    def _enter_module(self, path):
        def hook(module, args, kwargs):
            tensors = list(_tensors((args, kwargs)))
            if module is self.model:
                self.stack.clear()  # whatever an earlier, failed call left behind
                self.root_calls += 1
            self.look_at_draws()
            self.stack.append(_Frame(module, path, tensors))
            if not self.recording:
                return
            self.ran.setdefault(path, [0, 0])[0] += 1
            if _blind() is not None:
                return
            if module is self.model:
                self._read_arguments(module, args, kwargs)
            elif path.split(".")[-1] == "decoder":
                ids = kwargs.get("input_ids", args[0] if args else None)
                if _is_ids(ids):
                    self.found.setdefault("decoder_tokens", ids.detach().cpu())
            if "torch._dynamo" in sys.modules and not self.has_compiler:
                self.has_compiler = True  # it came while the model ran
                self.cleanup.enter_context(_uncompiled(self.model, self.changed))

        return hook

    def _leave_module(self, module, args, output):
        self.look_at_draws()
        while self.stack and self.stack.pop().module is not module:
            pass
        if module is self.model and not self.stack and not self.every_call:
            self.root_calls = max(self.root_calls, 1) + 1  # the first call is over: nothing after it is recorded

    def look_at_draws(self):
        if self.recording:
            self.draws.look(self.stack[-1].path if self.stack else None)

    @property
    def recording(self):
        return (self.every_call or self.root_calls <= 1) and self.refused is None

    @property
    def watching(self):
        return bool(self.stack) and self.recording and threading.get_ident() == self.thread

    def _read_arguments(self, module, args, kwargs):
        while isinstance(getattr(module, "_orig_mod", None), nn.Module):
            module = module._orig_mod  # compiled
        try:
            named = dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
        except (TypeError, ValueError):
            named = {str(i): arg for i, arg in enumerate(args)}
            named.update(kwargs)
        for name in [name for name, value in named.items() if isinstance(value, dict)]:
            named.update(named.pop(name))  # the **kwargs of forward
        for name in [name for name, value in named.items() if isinstance(value, tuple)]:
            named.update({f"{name}.{i}": value for i, value in enumerate(named.pop(name))})  # its *args
        plain = [name for name, value in named.items() if _is_ids(value)
                 and not re.search(r"mask|label|target_out|type|position|decoder|tgt|trg|valid|length|segment", name)]
        later = [name for name, value in named.items() if _is_ids(value) and re.search(r"decoder_input|tgt|trg", name)
                 and "mask" not in name]
        plain.sort(key=lambda name: name != "input_ids")
        if plain:
            self.found.setdefault("tokens", named[plain[0]].detach().cpu())
        if later:
            self.found.setdefault("decoder_tokens", named[later[0]].detach().cpu())
        names = ["attention_mask", "src_key_padding_mask", "key_padding_mask"]
        names += [name for name in named if name not in names and not re.search(
            r"label|type|position|decoder|tgt|trg|target|segment|cross|head|causal|future|loss|special", name)]
        shape = self.found["tokens"].shape if "tokens" in self.found else None
        for name in names:
            mask = named.get(name)
            if (not isinstance(mask, torch.Tensor) or mask.dim() != 2 or "attention_mask" in self.found
                    or plain and name == plain[0]):
                continue
            real = _padding_mask(name, mask.detach().cpu(), self.found.get("tokens"), shape)
            if real is not None:
                self.found["attention_mask"] = real
                self.found["attention_mask_name"] = name

    # What a softmax or scaled_dot_product_attention does.

    def place(self):
        """The innermost module, but for nn.Softmax, which says nothing about where it stands."""
        frames = [f for f in self.stack if not isinstance(f.module, (nn.Softmax, nn.Softmax2d))] or self.stack
        return frames[-1]

    def wants(self, frame):
        return self.only is None or self.only.search(frame.name(self.model))

    def rejects(self, x, mark, fewest=3):
        """Why [..., query, key] scores are not attention; None when they are."""
        if not x.is_floating_point() or not fewest <= x.dim() <= 5:
            return "not a float tensor of 3 to 5 dimensions"
        if mark.origin == "weights":
            return "its input comes from a layer with weights, not from queries and keys"
        lengths = {n for frame in self.stack for n in frame.lengths}
        if x.shape[-2] not in lengths:
            return "its last dimension but one is no sequence length"
        if x.shape[-1] not in lengths and mark.origin != "product":
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

    def rows(self, x, axes=(-2, -1)):
        """Scores or a pattern → ([head, query, key] of the kept row, how many rows)."""
        x = _ordered(x, axes)
        if x.dim() == 2:
            x = x[None, None]
        elif x.dim() == 3:
            batch = self.batch_size(x.shape[0], x.shape[1])
            x = x.unflatten(0, (batch, -1))
        elif x.dim() > 4:
            x = x.flatten(1, -3)
        if self.row >= x.shape[0] > 1:
            raise _Refused(f"row {self.row} was asked for, and the batch has {x.shape[0]}")
        return x[min(self.row, x.shape[0] - 1)], x.shape[0]

    def reserve(self, frame, shape, what, times=1):
        size = 4 * math.prod(shape) * times
        if self.bytes + size > self.max_bytes:
            raise _Refused(
                f"{frame.name(self.model)}: {what} of shape {list(shape)} take {_readable(size)} on top of "
                f"{_readable(self.bytes)} already captured, more than max_bytes = {_readable(self.max_bytes)}; "
                "use a shorter prompt, only=… for some modules, scores=False, or a larger max_bytes")
        self.bytes += size

    def copy(self, row):
        return row.detach().to("cpu", torch.float32, copy=True).contiguous()  # [head, query, key]

    def add(self, frame, info, shape):
        name = frame.name(self.model)
        record = _Record(self, name, {"module": name, "call": self.n_calls.get(name, 0), **info,
                                      "training": bool(frame.module.training)})
        tokens = self.found.get("tokens")
        n_queries = shape[-2]
        if tokens is not None and tokens.dim() == 2 and tokens.shape[0] != tokens.shape[1] and n_queries in tokens.shape:
            record.info["token_axis"] = tuple(tokens.shape).index(n_queries)
        self.n_calls[name] = record.info["call"] + 1
        self.records.append(record)
        for above in self.stack:
            self.ran.setdefault(above.path, [1, 0])[1] += 1
        return record

    def keep(self, record, scores, pattern):
        """Scores and pattern of a record; scores that a finite mask hides become -inf."""
        value = _hide_masked(scores, pattern, record.info["axis"] == "keys") if scores is not None else None
        if value is not None:
            record.info["mask_value"] = value
        record.scores, record.pattern = scores if self.keep_scores else None, pattern

    def softmax(self, args, kwargs, y):
        x = args[0] if args else kwargs.get("input", kwargs.get("self"))
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            return
        dim = kwargs["dim"] if "dim" in kwargs else args[1] if len(args) > 1 else None
        if dim is None:  # what torch takes when none is given; rarely what was meant
            dim = 0 if x.dim() in (0, 1, 3) else 1
        if not isinstance(dim, int):
            return
        dim = dim % x.dim() if x.dim() else 0
        frame, mark = self.place(), _mark(x)
        earlier = mark.record
        if earlier is not None and earlier.owner is self:
            # A softmax of a pattern: one attention with two softmaxes, whose scores went into the first.
            earlier.after.append("softmax")
            earlier.info.setdefault("dims", [earlier.info["dim"]]).append(dim)
            earlier.pattern = self.copy(self.rows(y, mark.axes)[0])
            self.set_mark(y, _Mark(mark.origin, mark.axes, mark.steps + ("softmax",), record=earlier))
            return
        if x.dim() == 2 and mark.origin == "product" and y.shape == x.shape:
            # one head without a batch: kept until it is multiplied by values, since logits have this shape as well
            scores = self.copy(self.rows(x, mark.axes)[0]) if self.keep_scores else None
            self.set_mark(y, _Mark("product", mark.axes, mark.steps + ("softmax",), scores, None, _dtype(x)))
            return
        why = self.rejects(_ordered(x, mark.axes), mark)
        if why is not None:
            self.skip(frame, x, dim, why)
            return
        if not self.wants(frame):
            return
        row, n_rows = self.rows(x, mark.axes)
        self.reserve(frame, row.shape, "scores and pattern" if self.keep_scores else "pattern", 1 + self.keep_scores)
        record = self.add(frame, {
            "kind": "softmax", "dim": dim, "axis": _axis(x.dim(), dim, n_rows, mark.axes), "shape": list(x.shape),
            "dtype": _dtype(y), "scores_dtype": _dtype(x), "dropout_p": 0.0, "is_causal": None, "has_mask": None,
            "scale": None}, row.shape)
        self.keep(record, self.copy(row), self.copy(self.rows(y, mark.axes)[0]))
        self.set_mark(y, _Mark(None, mark.axes, (), record=record))

    def skip(self, frame, x, dim, why, tell=False):
        frame = frame or self.place()
        self.note(frame if isinstance(frame, str) else frame.name(self.model), x, dim, why, tell)

    def note(self, name, x, dim, why, tell):
        entry = {"module": name, "shape": None if x is None else [int(n) for n in x.shape], "dim": dim, "why": why}
        if tell:
            entry["tell"] = True
        if len(self.skipped) < 64:
            self.skipped.setdefault((name, why), entry)

    def fused(self, name, func, args, kwargs, out):
        """A call of scaled_dot_product_attention, or of one of the kernels behind it."""
        frame = self.place()
        if not self.wants(frame):
            return
        out = next(_tensors(out))
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        if name != "scaled_dot_product_attention":
            names = _argument_names(name)
        given = dict(zip(names, args), **kwargs)
        query, key = given["query"], given["key"]
        mask = given.get("attn_mask", given.get("attn_bias"))
        is_causal, scale = bool(given.get("is_causal", False)), given.get("scale")
        if query.is_nested or not 2 <= query.dim() <= 5:
            self.skip(frame, query, -1, "nested, or not of 2 to 5 dimensions", tell=True)
            return
        if hasattr(mask, "_materialize"):  # torch.nn.attention.bias.CausalBias
            mask = mask._materialize(query.device)
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        full = query.shape[:-1] + (key.shape[-2],)

        def scored(q, k, n_rows):
            scores = (q.detach().float() * scale) @ k.detach().float().transpose(-1, -2)  # [head, query, key]
            if mask is not None:
                bias = self.rows(mask.detach().expand(full))[0]
                scores = scores.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else scores + bias.float()
            if is_causal:
                # torch aligns its causal mask at the top left, also when keys outnumber queries
                visible = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device).tril()
                scores = scores.masked_fill(~visible, -math.inf)
            return scores

        info = {"kind": "sdpa", "dropout_p": float(given.get("dropout_p", 0.0) or 0.0), "is_causal": is_causal,
                "has_mask": mask is not None, "scale": scale}
        if name != "scaled_dot_product_attention":
            info["kernel"] = name
        if is_causal and query.shape[-2] != key.shape[-2]:
            info["causal_alignment"] = "top-left"
        self.computed(frame, query, key, out, full, info, scored)

    def computed(self, frame, query, key, out, full, info, scored):
        """Records a kernel from its arguments: scores and pattern are computed here, in float32."""
        q, n_rows = self.rows(query)  # [head, query, d_head]
        k = self.rows(key)[0]  # [kv_head, key, d_head]
        shape = (q.shape[0], q.shape[1], k.shape[1])
        self.reserve(frame, shape, "scores and pattern" if self.keep_scores else "pattern", 1 + self.keep_scores)
        with torch.no_grad(), _no_autocast(query.device.type):
            if k.shape[0] != q.shape[0]:
                k = k.repeat_interleave(q.shape[0] // k.shape[0], dim=0)
            scores = scored(q, k, n_rows)
            pattern = scores.softmax(-1)
            hidden = (scores == -math.inf).all(-1)  # [head, query]
            if hidden.any():
                # What a row that sees no key gives depends on version and kernel: zeros or NaN. The output tells.
                zero = torch.isfinite(self.rows(out.detach())[0]).all(-1) & hidden
                pattern = pattern.masked_fill(zero.unsqueeze(-1), 0.0)
        kind = info.pop("kind")
        record = self.add(frame, {"kind": kind, "dim": query.dim() - 1, "axis": "keys", "shape": list(full),
                                  "dtype": _dtype(query), "scores_dtype": _dtype(query), **info}, shape)
        self.keep(record, self.copy(scores), self.copy(pattern))

    def flex(self, args, kwargs, out):
        """A call of flex_attention, whose scores torch's own reference computes from the same arguments."""
        from torch._higher_order_ops.flex_attention import _math_attention_inner

        frame = self.place()
        if not self.wants(frame):
            return
        names = ("query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options", "score_mod_other_buffers",
                 "mask_mod_other_buffers")
        given = dict(zip(names, args), **kwargs)
        query, key = given["query"], given["key"]
        n_rows = query.shape[0]
        if self.row >= n_rows > 1:
            raise _Refused(f"row {self.row} was asked for, and the batch has {n_rows}")
        if key.shape[1] != query.shape[1]:
            key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        full = query.shape[:-1] + (key.shape[-2],)
        info = {"kind": "flex", "dropout_p": 0.0, "is_causal": None, "has_mask": True, "scale": float(given["scale"])}

        def scored(*_):
            # the whole batch, since score_mod may ask which row it is in
            extra = [given.get(name) or () for name in names[7:]]
            _, scores = _math_attention_inner(query.detach(), key.detach(), key.detach(), given["score_mod"],
                                              given["block_mask"], given["scale"], given["kernel_options"], *extra)
            return self.rows(scores.float())[0]

        self.computed(frame, query, key, next(_tensors(out)), full, info, scored)

    # Where a tensor comes from, and what becomes of scores and patterns. Kept as an attribute of the tensors themselves, so
    # that it goes when the tensors go.

    def set_mark(self, y, mark):
        if not hasattr(y, "_attnscope_mark"):
            self.marked.append(weakref.ref(y))
            if len(self.marked) > 4096:
                self.marked = [reference for reference in self.marked if reference() is not None]
        y._attnscope_mark = mark

    def is_weight(self, x):
        return isinstance(x, nn.Parameter) or _mark(x).origin == "parameter" or _address(x) in self.weights

    def snapshot(self, x, mark, frame):
        """The mark of scores, with a copy of them: the next step is the first that is no longer a score."""
        ordered = _ordered(x, mark.axes)
        if not self.keep_scores or self.rejects(ordered, mark, fewest=2) is not None or not self.wants(frame):
            return mark
        row = self.rows(x, mark.axes)[0]
        before = self.bytes
        self.reserve(frame, row.shape, "scores")
        self.bytes = before  # counted when it becomes a record
        return _Mark(mark.origin, mark.axes, mark.steps, self.copy(row), None, _dtype(x), p=mark.p)

    def before(self, name, args, kwargs):
        """{id of a tensor of scores: its mark with a copy of them}, when the next step turns them into something else."""
        if name in SILENT or name in REDUCTIONS or name in PRODUCT or name in COMPARISONS or name in VIEWS:
            return None
        inputs = list(_tensors((args, kwargs)))
        kept = {}
        for x in inputs:
            mark = _mark(x)
            if not mark.is_scores:
                continue
            since = mark.steps[mark.at:]
            if mark.scores is not None and not (name in ("exp", "exp2") and set(since) - SHIFTS):
                continue
            is_shift = name in ("sub", "rsub") and any(
                _mark(other).is_reduced and other.shape[-1:] == (1,) for other in inputs)
            if name in SCORE_STEPS and not is_shift and not (name == "clamp" and _is_relu(args, kwargs)):
                continue
            kept[id(x)] = self.snapshot(x, mark, self.place())
        return kept

    def follow(self, name, func, args, kwargs, out, kept):
        inputs = list(_tensors((args, kwargs)))
        first = next(_tensors(out), None)
        if not inputs or first is None:
            return
        marks = [_mark(x) for x in inputs]
        if name in PRODUCT and any(mark.record is not None or mark.is_scores for mark in marks):
            follows = self.used(name, args, kwargs, first)
            if follows is not None:
                self.set_mark(first, follows)
                return
            if any(mark.record is not None for mark in marks):
                if hasattr(first, "_attnscope_mark"):
                    self.set_mark(first, NO_MARK)
                return  # attention's output, no longer scores
        if any(mark.record is not None for mark in marks):
            self.follow_pattern(name, func, inputs, args, kwargs, first)
            return
        origins = [mark.origin for mark in marks]
        axes, steps = (-2, -1), ()
        if name in WEIGHTED or name in PRODUCT and any(self.is_weight(x) for x in inputs):
            if "product" in origins and first.dim() == 4:
                origin = "product"  # heads mixed before the softmax: still scores
            else:
                # additive attention ends in a layer of width 1, whose output is scores
                origin = "weights" if first.shape[-1:] != (1,) and first.dim() else None
        elif name in PRODUCT:
            # one that sums over nothing is an outer product: angles of positions by frequencies
            origin = "product" if _sums_over_something(name, args, kwargs) else None
            if name == "einsum":
                axes = _einsum_axes(args) or axes
        elif name in ("cdist", "cosine_similarity", "tensordot", "inner"):
            origin = "product"
        elif name == "mul" and len(inputs) == 2 and first.numel() > max(x.numel() for x in inputs) > 1 \
                and min(x.numel() for x in inputs) > 1 and not any(self.is_weight(x) for x in inputs) \
                and not any(mark.origin == "product" for mark in marks):
            origin = "outer"  # every query with every key, before the sum over their width
        elif name == "sum" and "outer" in origins and first.dim() == inputs[0].dim() - 1 >= 2:
            origin = "product"
        elif all(self.is_weight(x) for x in inputs):
            origin = "parameter"
        else:
            origin = next((o for o in ("product", "weights") if o in origins), None)
        for y in _tensors(out):
            mark = next((m for m in marks if m.is_scores), None) if origin == "product" else None
            if mark is None:
                if origin is not None or hasattr(y, "_attnscope_mark"):
                    self.set_mark(y, _Mark(origin, axes, steps, outer="outer" in origins))
                continue
            x = next(x for x, m in zip(inputs, marks) if m is mark)
            self.set_mark(y, self.next_mark(name, func, args, kwargs, x, (kept or {}).get(id(x), mark), y))

    def next_mark(self, name, func, args, kwargs, x, mark, y):
        """What scores are after one more step."""
        axes = _moved_axes(name, args, kwargs, x, mark.axes, y)
        if axes is None or not y.is_floating_point():
            return _Mark("product", reduced=True)
        if name in REDUCTIONS and y.shape != x.shape:
            return _Mark("product", axes, mark.steps + (name,), reduced=True)
        steps = mark.steps if name in VIEWS or len(mark.steps) > 48 else mark.steps + (name,)
        kept = _Mark("product", axes, steps, mark.scores, None, mark.dtype, p=mark.p, at=mark.at,
                     outer=mark.is_outer)
        if "dropout" in name:
            kept.p = _dropout(args, kwargs)
        return kept

    def follow_pattern(self, name, func, inputs, args, kwargs, y):
        x = next((x for x in inputs if _mark(x).record is not None), None)
        if x is None or not y.is_floating_point():
            return
        mark = _mark(x)
        record = mark.record
        if y is x:  # written in place
            if func.__name__.endswith("_"):
                record.after.append(name)
            return
        axes = _moved_axes(name, args, kwargs, x, mark.axes, y)
        if axes is None:
            return
        before, after = _ordered(x, mark.axes).shape, _ordered(y, axes).shape
        if name == "getitem" and after[:-1] == before[:-1] and 0 < after[-1] < before[-1]:
            # A learned sink is a key column added before the softmax and cut off after it: cut it from the scores too.
            n_cut, begins = before[-1] - after[-1], y.data_ptr() == x.data_ptr()
            ends = y.data_ptr() == x.data_ptr() + n_cut * x.stride(-1) * x.element_size()
            if axes != (-2, -1) or n_cut > 4 or not (begins or ends):
                return  # a part of it: some of the keys, for a product of their own
            if record.scores is not None:
                record.sinks = record.scores.narrow(-1, after[-1] if begins else 0, n_cut).contiguous()
                record.scores = record.scores.narrow(-1, 0 if begins else n_cut, after[-1]).contiguous()
            record.pattern = self.copy(self.rows(y, axes)[0])
            record.info["sink_columns"] = n_cut
        elif after[-2:] != before[-2:] or y.numel() != x.numel():
            return
        elif "dropout" in name:
            p = _dropout(args, kwargs)
            if p:
                record.info["dropout_p"] = p
                record.after.append("dropout")
        elif name not in VIEWS:
            record.after.append(name)
        self.set_mark(y, _Mark(None, axes, (), record=record))

    def used(self, name, args, kwargs, out):
        """A product with a pattern in it: the pattern is what it is now, and its keys are the axis that is summed over.

        Gives the mark of a product that leaves queries and keys as they are: one that mixes heads.
        """
        for x, other, summed, axes_after in _operands(name, args, kwargs):
            mark = _mark(x)
            record = mark.record
            if record is None and not mark.is_scores or record is not None and record.owner is not self:
                continue
            query, key = mark.axes
            if summed is not None and key - x.dim() * (key >= 0) not in summed:
                if query not in summed:
                    kept = None if axes_after is None or other is None or other.dim() != 2 else axes_after(query, key)
                    if kept is None:
                        continue
                    if record is not None:
                        record.after.append("mix")
                    return _Mark(mark.origin, kept, mark.steps + ("mix",), mark.scores, record, mark.dtype, p=mark.p)
                query, key = key, query
            if record is None:
                self.add_written_out(x, other, mark, (query, key))
                continue
            row = self.rows(x, (query, key))[0]
            if (query, key) != mark.axes:
                # the scores were laid out as [key, query]: what was thought a query is a key
                record.scores = None if record.scores is None else record.scores.transpose(-1, -2).contiguous()
                record.pattern = record.pattern.transpose(-1, -2).contiguous()
                swapped = {"keys": "queries", "queries": "keys"}
                record.info["axis"] = swapped.get(record.info["axis"], record.info["axis"])
                record.info["transposed"] = True
            if row.shape == record.pattern.shape:
                record.pattern = self.copy(row)
                record.info["dtype"] = _dtype(x)
            self.set_mark(x, NO_MARK)
        return None

    def add_written_out(self, x, other, mark, axes):
        """Attention without a softmax call: scores that went through anything else and are now multiplied by values."""
        frame = self.place()
        steps = [step for step in mark.steps if step not in SCORE_STEPS]
        is_linear = not steps and mark.scores is None
        ordered = _ordered(x, axes)
        if other is None or self.is_weight(other) or not self.wants(frame):
            return
        if is_linear and (axes != mark.axes or mark.is_outer or x.dim() > 4):
            return  # the state of a recurrence, rather than attention
        if not mark.steps and axes != mark.axes or "softmax" in mark.steps and x.dim() > 2:
            return
        lengths = {n for above in self.stack for n in above.lengths}
        if self.rejects(ordered, mark, fewest=2) is not None or is_linear and ordered.shape[-1] not in lengths:
            return
        row, n_rows = self.rows(x, axes)
        pattern = self.copy(row)
        scores = pattern.clone() if is_linear else mark.scores
        if scores is not None and axes != mark.axes:
            scores = scores.transpose(-1, -2).contiguous()
        if scores is not None and scores.shape != pattern.shape:
            scores = None
        self.reserve(frame, row.shape, "scores and pattern" if scores is not None else "pattern", 1 + (scores is not None))
        dim = {"keys": axes[1], "queries": axes[0]}
        axis = _summed_axis(pattern)
        record = self.add(frame, {
            "kind": "linear" if is_linear else "written-out", "dim": x.dim() + dim[axis] if axis in dim else None, "axis": axis,
            "shape": list(x.shape), "dtype": _dtype(x), "scores_dtype": mark.dtype or _dtype(x), "dropout_p": mark.p,
            "is_causal": None, "has_mask": None, "scale": None, "steps": list(mark.steps)}, row.shape)
        self.keep(record, scores, pattern)

    # The file.

    def _note_unseen(self):
        """Modules that ran, are called attention and hold projections, and in which nothing was seen."""
        self.records = [record for record in self.records if record.pattern is not None]  # or its recording failed
        for record in self.records:
            if record.scores is not None and record.scores.shape != record.pattern.shape:
                record.scores = None
        if self.in_threads:
            self.skip(type(self.model).__name__, None, None, "calls in other threads are not recorded", tell=True)
        n_compiled = _n_compiled()
        if n_compiled > self.n_compiled and not any(r.info["kind"] == "flex" for r in self.records):
            self.skip(type(self.model).__name__, None, None, "code was compiled while the capture was on: what runs compiled "
                      "cannot be seen; capture again now, or compile the model before", tell=True)
        scripted = []
        for path, module in self.model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                if not any(path.startswith(above) for above in scripted):
                    scripted.append(path + "." if path else "")
                    self.skip(path or type(self.model).__name__, None, None, "TorchScript: nothing inside is seen", tell=True)
                continue
            if not ATTENTION.search(type(module).__name__) and not ATTENTION.search(path.rpartition(".")[2]):
                continue
            calls, seen = self.ran.get(path, (0, 0))
            inner = [child for child in module.modules() if child is not module]
            n_projections = sum(1 for child in inner if isinstance(child, nn.Linear) or type(child).__name__ == "Conv1D")
            nested = any(ATTENTION.search(type(child).__name__) for child in inner)
            if calls and not seen and (n_projections >= 2 or getattr(module, "in_proj_weight", None) is not None) \
                    and not nested and (self.only is None or self.only.search(path)):
                self.skip(path, None, None, "it looks like attention and ran, and no attention was seen in it: a kernel called "
                          "directly, or attention that makes no matrix of queries by keys", tell=True)

    def _write(self):
        told = any(entry.get("tell") for entry in self.skipped.values())
        if not self.records and not (told and self.root_calls):
            skipped = "; ".join(f"{s['module']} {s['shape']}: {s['why']}" for s in self.skipped.values())
            raise RuntimeError(
                f"no attention was captured in {type(self.model).__name__}"
                + ("" if self.root_calls else ": the model was not called")
                + (f" in the modules that only={self.only.pattern!r} finds" if self.only else "")
                + (f"; softmaxes passed over: {skipped}" if skipped else "")
                + "; kernels called directly and attention without a matrix of queries by keys cannot be seen")
        tensors = {}
        for name, records in _names(self.records).items():
            for what in ("pattern", "scores", "sinks"):
                parts = [getattr(record, what) for record in records]
                if all(part is not None for part in parts):
                    tensors[f"{name}.{what}"] = parts[0] if len(parts) == 1 else torch.cat(parts)  # [head, query, key]
            for head, record in enumerate(records):
                record.info = {"name": name, **({"head": head} if len(records) > 1 else {}), **record.info}
                if record.after:
                    record.info["after"] = record.after
        lengths = [n for record in self.records for n in record.pattern.shape[1:]]
        labels = {}
        for name in ("tokens", "decoder_tokens", "attention_mask"):
            given = self.given.get(name)
            row = self._position_row(self.found.get(name) if given is None else given, lengths)
            if row is not None and (name != "decoder_tokens" or any(key.startswith("decoder.") for key in tensors)):
                tensors[name] = row
                if self.tokenizer is not None and name != "attention_mask":
                    labels[name.replace("tokens", "labels")] = _labels(self.tokenizer, row.tolist())
        calls = [record.info for record in self.records]
        axes, dtypes = {call["axis"] for call in calls}, sorted({call["dtype"] for call in calls})
        dropped = max((call["dropout_p"] for call in calls), default=0.0)
        is_causal = {str(call["is_causal"]).lower() for call in calls if call["is_causal"] is not None}
        tokens = self.found.get("tokens") if self.given["tokens"] is None else torch.as_tensor(self.given["tokens"])
        metadata = {
            "attnscope.capture": "1", "attnscope.source": _source(self.model), "attnscope.calls": json.dumps(calls),
            "attnscope.dtype": ",".join(dtypes) or None,
            "attnscope.skipped": json.dumps([{k: v for k, v in s.items() if k != "tell"} for s in self.skipped.values()])
            if self.skipped else None,
            "attnscope.changed": json.dumps(self.changed) if self.changed else None,
            "attnscope.softmax_axis": axes.pop() if len(axes) == 1 else None,
            "attnscope.dropout_p": repr(dropped) if dropped else None,
            "attnscope.training": _said({str(call["training"]).lower() for call in calls}),
            "attnscope.random": self.draws.told(self.model),
            "attnscope.is_causal": _said(is_causal),
            "attnscope.sinks": "1" if any(call.get("sink_columns") for call in calls) else None,
            "attnscope.tokens_shape": ",".join(map(str, tokens.shape)) if tokens is not None else None,
            "attnscope.attention_mask_name": self.found.get("attention_mask_name")}
        for name, texts in labels.items():
            metadata["attnscope." + name] = json.dumps(texts, ensure_ascii=False)
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


# --------------------------------------------------------------------------------------------------------- following


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


class _Refused(Exception):
    """What was asked for cannot be done: told as an error when the block ends, not inside the forward call."""


class _Mark:
    """What is known of a tensor: where it comes from, and which scores or pattern it is."""

    __slots__ = ("origin", "axes", "steps", "scores", "record", "dtype", "is_reduced", "p", "at", "is_outer")

    def __init__(self, origin=None, axes=(-2, -1), steps=(), scores=None, record=None, dtype=None, reduced=False, p=0.0,
                 at=None, outer=False):
        self.origin = origin  # "product" of two activations, "outer" product, "weights", "parameter"
        self.axes = axes  # of queries and of keys, from the end
        self.steps = steps  # since the product
        self.scores = scores  # [head, query, key], copied before the first step that is not a step of scores
        self.record = record
        self.dtype = dtype  # of the scores
        self.is_reduced = reduced  # a maximum or a sum of scores
        self.p = p  # of dropout
        self.is_outer = outer  # made by a product and a sum, not by a matrix product
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


def _mark(x):
    return getattr(x, "_attnscope_mark", NO_MARK)


# -------------------------------------------------------------------------------------------------------------- axes


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


def _hide_masked(scores, pattern, over_keys):
    """Writes -inf where a finite value was added or put as a mask; gives that value, or None. // [head, query, key]

    Masked cells lie far below all others, close to one value or twice that, and their probability is exactly 0; in a row
    of which nothing else is left, it is whatever the row gave.
    """
    low = (scores <= -5000) & torch.isfinite(scores)
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

    return [f"<{token}>" if found is None else str(found) for token, found in ((token, text(token)) for token in ids)]


def _argument_names(name):
    """Of one of the kernels behind scaled_dot_product_attention."""
    schema = getattr(torch.ops.aten, name).default._schema
    return [argument.name for argument in schema.arguments]


def _without_override(func):
    scope = dict(func.__globals__, has_torch_function=lambda _: False)
    whole = types.FunctionType(func.__code__, scope, func.__name__, func.__defaults__, func.__closure__)
    whole.__kwdefaults__ = func.__kwdefaults__
    return whole


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


# ----------------------------------------------------------------------------------------------------------- probing


def probe(model, ids, path, *, mask="causal", pad_id=None, n_pads=3, n_cuts=8, documents=None, call=None, seed=0,
          max_bytes=2 << 30, step=None, positions=None):
    """Changes the input of `model`, compares what every module gives, and writes how far each moved to `path`.

    ids         [position] or [batch, position] token ids; the first row is used, whole: give no padding
    mask        "causal" runs the tests on later tokens, length, cache and labels; "bidirectional" or "none" leaves them out
    pad_id      the token that padding is made of; the model's config knows it in transformers, else 0
    documents   starts of the documents packed in `ids`, e.g. [0, 17]: each must not notice those before it
    call        how to run the model when model(ids) is not it: call(model, ids, **kw), where kw may hold attention_mask
                and position_ids if call takes them. For an encoder–decoder model, for instance:
                call=lambda m, ids: m(input_ids=source, decoder_input_ids=ids)
    step        how to run the model on with a cache when it does not take past_key_values and use_cache:
                step(model, ids, cache) gives the new cache; cache is None at the first call
    positions   "none" for a model that is meant to have no positions

    The tests, each with the largest |difference| per module:
        repeat      the prompt again: dropout that is still on, and anything else that is not deterministic
        future      other tokens later on (causal models)
        length      one token less, and half of them (causal models)
        padding     pads on the left and on the right; rows of unequal length padded together ("unequal")
        batch       the row between two others
        documents   other tokens in earlier documents
        order       earlier tokens shuffled: here the last position *has* to move
        cache       the prompt in parts, with a cache, against the whole prompt (causal models)
        labels      losses of each output against the token it stands on, the next one, and the one after (causal models)

    The model runs in eval mode, without gradients, and gets its own mode and the random state back afterwards. Every run
    starts from one random state but the second of `repeat`. Differences are |a - b| in float32; -1 stands for a module
    whose output could not be compared in that case.
    """
    _check_choice("mask", mask, ("causal", "bidirectional", "none"))
    _check_choice("positions", positions, (None, "none"))
    target = _checked_path(path)
    ids = torch.as_tensor(ids)
    ids = (ids if ids.dim() == 1 else ids[0]).detach().cpu().to(torch.int64)  # [position]
    n = ids.shape[0]
    if n < 3:
        raise ValueError(f"a probe needs at least 3 tokens, and got {n}")
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), _plain_pytorch(model, attention=False), _own_random(model):
            tensors, metadata = _Probe(model, ids, call, seed, max_bytes, pad_id, step).run(mask, n_pads, n_cuts, documents)
    finally:
        for module, training in modes.items():
            module.training = training
    metadata["attnscope.positions"] = positions
    _save(target, tensors, metadata)


class _Probe:
    def __init__(self, model, ids, call, seed, max_bytes, pad_id, step=None):
        self.model, self.ids, self.call, self.max_bytes, self.step = model, ids, call, max_bytes, step
        self.random = torch.Generator().manual_seed(seed)
        self.random_orders = torch.Generator().manual_seed(seed + 1)
        weight = next(model.parameters(), None)
        self.device = weight.device if weight is not None else torch.device("cpu")
        self.dtypes = set()  # of what modules give
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

    def forward(self, ids, shapes_only=False, seed=0, **inputs):
        """Runs [batch, position] ids; {module: [float outputs]} in the order in which the modules finish."""
        run = self.call if self.call else (lambda model, ids, **kw: model(ids, **kw))
        inputs = {name: value.to(self.device) if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
        return self.observed(lambda: run(self.model, ids.to(self.device), **inputs), shapes_only, seed)[0]

    def observed(self, run, shapes_only=False, seed=0):
        """What every module gives while `run` runs, and what `run` gives."""
        outputs, spent, hooks = {}, 0, []

        def keep(path):
            def hook(module, args, output):
                nonlocal spent
                kept = []
                for tensor in _tensors(output):
                    if not tensor.is_floating_point():
                        continue
                    self.dtypes.add(_dtype(tensor))
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
            torch.manual_seed(seed)
            given = run()
        finally:
            for remove in hooks:
                remove()
        return outputs, given

    def others(self, ids, random=None):
        """As many tokens, each different from the one that it replaces."""
        drawn = self.pool[torch.randint(len(self.pool), ids.shape, generator=random or self.random)]
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
        noise = max((m / s for m, s in zip(again, sizes) if m > 0 and s > 0), default=0.0)
        redrawn = self.moved(base, self.forward(ids[None], seed=1), 0, n)
        drawn = max((m / s for m, s in zip(redrawn, sizes) if m > 0 and s > 0), default=0.0)
        self.output = self.output_of(base)
        tensors = {"tokens": ids, "probe.repeat.size": torch.tensor(sizes),
                   "probe.repeat.moved": torch.tensor([[max(pair)] for pair in zip(again, redrawn)])}  # [module, 1]
        metadata = {"attnscope.probe": "1", "attnscope.mask": mask, "attnscope.source": _source(self.model),
                    "attnscope.modules": json.dumps(names), "attnscope.noise": repr(float(noise)),
                    "attnscope.deterministic": "true" if max(again + redrawn) <= 0 else "false",
                    # the coarsest that any module gives, which says how far rounding may move things
                    "attnscope.dtype": next((d for d in ("bfloat16", "float16") if d in self.dtypes), "float32"),
                    "attnscope.output": self.output,
                    "attnscope.mixer": self.mixer(base)}
        # two passes from one random state differ by what is kept between calls; from two states also by dropout
        is_random, is_noisy = max(drawn, noise) > 1e-4, noise > 1e-4
        causal_only = {"future", "length", "cache", "labels"}
        # a run of another shape draws other random numbers, which would pass for a movement
        of_other_shape = {"length", "padding", "unequal", "batch", "cache"}
        for test in ("future", "length", "padding", "unequal", "batch", "order", "cache", "labels"):
            if test in causal_only and mask != "causal":
                metadata[f"attnscope.{test}.skipped"] = f"the mask is {mask}: earlier positions may see later ones"
                continue
            if test in of_other_shape and is_random or is_noisy:
                metadata[f"attnscope.{test}.skipped"] = (
                    "two passes over one prompt differ in eval mode: nothing can be compared")
                continue
            try:
                getattr(self, test)(base, sizes, {"future": n_cuts}.get(test, n_pads), tensors, metadata)
            except Exception as error:  # a model that takes no batch is no reason to lose the rest
                if "max_bytes" in str(error) or test == "future":
                    raise
                lines = str(error).strip().splitlines() or [""]
                metadata[f"attnscope.{test}.skipped"] = f"{type(error).__name__}: {lines[0]}"
        if documents is not None and is_noisy:
            metadata["attnscope.documents.skipped"] = "two passes over one prompt differ in eval mode: nothing can be compared"
        elif documents is not None:
            starts = [int(start) for start in documents]
            columns = []
            for start, end in zip(starts[1:], starts[2:] + [n]):
                changed = torch.cat([self.others(ids[:start]), ids[start:]])
                columns.append(self.moved(base, self.forward(changed[None]), start, end - start))
            tensors["probe.documents.moved"] = torch.tensor(columns).T.contiguous()  # [module, document after the first]
            tensors["probe.documents.size"] = torch.tensor(sizes)
            metadata["attnscope.documents"] = ",".join(map(str, starts))
        return tensors, metadata

    def output_of(self, base):
        """The last module that gives something at every position: the model itself, as a rule."""
        return self.names[-1]

    def mixer(self, base):
        """The first module whose last position depends on the tokens before it: the end of the first attention, as a rule."""
        changed = torch.cat([self.others(self.ids[:-1], self.random_orders), self.ids[-1:]])
        self.content = self.moved(base, self.forward(changed[None]), self.n - 1, 1)
        sizes = self.sizes(base)
        other = self.forward(self.others(self.ids, self.random_orders)[None])
        self.reads = [m > 1e-4 * s for m, s in zip(self.moved(base, other, 0, self.n), sizes)]  # or positions alone
        return next((name for name, m, s in zip(self.names, self.content, sizes) if m > 1e-4 * s), None)

    def future(self, base, sizes, n_cuts, tensors, metadata):
        n = self.n
        n_cuts = min(n_cuts, n - 1)
        cuts = sorted({round(i * (n - 2) / max(n_cuts - 1, 1)) for i in range(n_cuts)})
        last = self.output
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

    def length(self, base, sizes, _, tensors, metadata):
        """The first tokens alone against the whole prompt."""
        lengths = sorted({self.n - 1, max(self.n // 2, 1)}, reverse=True)
        columns = [self.moved(base, self.forward(self.ids[None, :length]), 0, length, total=length) for length in lengths]
        tensors["probe.length.moved"] = torch.tensor(columns).T.contiguous()  # [module, case]
        tensors["probe.length.size"] = torch.tensor(sizes)
        metadata["attnscope.length.cases"] = json.dumps([f"{length} of {self.n} tokens" for length in lengths])

    def masked(self, rows, left):
        """Rows of ids padded to one length, with their mask: outputs, and where each row begins."""
        longest = max(len(row) for row in rows)
        ids = torch.full((len(rows), longest), self.pad_id)
        mask = torch.zeros(len(rows), longest, dtype=torch.int64)
        starts = [longest - len(row) if left else 0 for row in rows]
        for i, (row, start) in enumerate(zip(rows, starts)):
            ids[i, start:start + len(row)], mask[i, start:start + len(row)] = row, 1
        return self.forward(ids, **self.mask_inputs(mask)), starts, longest

    def mask_inputs(self, mask):
        inverted = not self.accepts("attention_mask")
        inputs = {"src_key_padding_mask": mask == 0} if inverted else {"attention_mask": mask}
        if self.accepts("position_ids"):
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        return inputs

    def takes_mask(self, test, metadata):
        if self.accepts("attention_mask") or self.accepts("src_key_padding_mask"):
            return True
        metadata[f"attnscope.{test}.skipped"] = "neither call nor forward takes an attention_mask" if self.call else (
            "the model's forward takes no attention_mask")
        return False

    def shifts_positions(self, columns, sizes):
        """Whether pads on the left move something before any token meets another: learned positions that the model counts
        from the first pad on, as models do that are meant to be padded on the right."""
        if self.accepts("position_ids"):
            return False
        content = self.sizes_of(self.content, sizes)
        for reads, moved, own in zip(self.reads, self.sizes_of(columns, sizes), content):
            if reads and moved > 1e-4:
                return own <= 1e-4
        return False

    @staticmethod
    def sizes_of(moved, sizes):
        return [m / s if s > 0 else max(m, 0.0) for m, s in zip(moved, sizes)]

    def padding(self, base, sizes, n_pads, tensors, metadata):
        if not self.takes_mask("padding", metadata):
            return

        def run(left, right):
            pads = torch.tensor([self.pad_id])
            ids = torch.cat([pads.repeat(left), self.ids, pads.repeat(right)])[None]
            mask = torch.tensor([0] * left + [1] * self.n + [0] * right)[None]
            return self.forward(ids, **self.mask_inputs(mask))

        plain = run(0, 0)  # padded against unpadded, both with a mask: a mask alone may choose another kernel
        sizes = self.sizes(plain)
        cases = {f"left {n_pads}": (n_pads, 0), f"right {n_pads}": (0, n_pads)}
        columns = {name: self.moved(plain, run(*case), 0, self.n, left=case[0], total=self.n + n_pads)
                   for name, case in cases.items()}
        # without them a model with learned absolute positions rightly moves under left padding
        metadata["attnscope.padding.positions"] = "mask" if self.accepts("position_ids") else "model"
        if self.shifts_positions(columns[f"left {n_pads}"], sizes):
            del columns[f"left {n_pads}"]
            metadata["attnscope.padding.left"] = "not compared: the model counts positions from the first pad on"
        tensors["probe.padding.moved"] = torch.tensor(list(columns.values())).T.contiguous()  # [module, case]
        tensors["probe.padding.size"] = torch.tensor(sizes)
        metadata["attnscope.padding.cases"] = json.dumps(list(columns))

    def unequal(self, base, sizes, _, tensors, metadata):
        """Rows of unequal length padded together, against each row alone."""
        if not self.takes_mask("unequal", metadata):
            return
        lengths = sorted({self.n, max(2 * self.n // 3, 2), max(self.n // 3, 1)}, reverse=True)
        rows = [self.ids[:length] for length in lengths]
        alone = [self.masked([row], False)[0] for row in rows]
        sizes = [max(each) for each in zip(*(self.sizes(outputs) for outputs in alone))]
        columns, cases = [], []
        for left in (False, True):
            together, starts, longest = self.masked(rows, left)
            for i, (row, start) in enumerate(zip(rows, starts)):
                column = self.moved(alone[i], together, 0, len(row), left=start, total=longest, row=i, rows=len(rows))
                if left and self.shifts_positions(column, sizes):
                    continue
                columns.append(column)
                cases.append(f"{len(row)} real tokens in a batch padded on the {'left' if left else 'right'} to {longest}")
        tensors["probe.unequal.moved"] = torch.tensor(columns).T.contiguous()  # [module, case]
        tensors["probe.unequal.size"] = torch.tensor(sizes)
        metadata["attnscope.unequal.cases"] = json.dumps(cases)

    def batch(self, base, sizes, n_pads, tensors, metadata):
        """The row alone against the same row between two others."""
        others = [self.ids[torch.randperm(self.n, generator=self.random)], self.others(self.ids)]
        after = self.forward(torch.stack([others[0], self.ids, others[1]]))
        tensors["probe.batch.moved"] = torch.tensor([self.moved(base, after, 0, self.n, row=1, rows=3)]).T.contiguous()
        tensors["probe.batch.size"] = torch.tensor(sizes)

    def order(self, base, sizes, _, tensors, metadata):
        """The last position, when the tokens before it stand in another order, and when they are others."""
        before, last = self.ids[:-1], self.ids[-1:]
        orders = [before.flip(0)] + [before[torch.randperm(self.n - 1, generator=self.random_orders)] for _ in range(2)]
        orders = [order for order in orders if not torch.equal(order, before)]
        if not orders:
            metadata["attnscope.order.skipped"] = "the tokens before the last are all alike, in any order"
            return
        columns = [self.moved(base, self.forward(torch.cat([order, last])[None]), self.n - 1, 1) for order in orders]
        tensors["probe.order.moved"] = torch.tensor(columns).T.contiguous()  # [module, order]
        tensors["probe.order.content"] = torch.tensor(self.content)  # [module], under other tokens
        tensors["probe.order.size"] = torch.tensor(sizes)

    def cache(self, base, sizes, _, tensors, metadata):
        """The prompt in parts with a cache, against the whole prompt."""
        step = self.step
        if step is None:
            if self.call is not None or not (self.accepts("past_key_values") and self.accepts("use_cache")):
                metadata["attnscope.cache.skipped"] = (
                    "the model's forward takes no past_key_values and use_cache: give probe(step=…)")
                return

            def step(model, ids, cache):
                return model(ids, past_key_values=cache, use_cache=True).past_key_values

        middle = max(self.n // 2, 1)
        steps = list(range(middle, min(self.n, middle + 4)))
        cases = {"one token after the other": [(0, middle)] + [(i, i + 1) for i in steps],
                 "two parts": [(0, middle), (middle, self.n)]}
        columns = []
        for parts in cases.values():
            cache, worst = None, [-1.0] * len(self.names)
            for start, end in parts:
                ids = self.ids[None, start:end].to(self.device)
                outputs, cache = self.observed(lambda ids=ids, cache=cache: step(self.model, ids, cache))
                if cache is None:
                    raise RuntimeError("the model gave no cache")
                moved = self.moved(base, outputs, start, end - start, part=end - start)
                worst = [max(pair) for pair in zip(worst, moved)]
            columns.append(worst)
        tensors["probe.cache.moved"] = torch.tensor(columns).T.contiguous()  # [module, case]
        tensors["probe.cache.size"] = torch.tensor(sizes)
        metadata["attnscope.cache.cases"] = json.dumps(list(cases))

    def labels(self, base, sizes, _, tensors, metadata):
        """Losses of the outputs against the token that each stands on, the next one, and the one after."""
        norms = [p for m in self.model.modules() if "norm" in type(m).__name__.lower()
                 for name, p in m.named_parameters(recurse=False) if name == "weight"]
        if norms and all(bool((p == p.flatten()[0]).all()) for p in norms):
            metadata["attnscope.labels.skipped"] = "the gains of all norms are still alike: the model is not trained"
            return
        d_vocab = int(self.ids.max()) + 1
        logits = [t for t, axis in zip(base[self.output], self.axes[self.output])
                  if axis is not None and t.dim() >= 2 and axis == t.dim() - 2 and t.shape[-1] >= d_vocab]
        embedded = {m.num_embeddings for m in self.model.modules() if isinstance(m, nn.Embedding)}
        logits = [t for t in logits if t.shape[-1] in embedded or not embedded]
        if not logits:
            metadata["attnscope.labels.skipped"] = f"{self.output} gives no logits over the vocabulary"
            return
        losses = -logits[0].reshape(-1, self.n, logits[0].shape[-1])[0].to(torch.float64).log_softmax(-1)  # [position, token]
        n = self.n - 2  # positions that have all three
        columns = [losses[torch.arange(n), self.ids[offset:offset + n]] for offset in range(3)]
        tensors["probe.labels.losses"] = torch.stack(columns).to(torch.float32)  # [offset, position]

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
                # two axes of positions are scores or a pattern, where a hidden key may move without harm; and what comes after
                # the first such output is a cache or the like
                is_first = all(axis is None for axis in axes[name])
                axes[name].append(equal[0] if len(equal) == 1 and is_first else None)
        return axes

    def sizes(self, outputs):
        return [max((float(t.abs().max()) for t, a in zip(outputs.get(name, []), self.axes[name])
                     if a is not None and t.numel()), default=0.0) for name in self.names]

    def moved(self, base, after, start, length, left=0, total=None, row=0, rows=1, part=None):
        """Per module, max |difference| over `length` positions from `start` of the base, after bringing both to one shape.

        `after` has `total` positions, of which the base's first stands at `left`; or it has only the `part` compared.
        """
        columns = []
        for name in self.names:
            worst = -1.0
            for at_part, axis in enumerate(self.axes[name]):
                if axis is None or name not in base or name not in after or at_part >= len(after[name]):
                    continue
                a, b = base[name][at_part], after[name][at_part]
                if b.dim() != a.dim() or start + length > a.shape[axis]:
                    continue
                a = a.narrow(axis, start, length)
                if part is not None:
                    if b.shape[axis] != part:
                        continue
                elif total is not None and b.shape[axis] == total and left + start + length <= total:
                    b = b.narrow(axis, left + start, length)
                elif b.shape[axis] % max(rows, 1) == 0 and b.shape[axis] == rows * base[name][at_part].shape[axis] and rows > 1:
                    pass  # batch*position in one axis
                elif b.shape[axis] == base[name][at_part].shape[axis]:
                    b = b.narrow(axis, start, length)
                else:
                    continue
                choices = [b]
                differing = [i for i in range(a.dim()) if a.shape[i] != b.shape[i]]
                if rows > 1 and len(differing) == 1 and b.shape[differing[0]] == rows * a.shape[differing[0]]:
                    # batch alone (1 → rows), batch*head, or batch*position, where either may be the outer one
                    at, size = differing[0], a.shape[differing[0]]
                    choices = [b.narrow(at, row * size, size)]
                    if at == axis:
                        choices.append(b.unflatten(at, (size, rows)).select(at + 1, row))
                if choices[0].shape != a.shape:
                    continue
                differences = [_difference(a, b) for b in choices]
                worst = max(worst, min(float(d.max()) if d.numel() else 0.0 for d in differences))
            columns.append(worst)
        return columns


# ----------------------------------------------------------------------------------------------------------- porting


class record:
    """Records what the modules of `model` give in its first forward call, under the names of hooks, and writes it to `path`.

    names      templates of module paths -> hooks: {"layers.{i}.attn.q": "blocks.{i}.attn.q"}. `{i}` stands for a number.
               "layers.{i}.o:input" records what a module is given, "layers.{i}.attn[1]" the second tensor of what it gives
    against    a trace of the same tokens (attnscope trace ... --hooks all): hooks that `names` does not name are found by the
               order of execution, by shape, and by where the values are nearest to the trace's
    tokens, attention_mask, decoder_tokens   found in the arguments of the call when not given
    row        which row of the batch is kept
    quiet      prints nothing about what was matched

    After the block, `matched` is a dict of hooks and where each came from, `missing` the hooks that nothing was found for.

    Record in evaluation mode: call model.eval() before. The model runs as it is, dropout included. Where it draws random numbers, one
    warning names the modules, the file keeps their names, and attnscope diff says that it cannot judge the recording.
    """

    def __init__(self, model, path, *, names=None, against=None, tokens=None, attention_mask=None, decoder_tokens=None,
                 row=0, quiet=False):
        if not names and against is None:
            raise ValueError("expected names={'module.{i}.path': 'blocks.{i}.hook'}, or against='a trace of the same tokens'")
        self.model, self.path, self.row, self.quiet = model, _checked_path(path), row, quiet
        self.given = {"tokens": tokens, "attention_mask": attention_mask, "decoder_tokens": decoder_tokens}
        self.templates = [_template(source, hook) for source, hook in (names or {}).items()]
        self.reference = _read_trace(against) if against is not None else {}
        self.against = against

    def __enter__(self):
        self.events, self.calls, self.found, self.stack = [], [], {}, []
        self.is_over, self.product = False, None
        self.draws, self.modes = _Draws(self.model), set()
        self.paths = {module: path for path, module in self.model.named_modules()}
        self.cleanup = contextlib.ExitStack()
        for path, module in self.model.named_modules():
            self.cleanup.callback(_hook(module, True, self._enter(path)))
            self.cleanup.callback(_hook(module, False, self._leave(path)))
        if self.reference:
            self.cleanup.enter_context(_Operands(self))
        return self

    def __exit__(self, kind, error, trace):
        self.cleanup.close()
        if kind is None:
            self._write()
            self._tell_draws()
        self.events, self.calls = [], []
        return False

    def _enter(self, path):
        def hook(module, args, kwargs):
            if self.is_over:
                return
            self._look_at_draws()
            self.stack.append(path)
            self.modes.add(str(bool(module.training)).lower())
            if module is self.model:
                self._read_ids(args, kwargs)
            self._note(path, "input", list(_tensors((args, kwargs))))
        return hook

    def _leave(self, path):
        def hook(module, args, output):
            if self.is_over:
                return
            self._look_at_draws()
            if self.stack and self.stack[-1] == path:
                self.stack.pop()
            values = output.to_tuple() if hasattr(output, "to_tuple") else output
            self._note(path, "output", list(_tensors(values)))
            self.is_over = module is self.model
        return hook

    def _look_at_draws(self):
        if not _is_dynamo():
            self.draws.look(self.stack[-1] if self.stack else None)

    def _tell_draws(self):
        named = self.draws.named(self.model)
        if not named:
            return
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        advice = ("look for dropout that does not ask for self.training" if self.modes == {"false"}
                  else "call model.eval() before")
        warnings.warn(f"attnscope: random numbers were drawn in {', '.join(named[:3])}{more} while the model was recorded, as "
                      f"dropout does: what was recorded cannot be compared; {advice}", stacklevel=3)

    def _note(self, path, what, tensors):
        wanted = bool(self.reference) or any(t.pattern.fullmatch(path) and t.what == what for t in self.templates)
        if not wanted:
            return
        with torch._C.DisableTorchFunction():
            for nth, tensor in enumerate(tensors):
                if tensor.is_floating_point() and tensor.dim() in (2, 3, 4):
                    self.events.append(_Event(len(self.events), path, what, nth, len(self.calls), self._kept(tensor)))

    def _kept(self, tensor):
        """One row of the batch, as float32 on the host: [position, width], or what has an axis more."""
        if tensor.dim() >= 3:
            tensor = tensor[min(self.row, tensor.shape[0] - 1)]
        return tensor.detach().to("cpu", torch.float32).clone()

    def _read_ids(self, args, kwargs):
        names = inspect.signature(self.model.forward).parameters
        given = dict(zip(names, args), **kwargs)
        ids = [(name, value) for name, value in given.items() if _is_ids(value)]
        for name, value in ids:
            if "mask" in name:
                self.found.setdefault("attention_mask" if "decoder" not in name else "-", value)
            elif "decoder" in name or "target" in name or name in ("tgt", "labels"):
                self.found.setdefault("decoder_tokens" if name != "labels" else "-", value)
            elif "position" not in name and "type" not in name:
                self.found.setdefault("tokens", value)

    def _ids(self):
        rows = {}
        for name in ("tokens", "decoder_tokens", "attention_mask"):
            value = self.given[name] if self.given[name] is not None else self.found.get(name)
            if value is None:
                continue
            value = torch.as_tensor(value).detach().cpu()
            rows[name] = (value[min(self.row, value.shape[0] - 1)] if value.dim() == 2 else value).to(torch.int64)
        return rows

    def _write(self):
        if not self.is_over:
            raise RuntimeError(f"nothing was recorded: {type(self.model).__name__} was not called")
        tensors, self.matched = {}, {}
        for template in self.templates:
            for event in self.events:
                hook = template.hook_of(event)
                if hook is not None and hook not in tensors:
                    tensors[hook], self.matched[hook] = event.tensor, event.source
        if self.reference:
            ids = self._ids().get("tokens")
            own = self.reference.get("tokens")
            if ids is not None and own is not None and ids.tolist() != own.tolist():
                raise RuntimeError(f"{self.against}: expected a trace of the tokens that the model was given, found others")
            for hook, (tensor, source) in _Matching(self).found().items():
                if hook not in tensors:
                    tensors[hook], self.matched[hook] = tensor, source
        if not tensors:
            raise RuntimeError("no module matched: expected templates of paths such as "
                               + ", ".join([path for path in self.paths.values() if path][:4]))
        hooks = [name for name in self.reference if _hook_of(name) is not None]
        self.missing = [name for name in hooks if name not in tensors]
        if not self.quiet:
            for line in self.told():
                print(line)
        metadata = {"attnscope.source": _source(self.model), "attnscope.record": json.dumps(self.matched),
                    "attnscope.training": _said(set(self.modes)), "attnscope.random": self.draws.told(self.model)}
        _save(self.path, {**{name: t.contiguous() for name, t in tensors.items()}, **self._ids()}, metadata)

    def told(self):
        """What was matched, a line for each hook; layers that match alike share one."""
        lines = {}
        for hook, source in self.matched.items():
            lines.setdefault((_general(hook), _general(source)), []).append(hook)
        told = [f"{hook} <- {source} ({len(hooks)})" for (hook, source), hooks in lines.items()]
        return told + ([f"nothing found for {', '.join(sorted({_general(m) for m in self.missing}))}"] if self.missing else [])


class _Event:
    """A tensor that a module was given or gave."""

    def __init__(self, order, path, what, nth, n_calls, tensor):
        self.order, self.path, self.what, self.nth, self.n_calls, self.tensor = order, path, what, nth, n_calls, tensor

    @property
    def source(self):
        return (self.path or "the model") + (":input" if self.what == "input" else "") + (f"[{self.nth}]" if self.nth else "")


class _template:
    """A path with `{i}` for numbers, and the hook that it stands for."""

    def __init__(self, source, hook):
        match = re.fullmatch(r"(.*?)(:input)?(?:\[(\d+)\])?", source)
        self.what = "input" if match[2] else "output"
        self.nth, self.hook = int(match[3] or 0), hook
        parts = re.split(r"(\{\w+\})", match[1])
        self.fields = [part[1:-1] for part in parts[1::2]]
        self.pattern = re.compile("".join(r"(\d+)" if n % 2 else re.escape(part) for n, part in enumerate(parts)))

    def hook_of(self, event):
        match = self.pattern.fullmatch(event.path)
        if match is None or (event.what, event.nth) != (self.what, self.nth):
            return None
        return self.hook.format(**dict(zip(self.fields, match.groups())))


class _Call:
    """One attention: what was multiplied, and what came of it. Every tensor is [head, position, width] or [head, query, key]."""

    def __init__(self, path, order, tensors):
        self.path, self.order, self.tensors = path, order, tensors


class _Operands(TorchFunctionMode):
    """Watches the products and the softmax of every attention, for what no module gives: rotated queries and keys, scores."""

    def __init__(self, owner):
        super().__init__()
        self.owner = owner

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        owner = self.owner
        if owner.is_over or not owner.stack or not isinstance(output, torch.Tensor):
            return output
        name = _name(func)
        with torch._C.DisableTorchFunction():
            try:
                if name in FUSED:
                    self.fused(args, kwargs, output)
                elif name in PRODUCT:
                    self.product(name, args, kwargs, output)
                elif name in SOFTMAX and output.dim() >= 3:
                    self.softmax(args, output)
            except Exception as error:  # nothing that goes wrong in here reaches the model
                warnings.warn(f"attnscope: an attention could not be recorded: {error}", stacklevel=2)
        return output

    def heads(self, tensor):
        return self.owner._kept(tensor) if tensor.dim() == 4 else tensor.detach().to("cpu", torch.float32).clone()

    def fused(self, args, kwargs, output):
        given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args), **kwargs)
        q, k, v = (self.heads(given[name]) for name in ("query", "key", "value"))
        group = q.shape[0] // k.shape[0]
        scale = given.get("scale") or 1 / math.sqrt(q.shape[-1])
        scores = q @ k.repeat_interleave(group, 0).transpose(1, 2) * scale
        if given.get("is_causal"):
            seen = torch.ones(scores.shape[1:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~seen, -math.inf)
        mask = given.get("attn_mask")
        if mask is not None:
            mask = mask.detach().cpu()
            while mask.dim() > 3:
                mask = mask[min(self.owner.row, mask.shape[0] - 1)]
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.float()
        tensors = {"rot_q": q, "rot_k": k, "v": v, "scores": scores, "pattern": scores.softmax(-1), "z": self.heads(output)}
        self.note(tensors)

    def product(self, name, args, kwargs, output):
        operands = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        if len(operands) < 2 or output.dim() < 3 or operands[0].dim() != operands[1].dim():
            return
        first, second = operands[-2:]
        call = self.owner.calls[-1] if self.owner.calls else None
        if call is not None and call.pattern is first and "z" not in call.tensors:
            call.tensors["v"], call.tensors["z"] = self.heads(second), self.heads(output)
        elif output.shape[-2] == first.shape[-2]:
            self.owner.product = (first, second, output.shape)

    def softmax(self, args, output):
        product, self.owner.product = self.owner.product, None
        if product is None or product[2] != output.shape:
            return
        first, second = self.heads(product[0]), self.heads(product[1])
        second = second.transpose(1, 2) if second.shape[-1] == output.shape[-1] else second
        scores = self.heads(args[0])
        scores = scores.masked_fill(scores <= -5000, -math.inf)
        self.note({"rot_q": first, "rot_k": second, "scores": scores, "pattern": self.heads(output)}, output)

    def note(self, tensors, pattern=None):
        owner = self.owner
        call = _Call(owner.stack[-1], len(owner.events), tensors)
        call.pattern = pattern
        owner.calls.append(call)


# ---------------------------------------------------------------------------------------------------------- matching


# Hooks of attention that its operands are, and those that modules around it give.
_OF_CALLS = ("rot_q", "rot_k", "scores", "pattern", "v", "z")
_OF_MODULES = ("resid_pre", "q", "k", "v", "attn_out", "mlp_out", "resid_post")


class _Matching:
    """Finds what a trace of another implementation calls the values of a model."""

    def __init__(self, owner):
        self.owner, self.reference = owner, owner.reference
        self.layers = {}  # (prefix, attention) -> number of layers, in the order of execution
        for name in self.reference:
            hook = _hook_of(name)
            if hook is not None:
                self.layers.setdefault(hook[:3], {})[hook[3]] = self.reference[name]
        order = {"encoder.": 0, "": 1, "decoder.": 1}
        self.attentions = sorted((key for key in self.layers if key[2] in ("attn", "cross_attn")),
                                 key=lambda key: (order[key[0]], key[1], key[2] == "cross_attn"))

    def found(self):
        found = {}
        calls = self.owner.calls
        if len(calls) == len(self.attentions):
            for (prefix, layer, kind), call in zip(self.attentions, calls):
                for what in _OF_CALLS:
                    reference = self.layers[prefix, layer, kind].get(what)
                    tensor = call.tensors.get(what)
                    tensor = tensor if reference is None or tensor is None else _without_repeats(tensor, reference)
                    if reference is not None and tensor is not None and tensor.numel() == reference.numel():
                        found[f"{prefix}blocks.{layer}.{kind}.{what}"] = (tensor, f"{call.path} ({what} of its attention)")
        elif calls:
            warnings.warn(f"attnscope: {len(calls)} attentions ran, the trace has {len(self.attentions)}: only modules are matched",
                          stacklevel=4)
        for prefix in {prefix for prefix, *_ in self.layers}:
            for kind in ("attn", "cross_attn", ""):
                for what in _OF_MODULES:
                    self.modules(prefix, kind, what, found)
        self.after(found)
        return found

    def modules(self, prefix, kind, what, found):
        """One hook of all layers: the template of paths whose values come nearest in its best layer."""
        layers = {layer: hooks[what] for (p, layer, k), hooks in self.layers.items()
                  if (p, k) == (prefix, kind) and what in hooks}
        if not layers:
            return
        candidates = {}  # template -> layer -> event
        numbers = {}
        for event in self.owner.events:
            for general, number in _numbered(event.path):
                numbers.setdefault(general, set()).add(number)
                key = (general, event.what, event.nth)
                candidates.setdefault(key, {}).setdefault(number, event)
        best = None
        for key, events in candidates.items():
            shared = sorted(set(events) & set(layers))
            if len(shared) < len(layers):
                continue
            for cut in _cuts(what, self.owner.events and events[shared[0]].tensor, layers[shared[0]], self.sizes(prefix, kind)):
                distances = [_apart(cut(events[layer].tensor), layers[layer]) for layer in shared]
                if any(distance is None for distance in distances):
                    continue
                rank = (min(distances), events[shared[0]].order)
                if best is None or rank < best[0]:
                    best = (rank, events, cut)
        if best is None:
            return
        (distance, _), events, cut = best
        if distance > 0.7:  # nothing like it anywhere: a name would be a guess
            return
        for layer in layers:
            name = f"{prefix}blocks.{layer}." + (f"{kind}." if kind else "") + what
            if name not in found or what == "v":
                found[name] = (cut(events[layer].tensor), events[layer].source)

    def sizes(self, prefix, kind):
        for (p, _, k), hooks in self.layers.items():
            if (p, k) == (prefix, kind) and "q" in hooks and "k" in hooks:
                return hooks["q"].shape, hooks["k"].shape
        return None

    def after(self, found):
        """Logits, or the last hidden state: the output of the model that comes nearest."""
        for name in ("logits", "last_hidden_state", "encoder.last_hidden_state"):
            reference = self.reference.get(name)
            if reference is None:
                continue
            outputs = [event for event in self.owner.events if event.what == "output"]
            if name == "logits":
                outputs = [event for event in outputs if event.path == ""] or outputs
            ranked = [(_apart(event.tensor, reference), -event.order, event) for event in outputs]
            ranked = sorted((rank for rank in ranked if rank[0] is not None), key=lambda rank: rank[:2])
            if ranked:
                found[name] = (ranked[0][2].tensor, ranked[0][2].source)


def _cuts(what, tensor, reference, sizes):
    """Ways in which a tensor may hold a hook: as it is, or as a third of queries, keys and values side by side."""
    cuts = [lambda tensor: tensor]
    if sizes is not None and what in ("q", "k", "v"):
        (n_heads, _, d), (n_kv, _, _) = sizes
        widths = {"q": n_heads * d, "k": n_kv * d, "v": n_kv * d}
        whole = sum(widths.values())
        start = {"q": 0, "k": widths["q"], "v": widths["q"] + widths["k"]}[what]
        nth = "qkv".index(what)

        def together(tensor):
            is_fused = tensor.dim() == 2 and tensor.shape[-1] == whole
            return tensor[:, start:start + widths[what]] if is_fused else tensor[:0]

        def by_heads(tensor):
            is_fused = tensor.dim() == 2 and tensor.shape[-1] == whole and n_heads == n_kv
            return tensor.reshape(len(tensor), n_heads, 3, d)[:, :, nth].flatten(1) if is_fused else tensor[:0]

        cuts += [together, by_heads]
    return cuts


def _apart(tensor, reference):
    """How far two tensors lie apart, as a share of the second; None where they do not hold the same number of values."""
    if tensor.numel() != reference.numel() or not tensor.numel():
        return None
    reference = reference.float()
    if reference.dim() == 3 and tensor.dim() == 2:  # [head, position, d] beside [position, head * d]
        reference = reference.transpose(0, 1).flatten(1)
    elif reference.dim() == 3 and tensor.dim() == 3 and tensor.shape != reference.shape:
        tensor = tensor.transpose(0, 1)
    if tensor.shape != reference.shape:
        return None
    share = ((tensor - reference).norm() / reference.norm().clamp_min(1e-30)).item()
    return math.inf if math.isnan(share) else share


def _without_repeats(tensor, reference):
    """Keys and values that were written once for each query head, once for each of their own."""
    times = tensor.shape[0] // max(reference.shape[0], 1)
    return tensor[::times] if times > 1 and tensor.shape[0] == times * reference.shape[0] else tensor


def _hook_of(name):
    """(prefix, layer, attention, hook) of the name of a trace."""
    match = re.fullmatch(r"(encoder\.|decoder\.|)blocks\.(\d+)\.(?:(attn|cross_attn)\.)?(\w+)", name)
    return (match[1], int(match[2]), match[3] or "", match[4]) if match else None


def _numbered(path):
    """A path with each of its numbers in turn taken out: the template, and the number."""
    for match in re.finditer(r"(?<![^.])\d+(?![^.])", path):
        yield path[:match.start()] + "{i}" + path[match.end():], int(match[0])


def _general(name):
    return re.sub(r"(?<![^.])\d+(?![^.:\[ ])", "{i}", name)


def _read_trace(path):
    """The tensors of a safetensors file, those that are numbers of 32 or 64 bits."""
    kinds = {"F32": torch.float32, "I64": torch.int64}
    with open(path, "rb") as file:
        content = file.read()
    n = int.from_bytes(content[:8], "little")
    header, tensors = json.loads(content[8:8 + n]), {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] in kinds:
            start, end = (8 + n + offset for offset in entry["data_offsets"])
            values = torch.frombuffer(bytearray(content[start:end]), dtype=kinds[entry["dtype"]])
            tensors[name] = values.reshape(entry["shape"])
    return tensors


# ------------------------------------------------------------------------------------------------------------ shared


_compiler = getattr(torch, "compiler", None)
_is_dynamo = getattr(_compiler, "is_dynamo_compiling", None) or getattr(_compiler, "is_compiling", lambda: False)
_transforms = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)
_mode_of = getattr(torch._C, "_get_dispatch_mode", lambda key: None)
_TRACERS = [key for key in (getattr(getattr(torch._C, "_TorchDispatchModeKey", None), name, None)
                            for name in ("FAKE", "PROXY", "FUNCTIONAL")) if key is not None]


def _blind(args=()):
    """Why tensors cannot be read now, or must not be touched; None when they can."""
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace"
    if _transforms() is not None:
        return "torch.vmap or another transform of torch.func"
    if any(_mode_of(key) is not None for key in _TRACERS):
        return "a tracer (torch.export, make_fx or fake tensors)"
    for x in args:
        if isinstance(x, torch.Tensor) and (x.is_meta or type(x).__name__ in ("FakeTensor", "FunctionalTensor")):
            return "tensors without values (fake or meta)"
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "the recording of a CUDA graph"
    return None


def _own_modes():
    """For the length of the block, the model's own dispatch modes (a counter of flops, say) see nothing of ours."""
    n_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)()
    if not n_modes:
        return contextlib.nullcontext()
    return torch.utils._python_dispatch._disable_current_modes()


def _n_compiled():
    """How many graphs the compiler has made so far."""
    utils = sys.modules.get("torch._dynamo.utils")
    try:
        return int(utils.counters["stats"]["unique_graphs"]) if utils is not None else 0
    except Exception:
        return 0


@contextlib.contextmanager
def _uncompiled(model, changed):
    if not hasattr(_compiler, "set_stance"):
        yield
        return
    compiled = _n_compiled() > 0 or any(
        hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None for m in model.modules())
    if compiled:
        changed.append("compiled code runs uncompiled")
    with torch.compiler.set_stance("force_eager"):
        yield


@contextlib.contextmanager
def _plain_pytorch(model, attention=True, changed=None):
    """For the length of the block: no fused transformer layers, no compiled code, no kernels that cannot be watched.

    What that changes is added to the list `changed`, in words: outputs may then differ from those without, by rounding.
    """
    changed = [] if changed is None else changed
    with contextlib.ExitStack() as undo:
        mha = getattr(torch.backends, "mha", None)
        if attention and mha is not None and hasattr(mha, "set_fastpath_enabled"):
            undo.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            if mha.get_fastpath_enabled() and any(isinstance(m, nn.MultiheadAttention) for m in model.modules()):
                changed.append("nn.MultiheadAttention runs without its fused path")
            mha.set_fastpath_enabled(False)
        # Compiled code can exist only if something has imported the compiler; importing it here would cost seconds.
        if "torch._dynamo" in sys.modules:
            undo.enter_context(_uncompiled(model, changed))
        if attention:
            undo.enter_context(_eager_transformers(model, changed))
        yield


@contextlib.contextmanager
def _eager_transformers(model, changed_words):
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
            changed_words.append(f"{kind} runs as transformers' eager attention")
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


def _said(values):
    """One word for what every call says; "mixed" when they differ."""
    return None if not values else values.pop() if len(values) == 1 else "mixed"


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


class _Draws:
    """Notes which modules draw random numbers: dropout, and whatever else gives another output in a second pass.

    What a module does shows in the state of torch's generators, so that functions and kernels are noticed as modules are.
    """

    def __init__(self, model):
        devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
        self.generators = [torch.default_generator, *(torch.cuda.default_generators[i] for i in devices)]
        self.paths = {}  # in the order of the first draw
        self.state = self.now()

    def now(self):
        try:
            states = [generator.get_state() for generator in self.generators]
        except RuntimeError:  # a CUDA graph is being recorded
            return self.state
        return [ctypes.string_at(state.data_ptr(), state.numel()) for state in states]

    def look(self, path):
        """What was drawn since the last look was drawn by the module `path`; by nobody where it is None."""
        state = self.now()
        if state != self.state:
            self.state = state
            if path is not None:
                self.paths.setdefault(path)

    def named(self, model):
        return [path or type(model).__name__ for path in self.paths]

    def told(self, model):
        """Metadata: a JSON list of the modules; None where there is none."""
        return json.dumps(self.named(model), ensure_ascii=False) if self.paths else None


@contextlib.contextmanager
def _own_random(model):
    """Gives the random states back that they had before the block."""
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        yield


def _difference(a, b):
    """|a - b|; equal infinities and two NaNs differ by 0, a NaN and a number by infinity."""
    same = (a == b) | (a.isnan() & b.isnan())
    return (a - b).abs().nan_to_num(nan=math.inf, posinf=math.inf).masked_fill(same, 0.0)
