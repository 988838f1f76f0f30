"""The monitor's log: JSON Lines, only ever added to, each line written whole."""

import json
import math
import os
import time


class Log:
    """Writes the head once, then one line for each recorded step.

    A log that is there already is continued: a line says that a new segment begins, and that later lines of an earlier step
    replace it.
    """

    def __init__(self, path):
        self.path = os.path.abspath(os.fspath(path))
        self.has_head, self.is_torn = _looked_at(self.path)
        self.file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        self.layers = None
        self.is_new_segment = self.has_head

    def write(self, head, record):
        """One record; `head` describes the layers that its values are of."""
        text = b""
        if self.is_torn:  # the line that a crash left half written
            text, self.is_torn = b"\n", False
        if not self.has_head:
            text += _line({"attnscope": "monitor", "version": 1, **head})
        elif self.is_new_segment or self.layers != head["layers"]:
            text += _line({"segment": {"step": record["step"], "time": record["time"], **head}})
        self.add(text + _line(record))
        self.has_head, self.is_new_segment, self.layers = True, False, head["layers"]

    def add(self, text):
        view = memoryview(text)
        while view:
            view = view[self.file.write(view):]

    def begin_segment(self):
        self.is_new_segment = self.has_head

    def close(self):
        self.file.close()


def _looked_at(path):
    """(whether a log is there, whether its last line is only half written); an error for any other file."""
    if not os.path.isdir(os.path.dirname(path)):
        raise FileNotFoundError(f"{os.path.dirname(path)} is no directory: {os.path.basename(path)} cannot be written there")
    if not os.path.isfile(path) or os.path.getsize(path) == 0:
        return False, False
    with open(path, "rb") as file:
        first = file.readline(1 << 24)
        file.seek(-1, os.SEEK_END)
        is_torn = file.read(1) != b"\n"
    if not first.endswith(b"\n") and first.startswith(b'{"attnscope":"monitor"'):
        raise ValueError(f"{path} ends within its first line: delete it, or give another path")
    try:
        is_log = json.loads(first).get("attnscope") == "monitor"
    except (ValueError, AttributeError):
        is_log = False
    if not is_log:
        raise ValueError(f"{path} exists and is no log of the monitor: give another path")
    return True, is_torn


def _line(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def number(value):
    """A float as reports write it: six digits, and words for what is no number."""
    if value is None:
        return None
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(f"{value:.7g}")


def numbers(value):
    """What a record holds, with its floats as reports write them."""
    if isinstance(value, dict):
        return {name: numbers(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(inner) for inner in value]
    return number(value) if isinstance(value, float) else value


def now():
    return round(time.time(), 3)
