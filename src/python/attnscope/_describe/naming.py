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

    def one_name(self, by_layer):
        """A name with {layer} of the tensors that hold the values of each layer; None where there is none."""
        names = [self.holding(values) for values in by_layer]
        if not all(names):
            return None
        for first in names[0]:
            if len(names) == 1 or all(first in others for others in names[1:]):
                return first
            for second in names[1]:
                template = _template(first, second)
                if template is not None and all(_in_layer(template, idx) in own for idx, own in enumerate(names)):
                    return template
        return None


def _template(first, second):
    """The name with {layer} of two layers that follow each other: `h.0.w` and `h.1.w` give `h.{layer}.w`."""
    a, b = re.split(r"(\d+)", first), re.split(r"(\d+)", second)
    if len(a) != len(b):
        return None
    differs = [i for i, (x, y) in enumerate(zip(a, b)) if x != y]
    if len(differs) != 1 or differs[0] % 2 == 0:
        return None
    at = differs[0]
    start, step = int(a[at]), int(b[at]) - int(a[at])
    if step < 1 or str(start) != a[at]:
        return None
    a[at] = "{" + (f"{step}*" if step > 1 else "") + "layer" + (f"+{start}" if start else "") + "}"
    return "".join(a)


def _in_layer(template, idx):
    found = re.search(r"\{(?:(\d+)\*)?layer(?:\+(\d+))?\}", template)
    if found is None:
        return template
    number = int(found[1] or 1) * idx + int(found[2] or 0)
    return template[:found.start()] + str(number) + template[found.end():]


def in_layers(template, n_layers, n_heads=1):
    """Every name that a template stands for."""
    names = []
    for idx in range(n_layers):
        name = _in_layer(template, idx)
        names += [name.replace("{head}", str(head)) for head in range(n_heads)] if "{head}" in name else [name]
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
                template = _template(first, second)
                if template is None or "{layer}" not in template:
                    continue
                if all(_in_layer(template, idx) in own for idx, own in enumerate(per_head)):
                    found = template.replace("{layer}", "{head}")
        if found is None:
            return None
        whole.append(found)
    if len(whole) == 1 or len(set(whole)) == 1:
        return whole[0]
    template = _template(whole[0].replace("{head}", "\0"), whole[1].replace("{head}", "\0"))
    if template is None or any(_in_layer(template, idx) != own.replace("{head}", "\0") for idx, own in enumerate(whole)):
        return None
    return template.replace("\0", "{head}")
