"""The adapter for arrays that a person's code computed itself, with NumPy or anything else: nothing is watched, all is given."""

from __future__ import annotations

import inspect
import json
import os
import struct
import tempfile
from array import array

from .faults import Unusable

KINDS = ("pattern", "scores")


def are_arrays(held):
    """Whether a function gave arrays by name: {"pattern": …} or {"blocks.0.attn.pattern": …}."""
    return isinstance(held, dict) and any(str(name).split(".")[-1] in KINDS for name in held)


class Arrays:
    """Arrays by name, as a function gives them; the function runs again for each run, with the text where it takes one."""

    def __init__(self, held, function, again, *, name="", files=()):
        self.held, self.again, self.name, self.files = held, again, name, list(files)
        self.takes_text, self.takes_values = (name in _parameters(function) for name in ("text", "values"))

    def close(self):
        self.held = None

    def about(self):
        why = "the function takes no text: it gives what it computes"
        return {"name": self.name, "framework": "arrays", "model": "arrays", "parameters": 0, "dtype": "", "device": "cpu",
                "tokenizer": "the function's own" if self.takes_text else None, "files": self.files,
                "lacks": {"tokens": "arrays have the tokens that the function gives", "text": None if self.takes_text else why, "what_if": "arrays hold no code to change",
                          "probes": "arrays hold no code to run on other inputs", "reload": None}}

    def tokens(self, request):
        ids = request.get("ids")
        if ids is None:
            raise Unusable("the tokens of arrays are those that the function gives")
        return {"ids": ids, "labels": [str(token) for token in ids]}

    def run(self, request):
        if request.get("probes") or request.get("changes"):
            raise Unusable("arrays hold no code to change or to run on other inputs")
        text, values = request.get("text"), request.get("values")
        if values is not None and not self.takes_values:
            raise Unusable("the function takes no values: it gives what it computes; a parameter called values would be given the rows")
        if request.get("ids") is not None or text is not None and not self.takes_text:
            raise Unusable("the function takes no text and no tokens: it gives what it computes; a parameter called text would be given one")
        given = {name: value for name, value in (("text", text), ("values", values)) if value is not None}
        held = self.again(**given)
        if not are_arrays(held):
            raise Unusable(f"expected a dictionary of arrays with a pattern or scores, found a {type(held).__name__}")
        number, path = tempfile.mkstemp(prefix="attnscope-", suffix=".safetensors")
        with os.fdopen(number, "wb") as file:
            file.write(_safetensors(held))
        return {"text": text if self.takes_text else None, "values": values is not None}, path


def _parameters(function):
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _safetensors(held):
    """The arrays as a file, with the lists of texts among them as labels of tokens."""
    metadata, entries, data = {"attnscope.source": "arrays"}, {}, b""
    for name, value in held.items():
        if name in ("labels", "queries", "keys") and all(isinstance(text, str) for text in value):
            metadata[{"labels": "attnscope.labels", "queries": "attnscope.decoder_labels", "keys": "attnscope.labels"}[name]] = \
                json.dumps(list(value), ensure_ascii=False)
            continue
        if isinstance(value, str):
            metadata[f"attnscope.{name}"] = value
            continue
        value = value.tolist() if hasattr(value, "tolist") else value
        shape = _shape(value)
        flat = _flat(value)
        is_ids = name in ("tokens", "decoder_tokens", "attention_mask")
        raw = array("q" if is_ids else "f", [int(n) for n in flat] if is_ids else flat).tobytes()
        full = name if "." in name or is_ids or name == "logits" else f"{_layer(held)}.{name}"
        entries[full] = {"dtype": "I64" if is_ids else "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def _layer(held):
    """Where arrays without a layer stand: between two sequences, if queries and keys have texts of their own."""
    return "decoder.blocks.0.cross_attn" if "keys" in held and "queries" in held else "blocks.0.attn"


def _shape(value):
    shape = []
    while isinstance(value, (list, tuple)):
        shape.append(len(value))
        value = value[0] if value else None
    return shape


def _flat(value):
    if not isinstance(value, (list, tuple)):
        return [float(value)]
    return [number for item in value for number in _flat(item)]
