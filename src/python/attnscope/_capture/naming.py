"""Names of recorded attentions: which are layers of one stack, and which look at another sequence."""

from __future__ import annotations

import re

from .words import CROSS


SIDES = {"enc": "encoder", "dec": "decoder"}


def _names(records):
    """{name: [record, …]}: `blocks.{i}.attn` when each layer has one call, `<module.path>#<call>` otherwise.

    Several records under one name are modules of one head each, [head] of them in one layer.
    """
    stacks = {}
    paths = {record.path for record in records}
    is_cross = {}
    for record in records:
        parent, _, last = record.path.rpartition(".")
        is_cross[id(record)] = bool(CROSS.search(record.path)) or bool(getattr(record, "is_cross", None)) or (
            last == "multihead_attn" and f"{parent}.self_attn" in paths)  # nn.TransformerDecoderLayer
    crossed = {_before_number(record.path) for record in records if is_cross[id(record)]}
    for record in records:
        words = [word.lower() for word in record.path.split(".") if not CROSS.search(word)]
        side = next((s for word in words for s in ("decoder", "encoder") if s in word), "")
        side = side or next((SIDES[word[:3]] for word in words if re.fullmatch(r"(enc|dec)(_?(layers?|blocks?|stack))?", word)), "")
        if is_cross[id(record)]:
            side = "cross"
        elif _before_number(record.path) in crossed:
            side = "decoder"  # the layers that hold cross attention are a decoder, whatever they are called
        stacks.setdefault(side, []).append(record)
    if "cross" in stacks and "" in stacks and "encoder" not in stacks:
        stacks["encoder"] = stacks.pop("")  # what does not look across and is no decoder's
    if "cross" not in stacks and not ("encoder" in stacks and "decoder" in stacks):
        stacks = {"": records}
    prefixes = {"": "blocks.{}.attn", "encoder": "encoder.blocks.{}.attn", "decoder": "decoder.blocks.{}.attn",
                "cross": "decoder.blocks.{}.cross_attn"}
    named = {}
    for side, members in stacks.items():
        for layer, group in (_layers(members) or {}).items():
            named[prefixes[side].format(layer)] = group
    placed = {id(record) for group in named.values() for record in group}
    if len(placed) < len(records) and "" in stacks:
        named, placed = {}, set()
    for record in records:
        if id(record) not in placed:
            named[f"{record.path}#{record.info['call']}"] = [record]
    return named


def _before_number(path):
    return re.split(r"\d", path, maxsplit=1)[0]


def _layers(records):
    """{layer: [record, …]} from the numbers in the module paths; None when they do not tell the layers apart."""
    numbers = [[] if getattr(record, "is_root", False) else [int(n) for n in re.findall(r"\d+", record.path)] for record in records]
    if len({record.path for record in records}) < len(records) or not all(numbers):
        return None  # a module was called twice, or has no number
    if len({_before_number(record.path) for record in records}) > 1:
        return None
    same_shape = len({re.sub(r"\d+", "{}", record.path) for record in records}) == 1
    varying = [i for i in range(len(numbers[0])) if len({n[i] for n in numbers}) > 1] if same_shape else [0]
    if len(varying) > 2:
        return None
    layer_at = varying[0] if varying else 0
    layers = {}
    for record, number in zip(records, numbers):
        layers.setdefault(number[layer_at], []).append(record)
    if list(layers) != sorted(layers):
        return None
    if len(varying) < 2:
        return layers if all(len(group) == 1 for group in layers.values()) else None
    # One module per head: blocks.2.attn.heads.0, blocks.2.attn.heads.1, …
    one_shape = len({tuple(record.pattern.shape) for record in records}) == 1 and records[0].pattern.shape[0] == 1
    heads = {tuple(n[varying[1]] for r, n in zip(records, numbers) if r in group) for group in layers.values()}
    return layers if one_shape and len(heads) == 1 and list(*heads) == list(range(len(*heads))) else None
