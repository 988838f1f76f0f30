"""attnscope from Python: watch the attention of a PyTorch model while it trains, or write it to a file once.

    Monitor(model, "run.jsonl", every=50, rows=64)   statistics of every head, every 50 steps, as a log
    capture(model, "trace.safetensors")              what every attention of one forward call did
    open(model, tokenizer, "some text")              the screen on a model of this process, as it runs
    describe(model, ids, "out/")                     a directory that attnscope opens natively, from one forward pass
    probe(model, ids, "probe.safetensors")           which modules notice a change of the input
    record(model, "port.safetensors", against=trace) what modules gave, under the names of hooks, for attnscope diff
    show(checkpoint, "some text")                    the report of a checkpoint, in a notebook
    read("report.parquet")                           what the attnscope program wrote, as a pandas DataFrame

Importing this module needs neither torch nor anything else; each name asks for what it needs when it is used.
`python -m attnscope` runs the attnscope program.
"""

import importlib

__all__ = ["CommandError", "Monitor", "capture", "describe", "find_program", "open", "probe", "read", "record", "show"]

# Modules that are imported when they are named, and the package that each needs: attnscope.statistics.DEFAULT.
_MODULES = {"integrations": None, "statistics": "torch"}
# Where each name lives, and the package that it needs.
_HOMES = {
    "CommandError": ("_program", None),
    "Monitor": ("monitor", "torch"),
    "capture": ("_capture", "torch"),
    "describe": ("_describe", "torch"),
    "find_program": ("_program", None),
    "open": ("_live.opened", "torch"),
    "probe": ("_capture", "torch"),
    "read": ("tables", "pandas"),
    "record": ("_capture", "torch"),
    "show": ("notebook", None),
}


def __getattr__(name):
    if name == "__version__":
        return _version()
    if name in _MODULES:
        return _imported(name, name, _MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'attnscope' has no attribute {name!r}")
    home, needs = _HOMES[name]
    return getattr(_imported(name, home, needs), name)


def _imported(name, home, needs):
    """The module `home`; an error that names the package, where what `name` needs is not installed."""
    try:
        return importlib.import_module(f"{__name__}.{home}")
    except ModuleNotFoundError as error:
        if needs is None or error.name != needs:
            raise
        raise ImportError(f"attnscope.{name} needs {needs}, which is not installed: pip install {needs}") from error


def __dir__():
    return sorted({*globals(), *_MODULES, *_HOMES, "__version__"})


def _version():
    """The version that was installed; where nothing was, as in a source tree, that of the program."""
    from . import _program

    return _program.version()
