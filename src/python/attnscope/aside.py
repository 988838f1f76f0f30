"""Runs a forward pass beside the real one: for code that cannot be watched while it runs, such as compiled code."""

import contextlib
import sys

import torch
from torch import nn

_FAST_PATHS = (nn.MultiheadAttention, nn.TransformerEncoderLayer)


def must_run_aside(root):
    """Whether watching the pass itself could change it: compiled code would be compiled again, a fused path not be taken."""
    return has_compiled(root) or has_fast_paths(root)


def has_fast_paths(root):
    """Whether a part of the model may take torch's fused path of evaluation."""
    return any(isinstance(m, _FAST_PATHS) and not m.training for m in root.modules())


def has_compiled(root):
    if "torch._dynamo" not in sys.modules:
        return False
    if any(hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None for m in root.modules()):
        return True
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("stats", {}).get("unique_graphs"))


def run_aside(module, args, kwargs):
    """Calls a module without gradients; random states, buffers and plain attributes are afterwards what they were."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_kept(module))
        stack.enter_context(torch.no_grad())
        stack.enter_context(_own_random(module))
        stack.enter_context(_no_autocast_cache())
        stance = getattr(torch.compiler, "set_stance", None)
        if stance is not None and "torch._dynamo" in sys.modules:
            stack.enter_context(stance("force_eager"))
        return module(*args, **kwargs)


@contextlib.contextmanager
def _own_random(module):
    devices = sorted({p.device.index or 0 for p in module.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        yield


@contextlib.contextmanager
def _no_autocast_cache():
    """Casts of weights made here have no gradient: the real pass must not find them."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


@contextlib.contextmanager
def _kept(root):
    """Puts buffers, and plain attributes of modules, back afterwards: counters, lists of losses, running means."""
    modules = list(root.modules())
    attributes = [(vars(m), dict(vars(m))) for m in modules]
    contents = [(value, value.copy()) for _, before in attributes for key, value in before.items()
                if key not in _TORCH and type(value) in (list, dict, set)]
    buffers = [(m._buffers, dict(m._buffers)) for m in modules]
    tensors = [(b, b.detach().clone()) for _, before in buffers for b in before.values()
               if b is not None and not b.is_inference()]
    try:
        yield
    finally:
        for live, before in (*attributes, *buffers):
            live.clear()
            live.update(before)
        for value, before in contents:
            if value != before if not _holds_tensors(before) else True:
                _refill(value, before)
        with torch.no_grad():
            for tensor, before in tensors:
                if not torch.equal(tensor, before):  # batch norm changes its means without a new version
                    tensor.copy_(before)


def _holds_tensors(value):
    items = value.values() if isinstance(value, dict) else value
    return any(not isinstance(item, (int, float, str, bool, type(None))) for item in items)


def _refill(value, before):
    value.clear()
    if isinstance(value, list):
        value.extend(before)
    else:
        value.update(before)


# What nn.Module keeps in itself.
_TORCH = set(vars(nn.Module()))
