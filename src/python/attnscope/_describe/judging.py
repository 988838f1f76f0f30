"""Runs a described model natively and compares it with the model itself."""

from __future__ import annotations

import copy
import json
import os
import tempfile

import torch

from .. import _program
from .around import THEN
from .replay import VIEWS
from .watching import _logits_of, _quiet

# Where a description counts as exact: single precision, a few thousand operations apart.
LOGITS, PATTERNS = 1e-4, 1e-5


class Description:
    """What `describe` found.

    exact      whether the described model, run natively, gives the logits and patterns of the model itself
    logits     the largest differences: {"absolute": …, "relative": …}; None where nothing was compared
    patterns   the same of the patterns
    unnamed    operations that have no name in attnscope, with module and line of source
    why        why the model is not described exactly; None where it is
    path       the directory that was written; None where none was
    """

    __module__ = "attnscope"

    def __init__(self, path=None, logits=None, patterns=None, unnamed=(), why=None, summary="", parts=None):
        self.path, self.logits, self.patterns = path, logits, patterns
        self.unnamed, self.why, self.summary, self.first_difference = list(unnamed), why, summary, parts
        self.exact = bool(logits is not None and why is None)

    def __repr__(self):
        if self.exact:
            return (f"described exactly: {self.summary}\n"
                    f"logits within {self.logits['absolute']:.1e}, patterns within {self.patterns['absolute']:.1e}\n"
                    f"written to {self.path}: attnscope {self.path}")
        lines = [f"not described: {self.why}"]
        if self.logits is not None:
            lines.append(f"logits differ by up to {self.logits['absolute']:.1e}, patterns by {self.patterns['absolute']:.1e}")
        lines += [f"  {name}" for name in self.unnamed[:3]]
        if len(self.unnamed) > 3:
            lines.append(f"  and {len(self.unnamed) - 3} more: .unnamed lists them")
        return "\n".join(lines)


def differs_on_other_text(path, reading, model, args, kwargs):
    """Whether the model and its description part where the tokens of the example stand in another order."""
    leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    for part in _stacks(reading):
        if part.argument is None:
            continue
        at = _place(leaves, part)
        ids = leaves[at].reshape(part.n, -1) if part.is_values else leaves[at].reshape(-1)
        order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(1)).to(ids.device)
        leaves[at] = ids[order].reshape(leaves[at].shape)
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)
    return not differences(path, reading, model, args, kwargs)["relative"] <= LOGITS


def differs_on_shorter_text(path, reading, model, args, kwargs):
    """Whether the model and its description part on the first half of the example; False where the model takes no shorter text."""
    leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    n, short = reading.n, copy.copy(reading)
    if reading.encoder is not None or reading.is_values or reading.head.picked is not None or n < 4 \
            or reading.places.tolist() != list(range(n)):
        return False
    short.n = n // 2
    text = leaves[_place(leaves, reading)].reshape(-1)[:short.n]
    cut = [x.narrow(x.dim() - 1, 0, short.n) if isinstance(x, torch.Tensor) and x.dim() and x.shape[-1] == n else x for x in leaves]
    args, kwargs = torch.utils._pytree.tree_unflatten(cut, spec)
    try:
        with _quiet(model), torch.no_grad():
            own = _logits_of(model(*args, **kwargs))[0]
    except Exception:
        return False
    if own.numel() % short.n:
        return False
    return not _logits(_traced(path, text.tolist()), short, own)["relative"] <= LOGITS


def differences(path, reading, model, args, kwargs):
    """The differences of logits on some arguments."""
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    with _quiet(model), torch.no_grad():
        own = _logits_of(model(*args, **kwargs))[0]
    texts = [range(part.n) if part.argument is None else _text(part, leaves[_place(leaves, part)]) for part in _stacks(reading)]
    return _logits(_traced(path, *texts), reading, own)


def ids_apart(path, reading, model, args, kwargs, p):
    """Ids that the model treats unlike its description, such as that of padding: those that it compares its texts with."""
    found = []
    for part in _stacks(reading):
        for idx in () if part.is_values or part.argument is None else _compared(p, part.argument):
            leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
            at = _place(leaves, part)
            ids = leaves[at].reshape(-1).clone()
            ids[part.places[-1]] = idx
            leaves[at] = ids.reshape(leaves[at].shape)
            other_args, other_kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)
            if not differences(path, reading, model, other_args, other_kwargs)["relative"] <= LOGITS:
                found.append(idx)
    return sorted(set(found))


def _compared(p, text):
    """Ids that a text is compared with, among those that its table has."""
    moved, found = {text}, set()
    for node in p.nodes:
        inputs = node.inputs
        if node.kind == "call" and any(i in moved for i in inputs):
            op = p.op(node).split(".")[0]
            if op in VIEWS:
                moved.add(node)
            elif op in ("eq", "ne"):
                others = [getattr(a, "value", a) for a in node.args if a not in moved]
                found.update(int(x) for x in others if not isinstance(x, torch.Tensor) or x.numel() == 1)
    n_rows = min((arg.value.shape[0] for root in p.seen_from(text).roots for arg in root.inputs if isinstance(arg.value, torch.Tensor)
                  and arg.value.is_floating_point()), default=0)
    return sorted(idx for idx in found if 0 <= idx < n_rows)


def _stacks(reading):
    """The readings of encoder and decoder, or the only one."""
    return [part for part in (reading.encoder, reading) if part is not None]


def _text(part, value):
    """What a stack reads of an argument: ids, or rows of numbers."""
    return value.detach().cpu().reshape(part.n, -1) if part.is_values else value.reshape(-1).cpu()[part.places].tolist()


def _place(leaves, part):
    """Where among the arguments the one is that holds the ids of a stack."""
    return [at for at, x in enumerate(leaves) if isinstance(x, torch.Tensor)][int(part.argument.name)]


def judge(path, reading, p):
    """(differences of logits, of patterns, the first hook that differs) of a directory and a watched pass."""
    texts = [_text(part, part.argument.value) if part.argument is not None else _order(part) for part in _stacks(reading)]
    trace = _traced(path, *texts)
    logits = _logits(trace, reading, p.own_logits)
    patterns, first = {"absolute": 0.0, "relative": 0.0}, None
    for name, attention in _attentions(reading):
        own, order = attention.pattern, None if reading.head is None else reading.head.order
        found = _difference(trace[name].double(), own if order is None else own[:, order][..., order])
        if first is None and not found["absolute"] <= PATTERNS:
            first = name
        patterns = {key: max(patterns[key], found[key]) for key in patterns}
    if first is None and not logits["relative"] <= LOGITS:
        first = "logits"
    return logits, patterns, first


def _order(part):
    """The rows of the example in the order in which the described model reads them."""
    return list(range(part.n)) if part.head is None or part.head.order is None else part.head.order


def _attentions(reading):
    """Every attention with the hook of its pattern, in the order in which they run."""
    if reading.encoder is not None:
        yield from ((f"encoder.{name}", attention) for name, attention in _attentions(reading.encoder))
    stack = "" if reading.encoder is None else "decoder."
    for idx, layer in enumerate(reading.layers):
        if layer.attention is not None:
            yield f"{stack}blocks.{idx}.attn.pattern", layer.attention
        if layer.cross is not None:
            yield f"{stack}blocks.{idx}.cross_attn.pattern", layer.cross


def _traced(path, *texts):
    """Every hook of the described model, run natively on token ids, on those of source and target, or on rows of numbers."""
    with tempfile.TemporaryDirectory() as directory:
        tokens = []
        for flag, text in zip(("--tokens", "--target-tokens"), texts):
            if isinstance(text, torch.Tensor):
                rows = os.path.join(directory, "rows.csv")
                with open(rows, "w", encoding="utf-8") as file:
                    file.writelines(",".join(map(repr, row)) + "\n" for row in text.tolist())
                tokens += ["--values", rows]
            else:
                tokens += [flag, ",".join(str(int(i)) for i in text)]
        to = os.path.join(directory, "trace.safetensors")
        _program.run(["trace", os.fspath(path), *tokens, "--hooks", "all", "--output", to])
        return _loaded(to)


def _logits(trace, reading, own):
    """The differences of the logits, or of the hidden states of a model without a head."""
    head = reading.head
    if head.unembed is None:
        stack = "" if reading.encoder is None else "decoder."
        native = trace[f"{stack}blocks.{len(reading.layers) - 1}.resid_post"].double()
        native = native if reading.final_norm is None else reading.final_norm(native)
    else:
        native = trace["logits"].double()
    own = own.detach().to("cpu", torch.float64)
    n = reading.n
    if head.turned:
        own = own.reshape(-1, own.shape[-2], own.shape[-1])[0].T
    picked = list(range(n)) if head.picked is None else head.picked
    own = own.reshape(len(picked), -1)
    native = native[picked] if len(native) > 1 or n == 1 else native
    if head.then is not None:
        native = THEN[head.then](native, -1)
    return _difference(native, own)


def _loaded(path):
    """The arrays of single precision of a trace, which is safetensors: a length, a JSON header, the bytes."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    arrays = {}
    for name, about in header.items():
        if about.get("dtype") == "F32":
            start, end = about["data_offsets"]
            flat = torch.frombuffer(data, dtype=torch.float32, count=(end - start) // 4, offset=start) if end > start \
                else torch.zeros(0)
            arrays[name] = flat.reshape(about["shape"])
    return arrays


def _difference(a, b):
    if a.shape != b.shape:
        return {"absolute": float("inf"), "relative": float("inf")}
    largest = float((a - b).abs().max())
    return {"absolute": largest, "relative": largest / max(float(b.abs().max()), 1e-30)}
