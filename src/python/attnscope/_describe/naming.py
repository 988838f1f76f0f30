"""Finds the stored tensors that hold what was read, so that a description can name them as they are."""

from __future__ import annotations

import re

import torch


class Stored:
    """The parameters and buffers of a model, in single precision, found by their values."""

    def __init__(self, leaves):
        self.by_name, self.by_size = {}, {}
        for node in leaves:
            value = node.value
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
                tensor = value.to(torch.float32).contiguous()
                self.by_name[node.name] = tensor
                self.by_size.setdefault(tensor.numel(), []).append(node.name)

    def holding(self, wanted):
        """Names of tensors whose values, in their order, are those of `wanted`."""
        flat = wanted.to(torch.float32).reshape(-1)
        return [name for name in self.by_size.get(flat.numel(), ())
                if torch.equal(self.by_name[name].reshape(-1), flat)]

    def one_name(self, by_layer, at=None):
        """A name with {layer} of the tensors that hold the values of each layer; None where there is none.

        `at` are the numbers of the layers, where they are not all.
        """
        return one_of([self.holding(values) for values in by_layer], at)


def one_of(names, at=None):
    """A name with {layer} that is among the names of each layer."""
    at = range(len(names)) if at is None else at
    if not all(names):
        return None
    for first in names[0]:
        if len(names) == 1 or all(first in others for others in names[1:]):
            return first
        for second in names[1]:
            found = in_words(first, second, at)
            if found is not None and all(in_layer(found, idx) in own for idx, own in zip(at, names)):
                return found
    return None


def in_words(first, second, at=(0, 1)):
    """The name with {layer} of two layers: `h.0.w` and `h.1.w` of layers 0 and 1 give `h.{layer}.w`."""
    a, b = re.split(r"(\d+)", first), re.split(r"(\d+)", second)
    if len(a) != len(b):
        return None
    differs = [i for i, (x, y) in enumerate(zip(a, b)) if x != y]
    if len(differs) != 1 or differs[0] % 2 == 0:
        return None
    place = differs[0]
    step, rest = divmod(int(b[place]) - int(a[place]), at[1] - at[0])
    start = int(a[place]) - step * at[0]
    if rest or step < 1 or start < 0 or str(int(a[place])) != a[place]:
        return None
    a[place] = "{" + (f"{step}*" if step > 1 else "") + "layer" + (f"+{start}" if start else "") + "}"
    return "".join(a)


def single(x):
    """Values as single precision holds them, without what rounding left of zeros."""
    return x.to(torch.float32)


def in_layer(template, idx):
    found = re.search(r"\{(?:(\d+)\*)?layer(?:\+(\d+))?\}", template)
    if found is None:
        return template
    number = int(found[1] or 1) * idx + int(found[2] or 0)
    return template[:found.start()] + str(number) + template[found.end():]


def in_layers(template, layers, n_parts=1):
    """Every name that a template stands for: of some layers, and of all heads or experts where it names one."""
    names = []
    for idx in layers:
        name = in_layer(template, idx)
        hole = next((hole for hole in ("{head}", "{expert}") if hole in name), None)
        names += [name.replace(hole, str(part)) for part in range(n_parts)] if hole else [name]
    return list(dict.fromkeys(names))


def heads_apart(stored, by_layer):
    """A name with {head} of tensors that hold one head each; `by_layer` has [head, ...] of each layer."""
    if by_layer[0].shape[0] < 2:
        return None
    whole = []
    for values in by_layer:
        per_head = [stored.holding(head) for head in values]
        if not all(per_head):
            return None
        found = None
        for first in per_head[0]:
            for second in per_head[1]:
                template = in_words(first, second)
                if template is None or "{layer}" not in template:
                    continue
                if all(in_layer(template, idx) in own for idx, own in enumerate(per_head)):
                    found = template.replace("{layer}", "{head}")
        if found is None:
            return None
        whole.append(found)
    if len(whole) == 1 or len(set(whole)) == 1:
        return whole[0]
    template = in_words(whole[0].replace("{head}", "\0"), whole[1].replace("{head}", "\0"))
    if template is None or any(in_layer(template, idx) != own.replace("{head}", "\0") for idx, own in enumerate(whole)):
        return None
    return template.replace("\0", "{head}")
