"""Finds linear attention: keys and values are multiplied first, so that there is no matrix of queries by keys.

A softmax over the features or the positions of queries or keys looks like one of scores where their shape is that of scores. What
it gives tells: it is multiplied with values into a matrix of features, and this one with the other half of the attention.
"""

from __future__ import annotations

from .following import _mark, _Mark, NO_MARK
from .words import FACTORS, PRODUCT, VIEWS

ELEMENTWISE = VIEWS | FACTORS


class _Linear:
    """The part of a capture that tells linear attention from attention."""

    def begin_linear(self):
        self.linear = []  # paths of the modules in which linear attention ran

    def note_linear(self, frame):
        name = frame.name(self.model)
        if name not in self.linear and self.wants(frame):
            self.linear.append(name)
        for above in self.stack:
            self.ran.setdefault(above.path, [1, 0])[1] += 1

    def mark_context(self, record, out):
        """`out` is what a softmax was multiplied with values to. One over no product of queries and keys may be of keys alone."""
        if record is not None and record.is_unproven and self.may_be_features(record, out):
            self.set_mark(out, _Mark(context=record))
            return True
        return False

    def may_be_features(self, record, out):
        """Whether what is left of a softmaxed matrix behind its product with values may be an axis of features: as wide as the values, or
        of no length that a sequence has here. Of a square matrix, what it meets next tells."""
        of_pattern, of_out = record.pattern.shape[-2:], out.shape[-2:]
        if of_pattern[0] == of_pattern[1]:
            return True
        left = [n for n in of_pattern if n in of_out]
        if len(left) != 1:
            return False
        lengths = {n for frame in self.stack for n in frame.lengths}
        return of_out[0] == of_out[1] or left[0] not in lengths

    def follow_context(self, name, inputs, marks, out):
        """Whether this was a step of what may be the matrix of features of linear attention: a change of form, or its product with
        queries. Then nothing of it was attention."""
        at = next(idx for idx, mark in enumerate(marks) if mark.context is not None)
        x, record = inputs[at], marks[at].context
        if name in ELEMENTWISE and out.numel() == x.numel() and out.is_floating_point():
            self.set_mark(out, _Mark(context=record))
            return True
        if name not in PRODUCT or len(inputs) != 2:
            return False
        other = inputs[1 - at]
        of_queries = _mark(other).record
        if self.is_weight(other) or _mark(other).is_scores or of_queries is not None and not of_queries.is_unproven:
            return False
        # A square matrix is one of queries by keys, unless its result meets a softmax of other features.
        if record.pattern.shape[-2] == record.pattern.shape[-1] and of_queries in (None, record):
            return False
        gone = [each for each in (record, of_queries) if each is not None]
        self.records = [each for each in self.records if not any(each is one for one in gone)]
        self.note_linear(record.frame or self.place())
        self.set_mark(other, NO_MARK)
        if hasattr(out, "_attnscope_mark"):
            self.set_mark(out, NO_MARK)
        return True

    def linear_alone(self):
        """The modules in which nothing else attended: a matrix of features may come behind attention that is judged."""
        judged = {record.info["module"] for record in self.records}
        return [path for path in self.linear if path not in judged]

    def tell_linear(self):
        """Says once of all modules what ran in them."""
        paths = self.linear_alone()
        if not paths:
            return
        named = ", ".join(paths[:4]) + (f" and {len(paths) - 4} more" if len(paths) > 4 else "")
        self.skip(named, None, None, "linear attention, which makes no matrix of queries by keys", tell=True)
