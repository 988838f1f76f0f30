"""Names attentions as attnscope does: stack and number of the layer, from the paths of modules."""

from types import SimpleNamespace

from . import _capture as seen

_PREFIXES = (("encoder.blocks.", "encoder"), ("decoder.blocks.", "decoder"), ("blocks.", None))
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


class Layer:
    """One layer of the log: its name, place, and the attentions that make up its heads."""

    def __init__(self, name, stack, layer, members):
        self.name, self.stack, self.layer, self.members = name, stack, layer, members
        self.n_heads = sum(member.n_heads for member in members)

    @property
    def key(self):
        return self.stack, self.layer, self.name, self.n_heads

    def described(self, n_heads=None):
        return {"name": self.name, "stack": self.stack, "layer": self.layer, "n_heads": n_heads or self.n_heads}


def layers_of(measured):
    """[Layer] of the attentions of one pass, in the order of stacks and layers.

    A module that was called several times is as many layers.
    """
    records, calls = [], {}
    for attention in measured:
        path = plain_path(attention.path)
        call = calls[path] = calls.get(path, -1) + 1
        records.append(SimpleNamespace(path=path, attention=attention, pattern=SimpleNamespace(shape=attention.shape),
                                       info={"call": call}))
    repeated = {path for path, call in calls.items() if call}
    layers, unnamed = [], 0
    for name, members in seen._names(records).items():
        stack, number = _place(name)
        if number is None:
            number, unnamed = unnamed, unnamed + 1
        first = members[0]
        shown = f"{first.path}#{first.info['call']}" if first.path in repeated else first.path
        layers.append(Layer(shown or "model", stack, number, [member.attention for member in members]))
    if unnamed and unnamed < len(layers):
        return _counted(layers)
    order = {"encoder": 0, None: 1, "decoder": 2, "cross": 3}
    return sorted(layers, key=lambda layer: (order[layer.stack], layer.layer))


def _counted(layers):
    """Layers of which only some have a number: counted as they ran, in each stack."""
    counts = {}
    for layer in layers:
        layer.layer = counts[layer.stack] = counts.get(layer.stack, -1) + 1
    return layers


def _place(name):
    """(stack, layer) of a name like decoder.blocks.3.cross_attn; (None, None) for one that is a path."""
    for prefix, stack in _PREFIXES:
        number, _, kind = name.removeprefix(prefix).partition(".")
        if name.startswith(prefix) and number.isdigit() and kind in ("attn", "cross_attn"):
            return ("cross" if kind == "cross_attn" else stack), int(number)
    return None, None


def plain_path(path):
    """A module's path without the parts that wrappers add."""
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)
