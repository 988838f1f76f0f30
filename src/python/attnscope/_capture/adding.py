"""What is added to a pattern behind its softmax, as far as it can be told from the pattern until values are weighed."""

from __future__ import annotations

import torch

from .following import _mark
from .words import ADDITIONS, FACTORS, SUBTRACTIONS, VIEWS


class _Added:
    """The part of a capture that follows a matrix that is added to a pattern."""

    def follow_added(self, record, name, func, x, args, kwargs, y):
        """`x` is a pattern, and `y` what a step makes of it: the sum of what was added so far takes the same step.

        Nothing is known once a step is no sum, no factor and no change of form, or what is added depends on scores.
        """
        before, record.added = record.added, None
        try:
            record.added = self._added_after(record, name, func, x, args, kwargs, y, before)
        except Exception:  # what is added is then not known, and the pattern is followed on
            record.added = None

    @staticmethod
    def _added_after(record, name, func, x, args, kwargs, y, before):
        others = [other for other in args if other is not x]
        is_less = name in SUBTRACTIONS and args[0] is x
        if (name in ADDITIONS or is_less) and len(args) == 2 and not kwargs and len(others) == 1:
            other = others[0]
            if isinstance(other, torch.Tensor) and other.is_floating_point() and _mark(other).record is None \
                    and _mark(other).origin not in ("product", "outer") and other.numel() > 1:
                with torch.no_grad():
                    added = other.detach().to(y.dtype).expand(y.shape).clone()
                    added = -added if is_less else added
                    return added if before is None else before + added
        elif "dropout" in name and "dropout" not in record.after:
            return before
        elif before is not None and (name in VIEWS or name in FACTORS) and args and (args[0] is x or name in FACTORS and len(args) == 2):
            with torch.no_grad():
                return (func if not func.__name__.endswith("_") or func.__name__.endswith("__") else getattr(torch, name))(
                    *[before if arg is x else arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args], **kwargs)
        return None
