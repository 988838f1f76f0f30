"""A callback for transformers' Trainer.

    from attnscope.integrations.transformers import MonitorCallback

    Trainer(..., callbacks=[MonitorCallback("run.jsonl", every=50)])
"""

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise ImportError("attnscope.integrations.transformers needs transformers, which is not installed: "
                      "pip install transformers") from error

from ..monitor import Monitor


class MonitorCallback(TrainerCallback):
    """Attaches a monitor for the length of a training; the options are those of `attnscope.Monitor`.

    The step is the trainer's global step. The loss is the one that the model gives for the batch that was looked at.
    """

    def __init__(self, path, every=50, rows=64, **options):
        self.path, self.every, self.rows, self.options = path, every, rows, options
        self.monitor = None

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.close()
        self.monitor = Monitor(model, self.path, every=self.every, rows=self.rows, **self.options)

    def on_step_end(self, args, state, control, **kwargs):
        if self.monitor is not None:
            self.monitor.step(state.global_step)

    def on_train_end(self, args, state, control, **kwargs):
        self.close()

    def close(self):
        if self.monitor is not None:
            self.monitor.close()
            self.monitor = None
