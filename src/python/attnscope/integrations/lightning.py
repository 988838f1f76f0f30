"""A callback for Lightning's Trainer.

    from attnscope.integrations.lightning import MonitorCallback

    Trainer(..., callbacks=[MonitorCallback("run.jsonl", every=50)])
"""

try:
    from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ModuleNotFoundError as error:
        raise ImportError("attnscope.integrations.lightning needs lightning, which is not installed: "
                          "pip install lightning") from error

from ..monitor import Monitor


class MonitorCallback(Callback):
    """Attaches a monitor for the length of a fit; the options are those of `attnscope.Monitor`.

    The step is the trainer's global step. What `training_step` runs is one pass; validation is passed over.
    """

    def __init__(self, path, every=50, rows=64, **options):
        self.path, self.every, self.rows, self.options = path, every, rows, options
        self.monitor = self.step = None

    def on_train_start(self, trainer, pl_module):
        self.close()
        self.monitor = Monitor(pl_module, self.path, every=self.every, rows=self.rows, **self.options)
        self.step = trainer.global_step

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self.monitor is not None:
            self.monitor.begin_pass()

    def on_before_backward(self, trainer, pl_module, loss):
        if self.monitor is not None:
            self.monitor.end_pass()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if self.monitor is None:
            return
        self.monitor.end_pass()
        if trainer.global_step != self.step:  # else a part of an accumulated batch
            self.step = trainer.global_step
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if loss is not None:
                loss = loss * trainer.accumulate_grad_batches  # Lightning has divided it
            self.monitor.step(self.step, loss=loss)

    def on_exception(self, trainer, pl_module, exception):
        if self.monitor is not None:
            self.monitor.end_pass(whole=False)

    def on_train_end(self, trainer, pl_module):
        self.close()

    def close(self):
        if self.monitor is not None:
            self.monitor.close()
            self.monitor = None
