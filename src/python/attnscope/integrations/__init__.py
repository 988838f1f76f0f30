"""Callbacks that attach the monitor to training loops of other libraries, one module for each.

Each module is imported when it is named, and says which library it lacks.
"""

import importlib

_MODULES = ("lightning", "transformers")


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}, expected {' or '.join(_MODULES)}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__():
    return sorted({*globals(), *_MODULES})
