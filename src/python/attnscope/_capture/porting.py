"""record: what modules gave, under the names of hooks."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import re
import warnings

import torch
from torch.overrides import TorchFunctionMode

from .axes import _name
from .matching import _general, _hook_of, _Matching, _read_trace
from .shared import _checked_path, _Draws, _hook, _is_dynamo, _is_ids, _said, _save, _source, _tensors
from .words import FUSED, PRODUCT, SOFTMAX


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
        tensors, self.matched, self.why = {}, {}, {}
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
            matching = _Matching(self)
            for hook, (tensor, source) in matching.found().items():
                if hook not in tensors:
                    tensors[hook], self.matched[hook] = tensor, source
            self.why = matching.why
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
        missing = sorted({_general(name) for name in self.missing})
        bare = [name for name in missing if name not in self.why]
        told += [f"nothing found for {name}: {self.why[name]}" for name in missing if name in self.why]
        return told + ([f"nothing found for {', '.join(bare)}"] if bare else [])


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
