"""The description of a model beside its log, so that the checkpoints of a run open without a configuration."""

import os
import tempfile
import warnings

from ._capture.shared import _own_random


def beside(log, model, example):
    """Describes `model` once and writes attnscope.toml into the directory of `log`; says why where it cannot.

    A description that is there stays: it may have been corrected by hand.
    """
    directory = os.path.dirname(os.path.abspath(os.fspath(log)))
    path = os.path.join(directory, "attnscope.toml")
    if os.path.exists(path):
        return
    try:
        from ._describe import describe

        with tempfile.TemporaryDirectory(prefix="attnscope-") as own, _own_random(model):
            found = describe(model, example, os.path.join(own, "model"))
            if found.exact:
                with open(os.path.join(own, "model", "attnscope.toml"), encoding="utf-8") as file:
                    text = file.read()
                with open(path + ".tmp", "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(path + ".tmp", path)
                return
            why = str(found).splitlines()[0]
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    warnings.warn(f"attnscope: no attnscope.toml was written, checkpoints of this run need one: {why}", stacklevel=3)
