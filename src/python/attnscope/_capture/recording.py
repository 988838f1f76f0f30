"""capture: what every attention of one forward call did."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import re
import sys
import threading
import warnings
import weakref

import torch
from torch import nn

from .adding import _Added
from .axes import (
    MASKED, _argument_names, _axis, _dropout, _einsum_axes, _factors, _hide_masked, _is_relu, _labels, _moved_axes,
    _operands, _ordered, _padding_mask, _summed_axis, _sums_over_something, _weighed,
    absent_masks,
)
from .buffers import _Buffers
from .discarding import PARTING, _Discards, _written_at
from .following import _Frame, _is_alike, _mark, _Mark, NO_MARK, _NothingSeen, _Record, _Refused, _Watch
from .linear import _Linear
from .naming import _names
from .order import _Order
from .pooling import _Pooling, _stacked
from .positions import _Positions
from .reshaping import _Reshapes
from .shared import (
    _address, _blind, _check_choice, _checked_path, _Draws, _dtype, _hook, _is_dynamo, _is_ids, _n_compiled, _no_autocast,
    _plain_pytorch, _readable, _said, _save, _source, _tensors, _uncompiled,
)
from .untrained import _looks_untrained
from .values import _Values
from .words import ATTENTION, COMPARISONS, NORMS, PRODUCT, REDUCTIONS, SCORE_STEPS, SHIFTS, SILENT, VIEWS, WEIGHTED


class capture(_Values, _Pooling, _Linear, _Reshapes, _Discards, _Added, _Positions):
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
    values                   also keep the queries and keys that are multiplied (rot_q, rot_k), v and z of every head, the
                             residuals around each layer, and the logits
    max_bytes                recording ends before more than this is kept; the block then ends with an error and no file

    The forward call itself never fails because of a capture: what cannot be recorded is left out, listed in the metadata,
    and told in one warning when the block ends.
    """

    def __init__(self, model, path, *, tokens=None, attention_mask=None, mask=None, window=None, documents=None,
                 row=0, every_call=False, scores=True, only=None, max_bytes=2 << 30, tokenizer=None, values=False, buffers=None):
        _check_choice("mask", mask, (None, "causal", "bidirectional", "none"))
        self.model, self.path = model, _checked_path(path)
        self.given = {"tokens": tokens, "attention_mask": attention_mask}
        self.declared = {"mask": mask, "window": window, "documents": documents}
        self.row, self.every_call, self.keep_scores, self.max_bytes = row, every_call, scores, max_bytes
        self.only = re.compile(only) if only else None
        self.tokenizer, self.keep_values = tokenizer, values
        self.buffers = _Buffers() if buffers is None else buffers

    def __enter__(self):
        self.records, self.skipped, self.found, self.changed = [], {}, {}, []
        self.spent = {}  # {id of a pattern that weighed something: a weak reference to it}
        self.stack, self.root_calls, self.bytes = [], 0, 0
        self.n_calls, self.ran, self.refused, self.in_threads = {}, {}, None, False
        self.marked = []  # weak references to the tensors that carry a mark
        self.around = {}  # {path: (what went into a numbered module, what came out)}, each [position, d_model]
        self.last_out = None, None, None  # what the last of them gave, its version, and its values
        self.logits = None  # [position, token]
        self.buffers.begin()
        self.other_sources = []  # what keys of another sequence than that of their queries are made of
        self.later = {}  # {(queries, keys, device): what a causal mask hides}
        self.begin_reshapes()
        self.begin_discards()
        self.begin_linear()
        self.order = _Order(self.model)
        self.absent_masks = []
        self.draws, self.drawn = _Draws(self.model), set()
        self.thread = threading.get_ident()
        self.weights = {_address(p) for p in self.model.parameters()} - {0}
        self.cleanup = contextlib.ExitStack()
        try:
            for path, module in self.model.named_modules():
                self.cleanup.callback(_hook(module, True, self._guarded_hook(self._enter_module(path))))
                self.cleanup.callback(_hook(module, False, self._guarded_hook(self._leave_module)))
            self.cleanup.enter_context(_plain_pytorch(self.model, changed=self.changed))
            self.n_compiled, self.has_compiler = _n_compiled(), "torch._dynamo" in sys.modules
            self.mode = self.cleanup.enter_context(_Watch(self))
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
            self.order.of_positions.clear()
            self.order.long_rows.clear()
            for record in self.records:
                record.owner = record.scores = record.pattern = record.added = None
                record.values, record.made_of = {}, {}
            self.projected.clear()
            self.around, self.logits, self.later, self.last_out = {}, None, {}, (None, None, None)
            self.buffers.end()
        if kind is None and self.skipped:
            told = self.told()
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
            self.stack.append(_Frame(module, path, tensors, args, kwargs))
            if not self.recording:
                return
            self.order.enter(module, args)
            self.ran.setdefault(path, [0, 0])[0] += 1
            if _blind() is not None:
                return
            if module is self.model:
                self._read_arguments(module, args, kwargs)
            elif path.split(".")[-1] == "decoder":
                ids = kwargs.get("input_ids", args[0] if args else None)
                if _is_ids(ids):
                    self.found.setdefault("decoder_tokens", ids.detach().cpu())
            elif isinstance(module, nn.Embedding) and module.padding_idx is not None:
                self._read_padding_index(path, module, args)
            if "torch._dynamo" in sys.modules and not self.has_compiler:
                self.has_compiler = True  # it came while the model ran
                self.cleanup.enter_context(_uncompiled(self.model, self.changed))

        return hook

    def _leave_module(self, module, args, output):
        self.look_at_draws()
        path = self.stack[-1].path if self.stack and self.stack[-1].module is module else None
        while self.stack and self.stack.pop().module is not module:
            pass
        if path is not None and self.recording:
            self.note_discarded(module, path, args, output)
            if self.keep_values:
                self._keep_around(module, path, args, output)
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
            self.absent_masks = absent_masks(module, args, kwargs)
        except (TypeError, ValueError):
            named = {str(i): arg for i, arg in enumerate(args)}
            named.update(kwargs)
        for name in [name for name, value in named.items() if isinstance(value, dict)]:
            named.update(named.pop(name))  # the **kwargs of forward
        for name in [name for name, value in named.items() if isinstance(value, tuple)]:
            named.update({f"{name}.{i}": value for i, value in enumerate(named.pop(name))})  # its *args
        plain = [name for name, value in named.items() if _is_ids(value)
                 and not re.search(r"mask|label|target_out|type|position|decoder|tgt|trg|valid|length|segment|time|step", name)]
        later = [name for name, value in named.items() if _is_ids(value) and re.search(r"decoder_|tgt|trg", name)
                 and not re.search(r"mask|position|type|label|_out", name)]
        plain.sort(key=lambda name: name != "input_ids")
        later = later or plain[1:2]  # written only where a decoder was seen
        if plain:
            self.order.begin(named[plain[0]], named)
        else:
            for value in named.values():
                if isinstance(value, torch.Tensor):
                    self.order.begin_with(value)
        if self.order.is_told:
            for name in {*plain[:1], *later}:
                named[name] = named[name].T
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
            if shape is not None and mask.shape != shape and tuple(mask.shape) == tuple(shape)[::-1] and len(shape) == 2:
                mask = mask.T
            real = _padding_mask(name, mask.detach().cpu(), self.found.get("tokens"), shape)
            if real is not None:
                self.found["attention_mask"] = real
                self.found["attention_mask_name"] = name

    def _read_padding_index(self, path, table, args):
        """Padding that no argument tells: tokens at one end of the row that the table in which they are looked up holds as padding."""
        tokens = self.found.get("tokens")
        if tokens is None or "attention_mask" in self.found or tokens.dim() != 2 or not args or not _is_ids(args[0]):
            return
        asked = args[0].detach().cpu()
        if not any(asked.shape == one.shape and bool((asked == one).all()) for one in (tokens, tokens.T)):
            return  # positions, or kinds of tokens
        pads = tokens == table.padding_idx
        is_at_ends = bool(((pads[:, 1:] != pads[:, :-1]).sum(-1) <= 1).all())
        if int(pads.sum(-1).max()) >= 2 and is_at_ends and bool(((~pads).sum(-1) >= 2).all()):
            self.found["attention_mask"], self.found["attention_mask_name"] = ~pads, f"{path}.padding_idx"

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
        if mark.origin == "product" and x.dim() >= 3:
            return None  # of windows or buckets, whose length is that of no input
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
        # One step, as of a decoder, has the length of no input: rows are what all inputs around it begin with.
        for frame in reversed(self.stack) if n_queries == 1 else ():
            firsts = {shape[0] for shape in frame.shapes if len(shape) > 1}
            if len(firsts) == 1 and n_rows % max(*firsts, 1) == 0:
                return firsts.pop()
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
        """Values that stay as they are, whatever the model does to its own tensor. // [head, query, key]"""
        row = row.detach()
        if row.device.type != "cpu" or type(row) is not torch.Tensor:
            return row.to("cpu", torch.float32, copy=True).contiguous()
        return self.buffers.empty(row.shape).copy_(row)  # in order at once, whatever the strides were

    def own(self, fresh):
        """As `copy`, of what was computed for a record and nobody else has: copied only where it is not yet as a file has it."""
        if fresh.device.type == "cpu" and fresh.dtype == torch.float32 and fresh.is_contiguous() \
                and fresh.untyped_storage().nbytes() == 4 * fresh.numel():
            return fresh.detach()
        return self.copy(fresh)

    def room(self, shape, device):
        """Where to compute what a record keeps; None where that is not on the CPU."""
        return self.buffers.empty(shape) if device.type == "cpu" else None

    def add(self, frame, info, shape):
        name = frame.name(self.model)
        record = _Record(self, name, {"module": name, "call": self.n_calls.get(name, 0), **info,
                                      "training": bool(frame.module.training)})
        tokens = self.found.get("tokens")
        owner = next((above for above in reversed(self.stack) if above.has_weights), None)
        if owner is not None:
            record.frame, record.key_source = owner, owner.key_source()
        n_queries = shape[-2]
        record.is_root = not frame.path
        if tokens is not None and n_queries > 1 and tokens.dim() == 2 and tokens.shape[0] != tokens.shape[1] and n_queries in tokens.shape:
            record.info["token_axis"] = tuple(tokens.shape).index(n_queries)
        self.n_calls[name] = record.info["call"] + 1
        self.records.append(record)
        for above in self.stack:
            self.ran.setdefault(above.path, [1, 0])[1] += 1
        return record

    def keep(self, record, scores, pattern, may_hide=True):
        """Scores and pattern of a record; scores that a finite mask hides become -inf. `may_hide` is false where there is none."""
        value = _hide_masked(scores, pattern, record.info["axis"] == "keys") if scores is not None and may_hide else None
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
            self.set_mark(y, _Mark("product", mark.axes, mark.steps + ("softmax",), scores, None, _dtype(x), factors=mark.factors,
                                   pooled=self.pooled_row(x, y, dim)))
            return
        why = self.rejects(_ordered(x, mark.axes), mark)
        if mark.is_reduced and x.shape[-1] == 1 and dim == x.dim() - 2:
            why = "one number for each position, made of scores"  # weights of a pooling, and no keys
        if why is not None:
            if not self.begin_pooling(x, y, dim):
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
        record.is_unproven = mark.origin != "product"
        self.keep(record, self.copy(row), self.copy(self.rows(y, mark.axes)[0]))
        self.keep_factors(record, mark.factors)
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
            scaled, keys = q.detach().float() * scale, k.detach().float().transpose(-1, -2)
            room = self.room((*scaled.shape[:-1], keys.shape[-1]), scaled.device)
            scores = torch.matmul(scaled, keys, out=room)  # [head, query, key]
            bias = None if mask is None else self.rows(mask.detach().expand(full))[0]
            # What no finite number was added to, and is nowhere low, hides nothing.
            may_hide = bias is not None and bias.dtype != torch.bool or not bool(scores.amin() > MASKED)
            if bias is not None:
                scores = scores.masked_fill_(~bias, -math.inf) if bias.dtype == torch.bool else scores.add_(bias.float())
            if is_causal:
                scores.masked_fill_(self.later_keys(scores), -math.inf)
            return scores, may_hide

        info = {"kind": "sdpa", "dropout_p": float(given.get("dropout_p", 0.0) or 0.0), "is_causal": is_causal,
                "has_mask": mask is not None, "scale": scale}
        if name != "scaled_dot_product_attention":
            info["kernel"] = name
        if is_causal and query.shape[-2] != key.shape[-2]:
            info["causal_alignment"] = "top-left"
        self.computed(frame, (query, key, given.get("value")), out, full, info, scored)

    def computed(self, frame, inputs, out, full, info, scored):
        """Records a kernel from its arguments: scores and pattern are computed here, in float32."""
        query, key, value = inputs
        q, n_rows = self.rows(query)  # [head, query, d_head]
        k = self.rows(key)[0]  # [kv_head, key, d_head]
        shape = (q.shape[0], q.shape[1], k.shape[1])
        self.reserve(frame, shape, "scores and pattern" if self.keep_scores else "pattern", 1 + self.keep_scores)
        with torch.no_grad(), _no_autocast(query.device.type):
            if k.shape[0] != q.shape[0]:
                k = k.repeat_interleave(q.shape[0] // k.shape[0], dim=0)
            scores, may_hide = scored(q, k, n_rows)
            pattern = torch.softmax(scores, -1, out=self.room(scores.shape, scores.device))
            hidden = scores.amax(-1) == -math.inf  # [head, query]
            if hidden.any():
                # What a row that sees no key gives depends on version and kernel: zeros or NaN. The output tells.
                zero = torch.isfinite(self.rows(out.detach())[0]).all(-1) & hidden
                pattern.masked_fill_(zero.unsqueeze(-1), 0.0)
        kind = info.pop("kind")
        record = self.add(frame, {"kind": kind, "dim": query.dim() - 1, "axis": "keys", "shape": list(full),
                                  "dtype": _dtype(query), "scores_dtype": _dtype(query), **info}, shape)
        self.keep(record, self.own(scores), self.own(pattern), may_hide)
        if self.keep_values:
            for what, x in (("rot_q", query), ("rot_k", key), ("v", value), ("z", out)):
                if x is not None:
                    self.keep_value(record, what, x.detach())

    def later_keys(self, scores):
        """What torch's causal mask hides of [head, query, key]: it is aligned at the top left, also when keys outnumber queries."""
        size = (*scores.shape[1:], scores.device)
        if size not in self.later:
            self.later[size] = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device).triu(1)
        return self.later[size]

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
            return self.rows(scores.float())[0], True

        self.computed(frame, (query, key, given.get("value")), next(_tensors(out)), full, info, scored)

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
        return _Mark(mark.origin, mark.axes, mark.steps, self.copy(row), None, _dtype(x), p=mark.p, factors=mark.factors)

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
        self.order.see(name, args, kwargs, first)
        if self.results and (name in PARTING or name in VIEWS and first.numel() == inputs[0].numel()):
            self.see_parts(name, inputs[0], out)
        if self.unread:
            self.see_unread(name, inputs, out)
        if self.keep_values and (name in WEIGHTED or name in PRODUCT) and any(self.is_weight(x) for x in inputs):
            self.note_projection(inputs, first)
        marks = [_mark(x) for x in inputs]
        if any(mark.pooled is not None for mark in marks) and self.follow_pooling(name, inputs, marks, first):
            return
        if any(mark.context is not None for mark in marks) and self.follow_context(name, inputs, marks, first):
            return
        if name in PRODUCT and any(mark.record is not None or mark.is_scores for mark in marks):
            weighs_a_pattern = any(self.is_spent(x) for x in inputs)
            follows = self.used(name, args, kwargs, first)
            if follows is not None:
                self.set_mark(first, follows)
                return
            used = next((mark.record for mark in marks if mark.record is not None), None)
            if used is not None:
                is_alone = not weighs_a_pattern and all(mark.record in (None, used) for mark in marks)
                if not (is_alone and self.mark_context(used, first)) and hasattr(first, "_attnscope_mark"):
                    self.set_mark(first, NO_MARK)
                return  # attention's output, no longer scores
        if any(mark.record is not None for mark in marks):
            self.follow_pattern(name, func, inputs, args, kwargs, first)
            return
        origins = [mark.origin for mark in marks]
        axes, steps, factors, is_new, is_part = (-2, -1), (), None, False, False
        if name in WEIGHTED or name in PRODUCT and any(self.is_weight(x) for x in inputs):
            if first.dim() == 4 and any(_mixes_heads(name, x, mark, first) for x, mark in zip(inputs, marks)):
                origin = "product"  # still scores
            else:
                # additive attention ends in a layer of width 1, whose output is scores
                origin = "weights" if first.shape[-1:] != (1,) and first.dim() else None
        elif name in PRODUCT:
            # one that sums over nothing is an outer product: angles of positions by frequencies
            origin, is_new = "product" if _sums_over_something(name, args, kwargs) else None, True
            if name == "einsum":
                axes = _einsum_axes(args) or axes
            factors = _factors(name, args, kwargs) if origin is not None else None
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
        elif name in NORMS:
            origin = None  # of a residual: scores are normalised by a softmax
        else:
            origin = next((o for o in ("product", "weights") if o in origins), None)
            is_part = origin == "product"  # where none of them is scores
        for y in _tensors(out):
            mark = next((m for m in marks if m.is_scores), None) if origin == "product" and not is_new else None
            if mark is None:
                if origin is not None or hasattr(y, "_attnscope_mark"):
                    self.set_mark(y, _Mark(origin, axes, steps, reduced=is_part, outer="outer" in origins, factors=factors))
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
                     outer=mark.is_outer, factors=mark.factors, pooled=mark.pooled if y.numel() == x.numel() else None)
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
                self.follow_added(record, name, func, x, args, kwargs, y)
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
        elif name in WEIGHTED and not {-1, x.dim() - 1} & set(mark.axes) or name.startswith("conv"):
            record.after.append("mix")  # a map over heads: what comes out is a softmax of no scores
        elif name in NORMS:
            # Where nothing is hidden, rows that sum to no 1 are what the norm is for; else it gives hidden keys a weight.
            record.after += [name] if record.hides() else [name, "mix"]
        elif name not in VIEWS:
            record.after.append(name)
        self.follow_added(record, name, func, x, args, kwargs, y)
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
            if self.is_weighed(record, other, summed, (query, key), x.dim()):
                continue
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
            if record.added is not None and record.added.shape == x.shape:
                self.reserve(self.place(), row.shape, "what is added to the pattern")
                record.added = self.copy(self.rows(record.added, (query, key))[0])
            weighed = _weighed(name, args, kwargs, x, other, key, out) if self.keep_values else None
            if (query, key) != mark.axes:
                # the scores were laid out as [key, query]: what was thought a query is a key
                record.scores = None if record.scores is None else record.scores.transpose(-1, -2).contiguous()
                record.pattern = record.pattern.transpose(-1, -2).contiguous()
                swapped = {"keys": "queries", "queries": "keys"}
                record.info["axis"] = swapped.get(record.info["axis"], record.info["axis"])
                record.info["transposed"] = True
                record.values = {{"rot_q": "rot_k", "rot_k": "rot_q"}[what]: value for what, value in record.values.items()}
            if row.shape == record.pattern.shape:
                record.pattern = self.copy(row)
                record.info["dtype"] = _dtype(x)
            if weighed is not None:
                self.keep_value(record, "v", weighed[0])
                self.keep_value(record, "z", weighed[1])
            self.set_mark(x, NO_MARK)
            self.spent[id(x)] = weakref.ref(x)
        return None

    def is_spent(self, x):
        """Whether a tensor is a pattern that has weighed something already."""
        kept = self.spent.get(id(x))
        return kept is not None and kept() is x

    def is_weighed(self, record, other, summed, axes, n_axes):
        """Whether a pattern stands in the place of values of another one, as in attention to both sides (BiDAF): then nothing tells
        which of its axes are queries, and it is judged no more."""
        if record is None or other is None or summed is None:
            return False
        of_other = _mark(other).record
        if of_other is record or of_other is None and not self.is_spent(other):
            return False
        at = {"queries": 0, "keys": 1}.get(record.info["axis"])
        if at is None or axes[at] - n_axes * (axes[at] >= 0) in summed:
            return False
        self.records = [each for each in self.records if each is not record]
        self.skip(record.frame, None, None, "a pattern that another pattern weighs: nothing tells its queries from its keys")
        return True

    def add_written_out(self, x, other, mark, axes):
        """Attention without a softmax call: scores that went through anything else and are now multiplied by values."""
        frame = self.place()
        steps = [step for step in mark.steps if step not in SCORE_STEPS]
        is_linear = not steps and mark.scores is None
        ordered = _ordered(x, axes)
        if other is None or self.is_weight(other) or not self.wants(frame):
            return
        lengths = {n for above in self.stack for n in above.lengths}
        # Sums over features are scores of positions, and sums over positions are features.
        are_scores = mark.factors is not None and set(ordered.shape[-2:]) <= lengths and mark.factors[0].shape[-1] not in lengths
        is_turned = is_linear and axes != mark.axes  # scores whose keys became their queries
        if is_linear and (is_turned and not are_scores or mark.is_outer or x.dim() > 4):
            # the state of a recurrence, rather than attention; or keys and values, multiplied with queries
            if is_turned and not mark.is_outer and mark.factors is not None and not are_scores:
                self.note_linear(frame)
            return
        if not mark.steps and axes != mark.axes and not is_turned or "softmax" in mark.steps and x.dim() > 2:
            return
        if self.rejects(ordered, mark, fewest=2) is not None or is_linear and ordered.shape[-1] not in lengths:
            return
        row, n_rows = self.rows(x, axes)
        pattern = self.copy(row)
        scores = pattern.clone() if is_linear else mark.scores
        if scores is not None and axes != mark.axes and not is_linear:
            scores = scores.transpose(-1, -2).contiguous()
        if scores is not None and scores.shape != pattern.shape:
            scores = None
        self.reserve(frame, row.shape, "scores and pattern" if scores is not None else "pattern", 1 + (scores is not None))
        dim = {"keys": axes[1], "queries": axes[0]}
        axis = _summed_axis(pattern)
        record = self.add(frame, {
            "kind": "linear" if is_linear else "written-out", "dim": x.dim() + dim[axis] if axis in dim else None, "axis": axis,
            "shape": list(x.shape), "dtype": _dtype(x), "scores_dtype": mark.dtype or _dtype(x), "dropout_p": mark.p,
            "is_causal": None, "has_mask": None, "scale": None, "steps": list(mark.steps), "where": _written_at()}, row.shape)
        self.keep(record, scores, pattern)
        # Products of no features: nothing may have come between them and the values.
        if (axes == mark.axes or is_turned) and bool((pattern < 0).any()):
            self.keep_factors(record, mark.factors[::-1] if is_turned else mark.factors)

    # The file.

    def told(self):
        """What was passed over and should be known, once for modules of one number or another."""
        alike = {}
        for entry in self.skipped.values():
            if entry.get("tell"):
                shape = f" {entry['shape']}" if entry["shape"] else ""
                alike.setdefault((re.sub(r"\d+", "#", entry["module"]), shape, entry["why"]), []).append(entry["module"])
        return [f"{modules[0]}{f' and {len(modules) - 1} more like it' if len(modules) > 1 else ''}{shape}: {why}"
                for (_, shape, why), modules in alike.items()]

    def nothing_seen(self):
        """Why there is no attention to write."""
        told = self.told()
        passed = [f"{s['module']} {s['shape']}: {s['why']}" for s in self.skipped.values() if not s.get("tell")]
        return (f"no attention was captured in {type(self.model).__name__}"
                + ("" if self.root_calls else ": the model was not called")
                + (f" in the modules that only={self.only.pattern!r} finds" if self.only else "")
                + "".join(f"; {one}" for one in told)
                + (f"; softmaxes passed over: {'; '.join(passed)}" if passed else "")
                + "; what is looked for is a softmax of a product of queries and keys, or scaled_dot_product_attention")

    def _note_unseen(self):
        """Modules that ran, are called attention and hold projections, and in which nothing was seen."""
        self.records = [record for record in self.records if record.pattern is not None]  # or its recording failed
        for record in self.records:
            if record.scores is not None and record.scores.shape != record.pattern.shape:
                record.scores = None
            if record.added is not None and record.added.shape != record.pattern.shape:
                record.added = None
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
                self.skip(path or type(self.model).__name__, None, None, "it looks like attention and ran, and no attention was seen in it: a kernel called "
                          "directly, or attention that makes no matrix of queries by keys", tell=True)
        self.tell_linear()

    def _write(self):
        told = any(entry.get("tell") for entry in self.skipped.values())
        if not self.records and not (told and self.root_calls):
            raise _NothingSeen(self.nothing_seen())
        tensors = {}
        self.turn_ids()
        for record in self.records:
            positions = self.positions_of(record)
            if positions is not None:
                record.info["positions"] = positions
        self._find_cross()
        self.records = _stacked(self.records)
        self._find_padding_that_is_seen()
        for name, records in _names(self.records).items():
            for what in ("pattern", "scores", "sinks", "added", "rot_q", "rot_k", "v", "z"):
                parts = [record.values[what] if what in record.values else getattr(record, what, None) for record in records]
                if all(part is not None for part in parts):
                    tensors[f"{name}.{what}"] = parts[0] if len(parts) == 1 else torch.cat(parts)  # [head, query, key]
            for head, record in enumerate(records):
                record.info = {"name": name, **({"head": head} if len(records) > 1 else {}), **record.info}
                if record.after:
                    record.info["after"] = record.after
                if record.values_are_alike():
                    record.info["alike_values"] = True
                if record.reshapes:
                    record.info["heads_moved"] = record.reshapes
            self._add_around(name, records, tensors)
        if self.logits is not None and self.logits.shape[0] in {record.pattern.shape[1] for record in self.records}:
            tensors["logits"] = self.logits
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
        shape = None if tokens is None else tokens.shape
        if shape is None and self.attends_along_batch:
            shape = self.order.of_vectors
        metadata = {
            "attnscope.capture": "1", "attnscope.source": _source(self.model), "attnscope.calls": json.dumps(calls),
            "attnscope.dtype": ",".join(dtypes) or None,
            "attnscope.skipped": json.dumps([{k: v for k, v in s.items() if k != "tell"} for s in self.skipped.values()])
            if self.skipped else None,
            "attnscope.changed": json.dumps(self.changed) if self.changed else None,
            "attnscope.discarded": json.dumps(list(self.discarded.values())),
            "attnscope.softmax_axis": axes.pop() if len(axes) == 1 else None,
            "attnscope.dropout_p": repr(dropped) if dropped else None,
            "attnscope.training": _said({str(call["training"]).lower() for call in calls}),
            "attnscope.random": self.draws.told(self.model),
            "attnscope.draws": json.dumps(sorted(self.drawn)) if self.drawn and self.draws.paths else None,
            "attnscope.is_causal": _said(is_causal),
            "attnscope.sinks": "1" if any(call.get("sink_columns") for call in calls) else None,
            "attnscope.untrained": _looks_untrained(self.model),
            "attnscope.linear": json.dumps(self.linear_alone()) if self.linear_alone() else None,
            "attnscope.absent_masks": ",".join(self.absent_masks) or None,
            "attnscope.tokens_shape": ",".join(map(str, shape)) if shape is not None else None,
            "attnscope.first_axis": ",".join(map(str, self.order.of_vectors)) if self.is_told_by_attention else None,
            "attnscope.attention_mask_name": self.found.get("attention_mask_name")}
        for name, texts in labels.items():
            metadata["attnscope." + name] = json.dumps(texts, ensure_ascii=False)
        for name, value in self.declared.items():
            metadata["attnscope." + name] = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        _save(self.path, tensors, metadata)

    def turn_ids(self):
        """Ids that are [position, batch], as the run has shown, become [batch, position]; those that were taken for it before the run,
        and are not, become what they were."""
        sizes = [(*record.pattern.shape[1:], record.info.get("shape", ())) for record in self.records]
        self.attends_along_batch = self.order.attends_along_batch(sizes)
        self.is_told_by_attention = self.order.is_told_by_attention(sizes)
        self.is_position_first = self.order.is_position_first(sizes)
        if self.is_position_first != self.order.is_told:
            for name in ("tokens", "decoder_tokens", "attention_mask"):
                x = self.found.get(name)
                if x is not None and x.dim() == 2:
                    self.found[name] = x.T

    def _find_cross(self):
        """Which attentions look at another sequence: one that all layers share, that is longer or shorter, or seen without order.

        A module that norms its queries alone makes keys of another activation of the same sequence. And a module in which several
        attentions ran was given the sequences of all of them, which says nothing of one.
        """
        for record in self.records:
            of_queries, of_keys = (record.made_of.get(what, (None, 0))[0] for what in ("rot_q", "rot_k"))
            if of_queries is not None and of_keys is not None and not _is_alike(of_queries, of_keys):
                self.other_sources.append(of_keys)
        frames = [record.frame for record in self.records if record.frame is not None]
        sources = [record.key_source[1] for record in self.records if record.key_source is not None]
        for record in self.records:
            if record.key_source is None or sum(frame is record.frame for frame in frames) > 1 or record.values_are_of_queries():
                continue
            is_shared = sum(source is record.key_source[1] for source in sources) > 1
            _, n_queries, n_keys = record.pattern.shape
            # A query that is padding may see nothing, which a softmax of equal scores shows as the same for every key.
            is_even = record.pattern.amax(-1, keepdim=True) == record.pattern.amin(-1, keepdim=True)
            is_unordered = bool(((record.pattern.triu(1) != 0) & ~is_even).any())
            record.is_cross = is_shared or n_queries != n_keys or is_unordered
        for record in self.records:
            record.frame = record.key_source = None
            record.made_of = {}

    def _find_padding_that_is_seen(self):
        """Padding that nothing tells, and that is all that some attention looks at: one token over and over at an end of the row.

        Padding that attention hides is found by what it hides; a mask that is the wrong way round hides all but that.
        """
        tokens = self.found.get("tokens") if self.given["tokens"] is None else torch.as_tensor(self.given["tokens"])
        row = self._position_row(tokens, [n for record in self.records for n in record.pattern.shape[1:]])
        if row is None or self.given["attention_mask"] is not None or "attention_mask" in self.found or len(row) < 4:
            return
        for pad in {int(row[0]), int(row[-1])}:
            pads = row == pad
            is_at_an_end = int((pads[1:] != pads[:-1]).sum()) == 1
            if not is_at_an_end or int(pads.sum()) < 2 or int((~pads).sum()) < 2:
                continue
            for record in self.records:
                _, n_queries, n_keys = record.pattern.shape
                if n_keys == len(row) and n_queries > 2 and bool((record.pattern[..., ~pads] == 0).all()) and bool(
                        (record.pattern[..., pads] != 0).any(1).all()):
                    self.found["attention_mask"], self.found["attention_mask_name"] = (~pads)[None], f"tokens of id {pad} at one end"
                    return

    def _position_row(self, x, lengths):
        if x is None:
            return None
        x = torch.as_tensor(x).detach().cpu()
        if x.dim() == 2:
            position_first = x.shape[1] not in lengths and x.shape[0] in lengths  # [position, batch]
            x = x.T if position_first else x
            x = x[min(self.row, x.shape[0] - 1)]
        return x.to(torch.int64).contiguous() if x.dim() == 1 else None  # [position]


def _mixes_heads(name, x, mark, y):
    """Whether a layer with weights maps the heads of scores alone: a 1 x 1 convolution, say, or a linear map with heads last."""
    if not mark.is_scores or x.dim() != 4:
        return False
    queries, keys = mark.axes
    if name == "linear" or name in PRODUCT:
        return -1 not in (queries, keys)
    return name == "conv2d" and (queries, keys) in ((-2, -1), (-1, -2)) and y.shape[-2:] == x.shape[-2:]
