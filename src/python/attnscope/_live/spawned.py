"""The process that `attnscope FILE.py:NAME` starts."""

from __future__ import annotations

import os
import sys
import time

from .arrays import Arrays, are_arrays
from .channel import Channel
from .faults import Unusable
from .loading import Target, forget, own_files
from .serving import serve


def main(connection, target):
    sys.argv = [target.rpartition(":")[0]]
    before = set(sys.modules)

    def adapter():
        forget(before | _frameworks())
        parsed = Target(target)
        held = parsed.load()
        facts = {"name": target, "files": own_files(before) or [parsed.file]}
        if are_arrays(held):
            return Arrays(held, parsed.found, parsed.again, **facts)
        first = held[0] if isinstance(held, (tuple, list)) and held else held
        if not hasattr(first, "named_modules"):
            raise Unusable("expected a torch.nn.Module, (model, tokenizer), (model, tokenizer, inputs) or a dictionary of arrays with a "
                           f"pattern or scores; found {type(first).__name__}")
        try:
            from .pytorch import Subject
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise Unusable(f"{sys.executable} has no torch: --python names the interpreter that has the packages of the model") from None
        return Subject.of(held, **facts)

    serve(Channel(connection), adapter, when_gone=_leave)
    sys.stdout.flush()
    # threads of the person's code, a data loader's for instance, must not keep the process
    os._exit(0)


def _leave():
    """Ends the process when nobody listens any more, also in the middle of a forward call."""
    time.sleep(2)
    os._exit(0)


def _frameworks():
    return {name for name in sys.modules if name.partition(".")[0] in ("torch", "numpy", "transformers")}
