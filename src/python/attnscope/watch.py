"""Watches one forward pass: sees every attention in it and measures its rows, and changes nothing."""

import threading

import torch
from torch.overrides import TorchFunctionMode

from . import _capture as seen
from . import kernels, masks
from .attention import measure
from .batch import Batch
from .marks import Marks, whole_mha
from .outputs import Outputs
from .padding import Padding, arguments
from .patches import Patches
from .unseen import unseen

# Probability that a mask leaves of what it hides, at most: rounding.
NO_MASS = 1e-6


class Watch:
    """One forward pass. `measured` holds what was seen, in the order of execution.

    root       the module whose paths name the attentions
    statistics what is recorded: beside rows, what comes of attention
    failed     called with the exception when something in here goes wrong; the pass itself goes on
    """

    def __init__(self, root, sampler, n_record, fields, failed, statistics=()):
        self.root, self.sampler, self.n_record, self.fields, self.failed = root, sampler, n_record, fields, failed
        self.measured, self.frames, self.is_off, self.in_kernel = [], [], False, 0
        self.thread = threading.get_ident()
        self.padding, self.batch = Padding(), Batch()
        self.outputs = Outputs(statistics, sampler.n_rows == 0)
        self.handles = []
        self.blind = None  # why something could not be looked at
        self.ran = {}  # modules that ran, by path
        self.mode = None

    # From the beginning to the end of the pass.

    def begin(self):
        weights = {seen._address(p) for p in self.root.parameters()} - {0}
        self.marks = Marks(weights, self.found)
        for path, module in self.root.named_modules():
            try:
                self.handles.append(module.register_forward_pre_hook(self.entering(path), with_kwargs=True))
                self.handles.append(module.register_forward_hook(self.leaving(module), always_call=True))
            except RuntimeError:  # a scripted module takes none
                continue
        self.patches = Patches(self)
        self.patches.begin()
        self.resume()

    def resume(self):
        self.mode = _Mode(self)
        self.mode.__enter__()

    def pause(self):
        """Stops looking at functions, if this is where looking began."""
        if self.mode is not None:
            mode, self.mode = self.mode, None
            mode.__exit__(None, None, None)

    def end(self):
        self.pause()
        self.patches.end()
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self.guarded(self.settle)
        self.frames = []

    def settle(self):
        with torch.no_grad(), _no_autocast():
            self.marks.settle()

    def guarded(self, step, *args):
        """Runs a step of the watch; what it raises turns the watch off and goes no further."""
        if self.is_off:
            return None
        try:
            with torch._C.DisableTorchFunction():
                return step(*args)
        except Exception as error:
            self.is_off = True
            self.failed(error)
            return None

    @property
    def looks(self):
        return not self.is_off and not self.in_kernel and threading.get_ident() == self.thread and not _in_backward()

    def ended(self, output):
        """What the whole pass shows beside its attention, once it gave its output."""
        def look():
            with torch.no_grad(), _no_autocast():
                real = self.real()
                # what predicts tokens of another sequence says nothing of the next token of this one
                is_cross = any(measured.is_cross or seen.CROSS.search(measured.path) for measured in self.measured)
                if not is_cross and not self.is_turned:
                    self.batch.left(output, real)

        self.guarded(look)
        return Ended(self.batch, self.real(), self.unseen())

    @property
    def is_turned(self):
        """Whether the tokens stand as [position, sequence], which no attention of the pass has."""
        shapes = {(measured.n_sequences, measured.shape[1]) for measured in self.measured}
        tokens = self.batch.tokens
        return tokens is not None and tuple(tokens.shape) not in shapes and tuple(tokens.shape[::-1]) in shapes

    def real(self):
        """Which tokens of the batch are real [sequence, position]; None where no mask was given."""
        tokens = self.batch.tokens
        return None if tokens is None else self.padding.find(*tokens.shape, False)

    def unseen(self):
        """Modules that look like attention and ran, in which none was seen: `path (class)`."""
        return unseen(self.ran, [measured.path for measured in self.measured])

    # Which modules are running, and with what inputs.

    def entering(self, path):
        def hook(module, args, kwargs):
            if not seen._is_dynamo() and threading.get_ident() == self.thread:
                self.guarded(self.enter, module, path, args, kwargs)

        return hook

    def enter(self, module, path, args, kwargs):
        self.frames.append(seen._Frame(module, path, list(seen._tensors((args, kwargs)))))
        self.ran[path] = module
        if not _in_backward():
            self.read(module, path, args, kwargs)

    def read(self, module, path, args, kwargs):
        """What the arguments of a module tell of the batch."""
        named = arguments(module, path, args, kwargs)
        self.padding.read(named)
        with torch.no_grad():
            self.batch.read(named, is_root=not path)

    def leaving(self, module):
        def hook(_module, _args, output):
            if not seen._is_dynamo() and threading.get_ident() == self.thread:
                frame = None
                while self.frames and (frame is None or frame.module is not module):
                    frame = self.frames.pop()
                if frame is not None and not _in_backward():
                    self.guarded(self.left, frame, output)

        return hook

    def left(self, frame, output):
        with torch.no_grad(), _no_autocast():
            in_decoder = "decoder" in frame.path.lower()
            self.outputs.left(frame, output, lambda n, length: self.padding.find(n, length, in_decoder))

    @property
    def path(self):
        frames = [f for f in self.frames if not isinstance(f.module, (torch.nn.Softmax, torch.nn.Softmax2d))] or self.frames
        return frames[-1].path if frames else ""

    def is_length(self, n):
        return any(n in frame.lengths for frame in self.frames) or not self.frames

    def n_sequences(self, n_queries, lead):
        """How many sequences stand in the leading dimensions; None where the surroundings do not tell."""
        for frame in reversed(self.frames):
            for shape in frame.shapes:
                if len(shape) < 2 or n_queries not in shape[:2]:
                    continue
                n = shape[0] if shape[1] == n_queries else shape[1]
                if n and lead.numel() % n == 0:
                    return n
        return None

    # What was seen.

    def found(self, attention):
        if attention is None or attention.n_queries == 0 or attention.n_keys == 0:
            return
        self.padding.give(attention)
        self.batch.give(attention)
        measured = measure(attention, self.sampler, self.n_record, self.fields)
        self.outputs.found(attention, measured, self.frames)
        self.measured.append(measured)

    def after(self, name, func, args, kwargs, out):
        if name == "embedding" and self.batch.embedded is None:
            with torch.no_grad(), seen._own_modes():
                self.batch.looked_up(kwargs.get("input", args[0] if args else None))
        if self.outputs.waiting:
            with torch.no_grad(), _no_autocast(), seen._own_modes():
                self.outputs.after(name, args, kwargs, self.path, self.frames[-1].module if self.frames else self.root)
        if name not in seen.SOFTMAX and name not in seen.FUSED and name not in seen.PRODUCT:
            with torch.no_grad(), seen._own_modes():
                self.marks.follow(name, args, kwargs, out)
            return
        with torch.no_grad(), _no_autocast(), seen._own_modes():
            if name in seen.SOFTMAX:
                self.marks.softmax(args, kwargs, out, self.n_sequences, self.is_length, self.path)
            elif name in seen.FUSED:
                kernel = func.__name__.split(".")[0]
                names = (("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
                         if kernel == "scaled_dot_product_attention" else seen._argument_names(kernel))
                self.found(kernels.of_sdpa(self.path, names, args, kwargs, self.marks.scale_of))
            else:
                self.marks.follow(name, args, kwargs, out)

    def kernel(self, read, function, args, kwargs):
        """A kernel that is known by name: read from its arguments, and run unwatched."""
        with torch.no_grad(), _no_autocast(), seen._own_modes():
            self.found(read(self.path, function, args, kwargs, self.marks.scale_of))


class Ended:
    """What a pass shows beside its attention."""

    def __init__(self, batch, real, unseen):
        self.batch, self.real, self.unseen = batch, real, unseen

    def on_host(self, layers):
        """What a record has of it; `layers` are those of the log."""
        known = self.batch.on_host(self.real)
        axes = [next((member.over for member in layer.members if member.over != "keys"), None) for layer in layers]
        if any(axes):
            known["over"] = axes
        later = [_share_of_later(layer.members) for layer in layers]
        if any(later):
            known["later_rows"] = later
        shown = masks.of_layers(layers)
        if shown is not None:
            known["masks"] = shown
        return known


def _share_of_later(members):
    """The share of a layer's rows in which some head gives later keys anything; None where it is not known."""
    parts = [part["later_mass"] for member in members for part in member.parts if "later_mass" in part]
    if not parts:
        return None
    rows = torch.cat([(part > NO_MASS).any(0).cpu() for part in parts])
    return float(rows.double().mean()) if rows.numel() else None


class _Mode(TorchFunctionMode):
    """Sees every torch function between the beginning and the end of the pass."""

    def __init__(self, watch):
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        watch = self.watch
        if seen._is_dynamo() or not watch.looks:
            return func(*args, **kwargs)
        name = seen._name(func)
        if name in seen.SILENT:
            return func(*args, **kwargs)
        blind = seen._blind(args)
        if blind is not None:
            watch.blind = blind
            return func(*args, **kwargs)
        whole = watch.guarded(whole_mha, name, func)
        if whole is not None:
            with self:
                return whole(*args, **kwargs)
        out = func(*args, **kwargs)
        watch.guarded(watch.after, name, func, args, kwargs, out)
        return out


def _in_backward():
    """Whether this is the second run of a checkpointed layer, which the backward pass makes."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


class _no_autocast:
    """Computes in the types that tensors have, on every device."""

    def __enter__(self):
        self.before = {}
        for device in ("cpu", "cuda", "mps", "xpu"):
            try:
                if torch.is_autocast_enabled(device):
                    self.before[device] = True
                    torch.set_autocast_enabled(device, False)
            except (RuntimeError, TypeError):
                continue

    def __exit__(self, *_):
        for device in self.before:
            torch.set_autocast_enabled(device, True)
