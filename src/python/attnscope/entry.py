"""Where a forward pass begins: one hook on the model, there only while a pass is waited for."""

import contextlib
import gc
import sys

import torch
from torch import nn

from . import _capture as seen

_WRAPPERS = ("DistributedDataParallel", "DataParallel")


class Entry:
    """The module whose call is a pass.

    given      what the monitor was given
    module     the module that is hooked: below DistributedDataParallel, and not below torch.compile
    inner      the module that runs beside and names the paths
    innermost  the model of the user
    """

    def __init__(self, given):
        if not isinstance(given, nn.Module):
            raise TypeError(f"the monitor watches an nn.Module, not {type(given).__name__}")
        self.given = self.module = given
        while type(self.module).__name__ in _WRAPPERS:
            self.module = self.module.module
        self.inner = self.module
        while True:
            below = self.inner._modules.get("_orig_mod")
            if below is None and type(self.inner).__name__ in _WRAPPERS:
                below = self.inner.module
            if below is None:
                break
            self.inner = below
        self.innermost = self.inner
        while hasattr(self.innermost, "_fsdp_wrapped_module"):
            self.innermost = self.innermost._fsdp_wrapped_module
        self.undo = []

    def find_compiled(self):
        """Moves to the module that torch.compile has since made of the model; false where there is none."""
        if "torch._dynamo" not in sys.modules:
            return False
        for found in gc.get_objects():
            if type(found).__name__ == "OptimizedModule" and found._modules.get("_orig_mod") is self.module:
                self.disarm()
                self.module = found
                return True
        return False

    def move_to_compiled(self, enter):
        """Moves to the first part of the model that is compiled; false where there is none."""
        for part in self.inner.modules():
            if "_orig_mod" in part._modules or getattr(part, "_compiled_call_impl", None) is not None:
                self.disarm()
                self.module, self.inner = part, part._modules.get("_orig_mod", part)
                self.innermost = self.inner
                self.arm(enter)
                return True
        return False

    @property
    def is_armed(self):
        return bool(self.undo)

    def arm(self, enter):
        if self.undo:
            return
        compiled = vars(self.module).get("_compiled_call_impl")
        if compiled is not None:  # module.compile(): its hooks are inside the compiled code
            stand_in = _CompiledCall(self.module, compiled, enter)
            self.module._compiled_call_impl = stand_in
            self.undo.append(lambda: self.put_back(stand_in, compiled))
            return
        hook = _EnterHook(enter)
        self.undo.append(self.module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def put_back(self, stand_in, compiled):
        if vars(self.module).get("_compiled_call_impl") is stand_in:
            self.module._compiled_call_impl = compiled

    def disarm(self):
        for undo in self.undo:
            undo()
        self.undo = []

    def is_compiled_call(self, module):
        """Whether this call runs compiled code, or is about to."""
        return (module is not self.inner or vars(module).get("_compiled_call_impl") is not None
                or self.module is not self.inner or _is_in_compiled_frame())

    def when_left(self, module, leave):
        """Calls leave(output, args, kwargs, is_whole) when the module's present call ends."""
        handle = None

        def hook(module, args, kwargs, output):
            handle.remove()
            leave(output, args, kwargs, output is not None or sys.exc_info()[0] is None)

        handle = module.register_forward_hook(hook, with_kwargs=True, always_call=True)


def _is_in_compiled_frame():
    """Whether this frame was called with the compiler listening: torch.compile calls hooks of its module that way."""
    frames = sys.modules.get("torch._C._dynamo.eval_frame")
    get = getattr(frames, "get_eval_frame_callback", None)
    return get is not None and callable(get())


@contextlib.contextmanager
def _uncompiled():
    """The compiler does not listen within the block."""
    frames = sys.modules.get("torch._C._dynamo.eval_frame")
    put = getattr(frames, "set_eval_frame", None)
    if put is None or "torch._dynamo" not in sys.modules:
        yield
        return
    before = put(None)
    try:
        yield
    finally:
        put(before)


class _EnterHook:
    """A hook that is nothing in a copy of its model, and in a file of it."""

    def __init__(self, enter):
        self.enter = enter

    def __call__(self, module, args, kwargs):
        if not seen._is_dynamo():
            with _uncompiled():
                self.enter(module, args, kwargs)

    def __deepcopy__(self, _):
        return _nothing()

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")


def _nothing():
    """Takes any arguments and does nothing; a file of it needs no attnscope to be read."""
    return contextlib.nullcontext().__exit__


class _CompiledCall:
    """Stands before the compiled code of a module for one pass."""

    def __init__(self, module, compiled, enter):
        self.module, self.compiled, self.enter = module, compiled, enter

    def __call__(self, *args, **kwargs):
        self.enter(self.module, args, kwargs)
        return self.compiled(*args, **kwargs)


def _skip_frames():
    """The compiler leaves the hook's own frame alone, also where it must compile all that it sees."""
    skip = getattr(getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None), "skip_code", None)
    if skip is not None:
        for function in (_EnterHook.__call__, _CompiledCall.__call__):
            skip(function.__code__)


_skip_frames()
