"""Runs a described model natively and compares it with the model itself."""

from __future__ import annotations

import json
import os
import tempfile

import torch

from .. import _program
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
    at = next(i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and not x.is_floating_point()
              and x.dtype != torch.bool)
    ids = leaves[at].reshape(-1)
    order = torch.randperm(ids.numel(), generator=torch.Generator().manual_seed(1)).to(ids.device)
    leaves[at] = ids[order].reshape(leaves[at].shape)
    other_args, other_kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)
    with _quiet(model), torch.no_grad():
        own = _logits_of(model(*other_args, **other_kwargs))[0]
    return not _logits(_traced(path, leaves[at].reshape(-1).tolist()), reading, own)["relative"] <= LOGITS


def differences(path, reading, model, args, kwargs):
    """The differences of logits on the example itself."""
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    ids = next(x for x in leaves if isinstance(x, torch.Tensor) and not x.is_floating_point() and x.dtype != torch.bool)
    with _quiet(model), torch.no_grad():
        own = _logits_of(model(*args, **kwargs))[0]
    return _logits(_traced(path, ids.reshape(-1).tolist()), reading, own)


def judge(path, reading, p):
    """(differences of logits, of patterns, the first hook that differs) of a directory and a watched pass."""
    trace = _traced(path, range(reading.n) if p.own_rows else p.ids.value.reshape(-1).tolist())
    logits = _logits(trace, reading, p.own_logits)
    patterns, first = {"absolute": 0.0, "relative": 0.0}, None
    for idx, layer in enumerate(reading.layers):
        name = f"blocks.{idx}.attn.pattern"
        found = _difference(trace[name].double(), layer.attention.pattern)
        if first is None and not found["absolute"] <= PATTERNS:
            first = name
        patterns = {key: max(patterns[key], found[key]) for key in patterns}
    if first is None and not logits["relative"] <= LOGITS:
        first = "logits"
    return logits, patterns, first


def _traced(path, ids):
    """Every hook of the described model, run natively on token ids."""
    tokens = ",".join(str(int(i)) for i in ids)
    with tempfile.TemporaryDirectory() as directory:
        to = os.path.join(directory, "trace.safetensors")
        _program.run(["trace", os.fspath(path), "--tokens", tokens, "--hooks", "all", "--output", to])
        return _loaded(to)


def _logits(trace, reading, own):
    """The differences of the logits, or of the hidden states of a model without a head."""
    head = reading.head
    if head.unembed is None:
        native = trace[f"blocks.{len(reading.layers) - 1}.resid_post"].double()
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
        native = getattr(torch, head.then)(native, -1)
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
