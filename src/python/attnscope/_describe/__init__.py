"""Describes a model of PyTorch from one forward pass, so that attnscope opens it natively."""

from __future__ import annotations

import contextlib
import os

import torch
from torch import nn

from .. import _program
from .judging import LOGITS, Description, differences, differs_on_other_text, differs_on_shorter_text, ids_apart, judge
from .reading import NotIds, read
from .replay import Pass, rounded_constants, Unreplayed
from .shaking import Kept, shaken
from .tracing import Unnamed
from .watching import _logits_of, _quiet, watch
from .writing import HEADER, Written, save

__all__ = ["Description", "describe"]


def describe(model, example, path):
    """Writes a directory that attnscope opens natively, and says how near it is to the model.

    example   token ids [batch, position] or [position], or a tuple or dict of the arguments of the forward call
    path      the directory: attnscope.toml and model.safetensors are written there

    Watches one forward pass of `model`, finds what each parameter is for, runs the described model with the attnscope program
    and compares logits and patterns. Returns a Description: .exact, .logits, .patterns, .unnamed. Files of a description that is
    not exact end in .inexact; nothing is written where an operation has no name.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: expected a torch.nn.Module, found {type(model).__name__}")
    path = _checked(path)
    _program.find_program()  # what it says where there is none, it says before a long run
    args, kwargs = _arguments(example)
    args, kwargs, notes = _one_sequence(model, args, kwargs)
    if notes is None:
        return Description(why="rows of the batch see each other, along either axis of the example: logits change when one is left "
                           "out")
    with shaken(model) as first:
        found, kept = _described(model, args, kwargs, notes, path)
    if not first:
        return found
    if not found.exact or kept is None:
        # Only what the values at hand say: a gain of ones may be missing in it, or a bias of zeros.
        return _described(model, args, kwargs, notes, path)[0]
    own = {name: value.detach() for name, value in (*model.named_parameters(remove_duplicate=False),
                                                    *model.named_buffers(remove_duplicate=False))}
    save(path, {name: own[name] for name in kept.names})
    logits = differences(path, kept.reading, model, args, kwargs)
    found.logits = {key: max(found.logits[key], logits[key]) for key in logits}
    if not logits["relative"] <= LOGITS:
        return _described(model, args, kwargs, notes, path)[0]
    return found


def _described(model, args, kwargs, notes, path):
    """The Description of a model as it is, and what was kept of it: None where a tensor was written that the model does not hold.

    Constants that its code rounds are read as they would be unrounded first: most are told by a rule, which tables of fewer bits may hide.
    """
    watched = watch(model, args, kwargs)
    has_roundings = bool(rounded_constants(watched.nodes))
    found = _described_by(watched, (model, args, kwargs), notes, path, False)
    if found[0].exact or not has_roundings:
        return found
    again = _described_by(watch(model, args, kwargs), (model, args, kwargs), notes, path, True)
    if again[0].exact:
        for name in ("attnscope.toml.inexact", "model.safetensors.inexact"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(path, name))
        return again
    return _described_by(watch(model, args, kwargs), (model, args, kwargs), notes, path, False)  # the files that belong to it


def _described_by(watched, call, notes, path, rounds):
    """What `_described` gives, with constants that the code rounds rounded or not."""
    model, args, kwargs = call
    try:
        try:
            p = Pass(watched, rounds=rounds)
            reading = read(p)
        except NotIds:
            p = Pass(watched, own_rows=True, rounds=rounds)
            if not p.roots:
                raise
            reading = read(p)
            if not reading.is_values:
                reading.notes.append("the model reads no token ids: its tokens are the rows of the example, 0 to "
                                     f"{reading.n - 1}, and this describes it on the example alone")
        if not p.gives_own_logits():
            raise Unnamed("computed again from its operations, the model gives other logits: it depends on something that is not "
                          "seen, such as other libraries or state")
        reading.notes += notes
        written = Written(reading, p.leaves)
    except Unnamed as unnamed:
        names = [node.said() for node in unnamed.nodes]
        return Description(why=unnamed.why, unnamed=list(dict.fromkeys(names))), None
    except Unreplayed as unreplayed:
        return Description(why=str(unreplayed), unnamed=[unreplayed.node.said()]), None
    written.write(path)
    try:
        logits, patterns, first = judge(path, reading, p)
        why = None if first is None else f"the described model differs from the model, first at {first}"
        if why is None and reading.argument is not None and differs_on_other_text(path, reading, model, args, kwargs):
            why = "the described model differs from the model where the tokens of the example stand in another order"
        is_of_example = "angles" in written.parts or written.parts.get("bias", {}).get("by") == "pairs"
        if why is None and reading.argument is not None and is_of_example \
                and differs_on_shorter_text(path, reading, model, args, kwargs):
            why = "the described model differs from the model on a shorter text: what it does at a position depends on the length"
        if why is None and reading.argument is not None:
            apart = ids_apart(path, reading, model, args, kwargs, p)
            if apart:
                written.padding = " and ".join(map(str, apart))
                written.notes.append(f"the model treats id {written.padding} as padding and this description does not: give texts "
                                     "without it, or --attention-mask")
                written.write(path)
    except _program.CommandError as error:
        logits = patterns = first = None
        why = f"attnscope does not open the description: {error}"
    if why is not None:
        for name in ("attnscope.toml", "model.safetensors"):
            os.replace(os.path.join(path, name), os.path.join(path, name + ".inexact"))
    found = Description(path if why is None else None, logits, patterns, why=why, summary=_summary(written), parts=first)
    are_own = reading.argument is not None and all(name in written.stored.by_name for name in written.tensors)
    return found, Kept(list(written.tensors), reading) if are_own else None


def _checked(path):
    path = os.fspath(path)
    if os.path.isdir(path):
        own = {"attnscope.toml", "model.safetensors", "attnscope.toml.inexact", "model.safetensors.inexact"}
        others = sorted(set(os.listdir(path)) - own)
        if others:
            raise ValueError(f"{path}: expected a new or empty directory, found {others[0]} in it")
        toml = os.path.join(path, "attnscope.toml")
        if os.path.exists(toml):
            with open(toml, encoding="utf-8") as file:
                if file.readline() != HEADER:
                    raise ValueError(f"{toml}: expected none, or one that attnscope.describe wrote")
    elif os.path.exists(path):
        raise ValueError(f"{path}: expected a directory, found a file")
    return path


def _arguments(example):
    if isinstance(example, torch.Tensor):
        return ((example,) if example.dim() else (example[None],)), {}
    if isinstance(example, dict):
        return (), dict(example)
    if isinstance(example, tuple) and len(example) == 2 and isinstance(example[0], tuple) and isinstance(example[1], dict):
        return example
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    raise ValueError(f"example: expected token ids, or a tuple or dict of the forward call's arguments, found {type(example).__name__}")


def _one_sequence(model, args, kwargs):
    """The arguments with one sequence of their batch alone, and remarks on where it lies."""
    leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    main = next((x for x in tensors if not x.is_floating_point() and x.dtype != torch.bool), tensors[0] if tensors else None)
    if main is None:
        raise ValueError("example: expected at least one tensor, found none")
    if main.dim() < 2 or main.dim() == 2 and main.is_floating_point():  # [position] or [position, value]
        return args, kwargs, []
    # First rows that are apart at both ends: the first position of a causal model is apart as well. Then the first column alone,
    # since another column alone stands at another position.
    for axis, rows in ((0, (-1, 0)), (1, (-1, 0)), (1, (0,))):
        n = main.shape[axis]
        if n == 1 and axis == 0:
            return args, kwargs, []
        if axis == 1 and (main.shape[0] == 1 or n == 1):
            continue

        def alone(row, axis=axis, n=n):
            def cut(x):
                is_square = x.dim() == 2 and x.shape[0] == x.shape[1] and x is not main
                is_of_rows = x.dim() >= 2 or axis == 0 and n != main.shape[1]  # a vector may hold one value per row
                if axis == 1 and x is not main and x.dim() == 2 and x.shape[0] == n != x.shape[1]:  # a mask of padding: the batch first
                    return x.narrow(0, row, 1)
                return x.narrow(axis, row, 1) if x.dim() > axis and is_of_rows and x.shape[axis] == n and not is_square else x

            return torch.utils._pytree.tree_unflatten([cut(x) if isinstance(x, torch.Tensor) else x for x in leaves], spec)

        if all(_is_apart(model, (args, kwargs), alone(row % n), axis, row % n, n) for row in rows):
            said = ["the batch is the second axis of the example: attention runs along the first"] if axis else []
            return *alone(0), said
    if all(x.shape[:1] == (1,) for x in tensors if x.dim() >= 2):
        return args, kwargs, []
    if main.dim() in (2, 3) and main.shape[1] == 1:
        return args, kwargs, ["the batch is the second axis of the example: attention runs along the first"]
    return args, kwargs, None


def _is_apart(model, whole, alone, axis, row, n):
    """Whether a row alone gives the logits that it gives among the others."""
    try:
        with _quiet(model), torch.no_grad():
            both, one = (_logits_of(model(*args, **kwargs))[0] for args, kwargs in (whole, alone))
    except (RuntimeError, IndexError, ValueError, AssertionError):
        return False
    if both.dim() == 2 and one.dim() == 2 and not axis and both.shape[0] == n * one.shape[0]:  # a row for each token of the batch
        both, one = both.reshape(n, *one.shape), one[None]
    at = next((d for d in ((axis, 0) if axis else (0,)) if both.dim() > d and both.shape[d] == n and one.shape[d] == 1), None)
    if at is None:
        return False
    known = torch.isfinite(one)
    away = (both.narrow(at, row, 1) - one)[known]
    return bool(known.any()) and float(away.abs().max()) <= 1e-3 * max(1e-30, float(one[known].abs().max()))


def _sizes(s):
    return f"{s['n_layers']} layer{'s' * (s['n_layers'] != 1)} of {s['n_heads']} heads by {s['d_head']}"


def _summary(written):
    s = written.settings
    parts = [_sizes(s), s["mask"]]
    if written.encoder_settings is not None:
        parts[0] = f"an encoder of {_sizes(written.encoder_settings)}, a decoder of {parts[0]}"
    if s["n_kv_heads"] != s["n_heads"]:
        parts.append(f"{s['n_kv_heads']} kv heads")
    if "positions" in s or "positions" in written.parts:
        parts.append(f"positions: {s.get('positions', 'learned')}")
    if "bias" in written.parts:
        parts.append(f"scores with a bias by {written.parts['bias']['by']}")
    if "activation" in s:
        parts.append(s["activation"])
    if written.padding:
        parts.append(f"for texts without id {written.padding}, its padding")
    if written.reading.is_values:
        parts.append(f"reads rows of {written.reading.embedding.values.shape[1]} numbers (--values)")
    if written.reading.argument is None:
        parts.append("on the rows of the example alone")
    return ", ".join(parts)
