"""Stands in for attention kernels that torch does not hand over: flash_attn and flex_attention, wherever they are named."""

import functools
import sys

from . import kernels

# Modules that hold the originals.
_FLASH_HOMES = ("flash_attn", "flash_attn.flash_attn_interface", "flash_attn_interface", "flash_attn_2_cuda",
                "transformers.modeling_flash_attention_utils")
_FLEX_HOME = "torch.nn.attention.flex_attention"


class Patches:
    """For the length of a pass, known kernels are called through a stand-in, in every module that names them."""

    found = (None, ())

    def __init__(self, watch):
        self.watch, self.undo = watch, []

    def begin(self):
        self.watch.guarded(self.replace)

    def end(self):
        for place, name, original, stand_in in reversed(self.undo):
            if place.get(name) is stand_in:
                place[name] = original
        self.undo = []

    def replace(self):
        originals = _originals()
        if originals:
            for place, name in self.places(originals):
                original = place.get(name)
                if id(_plain(original)) not in originals:
                    continue
                read = originals[id(_plain(original))][1]
                self.put(place, name, original, self.stand_in(original, _plain(original), read))
        for place, name, function in _interfaces():
            self.put(place, name, function, self.interface(function))

    def places(self, originals):
        """Where kernels are named; looked for again when modules were imported since, or the kernels are others."""
        state = len(sys.modules), id(self.watch.root), frozenset(originals)
        if Patches.found[0] != state:
            Patches.found = state, _places(originals, self.watch.root)
        return Patches.found[1]

    def put(self, place, name, original, stand_in):
        self.undo.append((place, name, original, stand_in))
        place[name] = stand_in

    def stand_in(self, original, plain, read):
        watch = self.watch

        @functools.wraps(plain)
        def kernel(*args, **kwargs):
            if not watch.looks or watch.mode is None:
                return original(*args, **kwargs)
            watch.guarded(watch.kernel, read, plain, args, kwargs)
            watch.in_kernel += 1
            mode = watch.mode
            watch.pause()
            try:
                return original(*args, **kwargs)
            finally:
                watch.in_kernel -= 1
                if mode is not None:
                    watch.resume()

        return kernel

    def interface(self, function):
        """An attention of transformers: what it hides is read from its arguments."""
        watch = self.watch

        @functools.wraps(function)
        def attention(module, query, key, value, attention_mask=None, *args, **kwargs):
            n_before = len(watch.measured)
            out = function(module, query, key, value, attention_mask, *args, **kwargs)
            if watch.looks and len(watch.measured) == n_before:
                given = (module, query, key, attention_mask, kwargs)
                watch.guarded(watch.kernel, kernels.of_interface, function, given, {})
            return out

        return attention


def _plain(function):
    """What a compiled function was made from."""
    return getattr(function, "_torchdynamo_orig_callable", function)


def _originals():
    """{id of a kernel: (kernel, what reads its arguments)}."""
    found = {}
    for home in _FLASH_HOMES:
        module = sys.modules.get(home)
        for name in list(vars(module)) if module is not None else ():
            function = vars(module)[name]
            if callable(function) and getattr(function, "__name__", None) in kernels.FLASH:
                found[id(function)] = (function, kernels.of_flash)
    flex = getattr(sys.modules.get(_FLEX_HOME), "flex_attention", None)
    if flex is not None:
        found[id(flex)] = (flex, kernels.of_flex)
    return found


def _places(originals, root):
    """Every dictionary of a module, and of a part of the model, in which a kernel has a name."""
    places = []
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if names is None or getattr(module, "__name__", "").startswith(("torch._", "attnscope")):
            continue
        for name, value in list(names.items()):
            if callable(value) and (id(value) in originals or id(_compiled_from(value)) in originals):
                places.append((names, name))
    for part in root.modules():
        for name, value in list(vars(part).items()):
            if callable(value) and (id(value) in originals or id(_compiled_from(value)) in originals):
                places.append((vars(part), name))
    return places


def _compiled_from(value):
    try:
        return vars(value).get("_torchdynamo_orig_callable")
    except TypeError:
        return None


def _interfaces():
    """Entries of transformers' table of attentions that may hide what they do."""
    modeling = sys.modules.get("transformers.modeling_utils")
    table = getattr(modeling, "ALL_ATTENTION_FUNCTIONS", None)
    for place in (getattr(table, "_global_mapping", None), getattr(table, "_local_mapping", None)):
        for name, function in list((place or {}).items()):
            if name not in ("eager", "sdpa", "flex_attention") and "paged" not in name and callable(function):
                yield place, name, function
