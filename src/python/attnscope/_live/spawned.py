"""The process that `attnscope FILE.py:NAME` starts."""

from __future__ import annotations

import os
import sys

from .channel import Channel
from .loading import Target, forget, own_files
from .serving import serve


def main(connection, target):
    sys.argv = [target.rpartition(":")[0]]
    before = set(sys.modules)

    def adapter():
        from .pytorch import Subject

        forget(before | _frameworks())
        parsed = Target(target)
        held = parsed.load()
        return Subject.of(held, name=target, files=own_files(before) or [parsed.file])

    serve(Channel(connection), adapter)
    sys.stdout.flush()
    # threads of the person's code, a data loader's for instance, must not keep the process
    os._exit(0)


def _frameworks():
    return {name for name in sys.modules if name.partition(".")[0] in ("torch", "numpy", "transformers")}
