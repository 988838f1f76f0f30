"""Hands the monitor's numbers to loggers of experiments: TensorBoard, W&B and trackio.

    Monitor(model, "run.jsonl", log_to="tensorboard")      event files in tensorboard/run, beside the log
    Monitor(model, "run.jsonl", log_to="wandb")            the run of wandb.init
    Monitor(model, "run.jsonl", log_to=["trackio", writer])   several; objects are those of the loggers themselves

Each head statistic of a layer is three curves, each statistic of a layer one:

    attnscope/entropy/L3/mean, …/min, …/max        over the heads of layer 3
    attnscope/max_logit/L3/max                     score_max: what QK-Clip clips
    attnscope/resid_spread/L3
    attnscope/visible_keys/L3                      keys that a sampled query sees on average
    attnscope/loss
    attnscope/entropy/L3H7                         each head too, with log_heads=True
"""

import functools
import importlib
import math
import os
import types

from . import masks
from .statistics import OF_LAYERS

# The names that log_to knows, with the module of each and what installs it.
PACKAGES = {
    "tensorboard": ("torch.utils.tensorboard", "tensorboard"),
    "wandb": ("wandb", "wandb"),
    "trackio": ("trackio", "trackio"),
}
STEP = "attnscope/step"
# Curves under the name that the field has for them: the largest score of a head before its softmax is the max logit of QK-Clip, and of
# MuonClip with it (Kimi K2: Open Agentic Intelligence, arXiv 2507.20534, section 2.1).
CURVES = {"score_max": "max_logit"}


def opened(log_to, path, log_heads, writes):
    """The loggers, as functions of a record and its layers.

    Every process asks for the packages, so that all of them fail where one is missing; only the one that writes opens anything.
    """
    targets = log_to if isinstance(log_to, (list, tuple)) else [] if log_to is None else [log_to]
    found = []
    for target in targets:
        name = target.__name__ if isinstance(target, types.ModuleType) else target
        if isinstance(name, str):
            module = _package(name)
            if writes:
                found.append(_NAMED[target](module, path))
        else:
            found.append(_of_object(target))
    return [Receiver(logger, log_heads) for logger in found] if writes else []


def _package(name):
    if name not in PACKAGES:
        raise ValueError(f"log_to is {name!r}, expected {', '.join(PACKAGES)}, or an object of one of them")
    module, installed = PACKAGES[name]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"log_to={name!r} needs {installed}, which is not installed: pip install {installed}") from error


def _of_object(target):
    if hasattr(target, "add_scalar"):
        return TensorBoard(target)
    if hasattr(target, "define_metric") and hasattr(target, "log"):
        return Wandb(target)
    if callable(getattr(target, "log", None)):
        return Trackio(target)
    raise TypeError(f"log_to has {type(target).__name__!r} in it, expected {', '.join(PACKAGES)}, a SummaryWriter, a run of wandb or trackio")


class TensorBoard:
    name = "TensorBoard"

    def __init__(self, writer):
        self.writer = writer

    def log(self, step, time, curves):
        for name, value in curves.items():
            self.writer.add_scalar(name, value, step, walltime=time)

    def close(self):
        pass


class OwnTensorBoard(TensorBoard):
    """Event files beside the log. Where those of an earlier run are there, the first record replaces theirs from its step on."""

    def __init__(self, module, path):
        super().__init__(None)
        directory, name = os.path.split(os.path.abspath(os.fspath(path)))
        self.new = functools.partial(module.SummaryWriter, os.path.join(directory, "tensorboard", os.path.splitext(name)[0]))

    def log(self, step, time, curves):
        if self.writer is None:
            self.writer = self.new(purge_step=step)
        super().log(step, time, curves)
        self.writer.flush()

    def close(self):
        if self.writer is not None:
            self.writer.close()


class Wandb:
    """Rows of W&B have a number that only rises. Ours go into the row that the training is writing, and are drawn over a step of their
    own, so that the training's numbers stay what they are."""

    name = "W&B"

    def __init__(self, run):
        self.run, self.left_at = run, None
        run.define_metric(STEP, hidden=True)
        run.define_metric("attnscope/*", step_metric=STEP)

    def log(self, step, time, curves):
        if self.left_at == self.run.step:  # no row was written since: what is in this one would be replaced
            self.run.log({}, commit=True)
        self.run.log({**curves, STEP: step}, commit=False)
        self.left_at = self.run.step

    def close(self):
        pass


class Trackio:
    """Rows of trackio have a number that rises; each record is a row, with the step as a metric to draw it over."""

    name = "trackio"

    def __init__(self, run):
        self.run = run

    def log(self, step, time, curves):
        self.run.log({**curves, STEP: step})

    def close(self):
        pass


def _active(module):
    if getattr(module, "run", None) is None:
        raise RuntimeError("log_to='wandb' needs a run: call wandb.init(…) before the monitor is made")
    return module.run


def _trackio(module):
    current = getattr(getattr(module, "context_vars", None), "current_run", None)
    if current is not None and current.get() is None:
        raise RuntimeError("log_to='trackio' needs a run: call trackio.init(…) before the monitor is made")
    return Trackio(module)


_NAMED = {
    "tensorboard": OwnTensorBoard,
    "wandb": lambda module, _: Wandb(_active(module)),
    "trackio": lambda module, _: _trackio(module),
}


class Receiver:
    """One logger, as the monitor calls it."""

    def __init__(self, logger, log_heads):
        self.logger, self.log_heads = logger, log_heads
        self.name = f"logging to {logger.name}"

    def __call__(self, record, layers):
        self.logger.log(record["step"], record["time"], curves_of(record, layers, self.log_heads))

    def close(self):
        self.logger.close()


def curves_of(record, layers, log_heads=False):
    """{name: number} of a record; values that it lacks are left out."""
    curves = {} if record["loss"] is None else {"attnscope/loss": float(record["loss"])}
    for statistic, values in record["values"].items():
        for layer, of_heads in zip(layers, values):
            name = f"attnscope/{CURVES.get(statistic, statistic)}/{_place(layer)}"
            numbers = [None if value is None else float(value) for value in of_heads]
            known = [number for number in numbers if number is not None]
            if not known:
                continue
            if statistic in OF_LAYERS:
                curves[name] = known[0]
                continue
            # a head that is no number shows in all three
            least, most = (math.nan, math.nan) if any(map(math.isnan, known)) else (min(known), max(known))
            curves.update({f"{name}/mean": sum(known) / len(known), f"{name}/min": least, f"{name}/max": most})
            if log_heads:
                curves.update({f"{name}H{i}": number for i, number in enumerate(numbers) if number is not None})
    for layer, keys in zip(layers, masks.visible_keys(record, len(layers))):
        if keys is not None:
            curves[f"attnscope/visible_keys/{_place(layer)}"] = keys
    return curves


def _place(layer):
    return f"L{layer['layer']}" if layer["stack"] is None else f"{layer['stack']}.L{layer['layer']}"

