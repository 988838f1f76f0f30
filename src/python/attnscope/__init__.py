"""attnscope from Python: watch the attention of a PyTorch model while it trains, or write it to a file once.

    Monitor(model, "run.jsonl", every=50, rows=64)   statistics of every head, every 50 steps, as a log
    capture(model, "trace.safetensors")              what every attention of one forward call did
    probe(model, ids, "probe.safetensors")           which modules notice a change of the input
    record(model, "port.safetensors", against=trace) what modules gave, under the names of hooks, for attnscope diff

Importing this module needs neither torch nor anything else; each name asks for what it needs when it is used.
"""

import importlib

__all__ = ["Monitor", "capture", "probe", "record"]

# Where each name lives, and the package that it needs.
_HOMES = {"Monitor": ("monitor", "torch")} | dict.fromkeys(["capture", "probe", "record"], ("_capture", "torch"))


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'attnscope' has no attribute {name!r}")
    home, needs = _HOMES[name]
    try:
        module = importlib.import_module(f"{__name__}.{home}")
    except ModuleNotFoundError as error:
        if error.name != needs:
            raise
        raise ImportError(f"attnscope.{name} needs {needs}, which is not installed: pip install {needs}") from error
    return getattr(module, name)


def __dir__():
    return sorted([*globals(), *_HOMES])
