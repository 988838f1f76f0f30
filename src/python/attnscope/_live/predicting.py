"""Runs of which the logits alone are asked for: nothing else of them is copied or written."""

from __future__ import annotations

from .._capture import capture
from .._capture.shared import _save, _source
from .faults import Unusable


class Logits(capture):
    """A capture that sees attention, so that it can be changed, and writes what the model gives of each position."""

    def __init__(self, model, path, **options):
        super().__init__(model, path, scores=False, values=True, **options)

    def keep_factors(self, record, factors):
        pass

    def keep_value(self, record, what, x):
        pass

    def _keep_around(self, module, path, args, output):
        if module is self.model:
            super()._keep_around(module, path, args, output)

    def _write(self):
        if self.logits is None:
            raise Unusable("the model gives no [batch, position, width] that could be logits")
        _save(self.path, {"logits": self.logits}, {"attnscope.source": _source(self.model)})
