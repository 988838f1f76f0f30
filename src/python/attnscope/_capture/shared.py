"""What capture, probe and record share: the state of torch, checks of arguments, the file."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import math
import os
import sys

import torch
from torch import nn

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
    elif isinstance(value, slice):
        yield from _tensors((value.start, value.stop, value.step))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name, None))


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
