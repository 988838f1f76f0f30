"""The adapter for PyTorch: runs a model under `capture` or `probe`, as a request asks for."""

from __future__ import annotations

import contextlib
import os
import tempfile

import torch
from torch import nn

from .._capture import capture, probe
from .._capture.axes import absent_masks
from .._capture.buffers import _Buffers
from .._capture.following import _NothingSeen
from .._capture.shared import _plain_pytorch
from .changing import Changes
from .faults import Unusable
from .inputs import Inputs
from .intent import intended_mask
from .labels import are_labels
from .ordering import is_position_first, seen
from .predicting import Logits
from .tokenizing import Tokenizing

LONGEST_DEFAULT = 24
FEWEST_TOKENS = 3  # of which one can be changed, and one stands before it and one behind it
WRAPPERS = ("OptimizedModule", "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
TEXT = "the old king gave a red apple to his horse . the old king gave a red apple"


class Subject:
    """A PyTorch model, with what is needed to run it on a text."""

    def __init__(self, model, tokenizer=None, inputs=None, *, name="", files=(), can_reload=True):
        if not isinstance(model, nn.Module):
            raise Unusable(f"expected a torch.nn.Module, (model, tokenizer) or (model, tokenizer, inputs); found {_kind(model)}")
        self.model, self.name, self.files, self.can_reload = model, name, list(files), can_reload
        self.tokenizing = None if tokenizer is None else Tokenizing(tokenizer)
        self.inputs = Inputs(model, inputs)
        self.knows_labels = len(self.inputs.places) < 2
        self.knows_order = not self.inputs.may_turn
        self.places = None  # {(module, call): name of its layer}, after the first run
        self.n_records = 0
        self.buffers = _Buffers()
        self.given_axis = None  # of positions, in the sequence of vectors that came with the model; after its first run
        absent = absent_masks(_inner(model), self.inputs.args, self.inputs.kwargs)
        self.intended, self.why_intended = intended_mask(_inner(model), absent)

    @classmethod
    def of(cls, held, **kw):
        """What a person's function gave: a model, or a tuple of a model, a tokenizer and inputs."""
        if isinstance(held, (tuple, list)) and 1 <= len(held) <= 3:
            return cls(*held, **kw)
        return cls(held, **kw)

    def close(self):
        self.model = self.inputs = self.buffers = None
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def about(self):
        parameters = list(self.model.parameters())
        dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in parameters})
        lacks_text = None if self.inputs.takes_ids else "this model takes no token ids: it runs the inputs that came with it, or the rows of --values FILE"
        no_reload = None if self.can_reload else "the model lives in the process that opened it: there is no file to load again"
        return {
            "name": self.name, "framework": f"torch {torch.__version__}", "model": type(_inner(self.model)).__name__,
            "parameters": sum(p.numel() for p in parameters), "dtype": ", ".join(dtypes),
            "device": str(parameters[0].device) if parameters else "cpu",
            "intends": self.why_intended, "tokenizer": self.tokenizing.about() if self.tokenizing else None, "files": self.files,
            "lacks": {"text": lacks_text, "reload": no_reload, "what_if": None,
                      "probes": None if self.inputs.takes_ids or self.inputs.rows is not None else
                      "probes change tokens or the vectors of a sequence, and this model takes neither"}}

    def tokens(self, request):
        ids = request.get("ids")
        if ids is None:
            ids = self._ids_of(request.get("text", ""))
        return {"ids": ids, "labels": self.tokenizing.labels(ids) if self.tokenizing else [str(token) for token in ids]}

    def _ids_of(self, text):
        if self.tokenizing is None:
            raise Unusable("no tokenizer came with the model: give ids with --tokens, or return (model, tokenizer)")
        ids = self.tokenizing.ids(text)
        if not ids:
            raise Unusable("the text has no tokens")
        return ids

    def run(self, request):
        """Runs the model once and gives its trace; with "probes" runs it on changed inputs and gives the probe."""
        ids, target, values = request.get("ids"), request.get("target"), request.get("values")
        text = None
        if values is not None:
            ids = None
        elif ids is None and request.get("text") is not None:
            text = request.get("text")
            ids = self._ids_of(text)
        if ids is not None and not self.inputs.takes_ids:
            raise Unusable("the model takes no token ids: it runs the inputs that came with it, or the rows of --values FILE")
        modes = {module: module.training for module in self.model.modules()}
        self.model.eval()
        place = tempfile.mkdtemp(prefix="attnscope-")
        path = os.path.join(place, "run.safetensors")
        try:
            self._tell_labels()
            self._tell_order()
            inputs = self.inputs
            if values is not None:
                inputs = inputs.with_values(values, self._axis_of_given(request))
            elif ids is None and inputs.given is None:
                ids, text = self._default()
            if request.get("probes"):
                self._probe(request, path, inputs, ids, target)
            else:
                self._record(request, path, inputs, ids, target)
            moved = place + ".safetensors"
            os.replace(path, moved)
            return {"text": text, "values": values is not None}, moved
        finally:
            if os.path.exists(path):
                os.remove(path)
            os.rmdir(place)
            for module, training in modes.items():
                module.training = training

    def _tell_labels(self):
        """Finds out once whether the target that came with the model is a decoder's text or the labels of a loss."""
        if self.knows_labels:
            return
        self.knows_labels = True
        try:
            if are_labels(self.model, self.inputs):
                self.inputs.take_target_for_labels()
        except Exception:  # the run itself tells what is wrong
            pass

    def _tell_order(self):
        """Finds out once whether the model takes its ids as [position, batch]."""
        if self.knows_order:
            return
        self.knows_order = True
        try:
            self.inputs.turn(is_position_first(self.model, self.inputs))
        except Exception:  # the run itself tells what is wrong
            pass

    def _record(self, request, path, inputs, ids, target):
        labelled = self.tokenizing.labels if self.tokenizing else None
        if request.get("hooks") == ["logits"]:
            watched = Logits(self.model, path)
        else:
            watched = capture(self.model, path, mask=request.get("mask", self.intended), window=request.get("window"),
                              documents=request.get("documents"), tokenizer=_One(labelled) if labelled else None, values=True,
                              buffers=self.buffers)
        changes = request.get("changes", [])
        args, kwargs = inputs.of(ids, target)
        with _told_plainly(), torch.no_grad(), watched:
            # after capture's own hooks, so that what a stopped run leaves behind is cleared by it
            handles = [module.register_forward_pre_hook(lambda *_: self._tell(request, watched)) for module in self.model.modules()
                       if not isinstance(module, torch.jit.ScriptModule)]
            try:
                if changes:
                    with Changes(watched, changes, self.places or {}) as made:
                        self.model(*args, **kwargs)
                    made.check()
                else:
                    self.model(*args, **kwargs)
            finally:
                for handle in handles:
                    handle.remove()
        if not isinstance(watched, Logits) and not watched.records:
            raise Unusable(watched.nothing_seen())
        if not changes and not isinstance(watched, Logits):
            self.n_records = len(watched.records)
            if inputs.place_of_values is not None and self.inputs.given is None:
                _check_is_attended(watched.records, inputs)
            elif inputs is self.inputs and inputs.rows is not None:
                inputs.note_sources(watched.other_sources)
                self.given_axis = 1 if watched.attends_along_batch else inputs.row_axis(_n_queries(watched.records))
            self.places = {(record.info["module"], record.info["call"]): (record.info["name"], record.info.get("head"))
                           for record in watched.records}

    def _axis_of_given(self, request):
        """The axis of positions in the sequence of vectors that came with the model. Its shape does not tell, so the model runs once
        where it has not run on it."""
        if self.inputs.given is None or self.inputs._place_of_vectors(3) is None:
            return 1
        if self.given_axis is None:
            watched = seen(self.model, *self.inputs.of(None, None))
            request.stop_if_cancelled()
            if not watched.records:
                raise Unusable(watched.nothing_seen())
            self.given_axis = 1 if watched.attends_along_batch else self.inputs.row_axis(_n_queries(watched.records))
        return self.given_axis

    def _tell(self, request, watched):
        n = len(watched.records)
        if n != getattr(request, "n_told", None):
            request.n_told = n
            request.tell("layers", n, max(self.n_records, n))
        request.stop_if_cancelled()

    def _probe(self, request, path, inputs, ids, target):
        count, rows = [0], inputs.rows is not None
        axis = self._axis_of_given(request) if rows else None
        if rows:  # vectors stand for tokens, by their numbers
            ids = inputs.row_numbers(axis)
        elif inputs.place_of_values is not None:
            raise Unusable("probes change the vectors of [batch, position, feature], and this model takes [position, feature]")
        elif not inputs.takes_ids:
            raise Unusable("tests change tokens or the vectors of a sequence, and this model takes neither")
        elif ids is None:
            ids = inputs.own_ids()
        else:
            inputs, ids = inputs.with_source(ids, target)

        if len(ids) < FEWEST_TOKENS:
            raise Unusable(f"tests on changed inputs need at least {FEWEST_TOKENS} tokens, and this run has {len(ids)}")

        def call(model, ids, **more):
            return run(model, ids, False, **more)

        def run(model, ids, cuts, **more):
            count[0] += 1
            request.tell("probes", count[0], 0)
            args, kwargs = inputs.of_rows(ids, axis, more, cuts) if rows else inputs.of(ids, None, more, cuts)
            return model(*args, **kwargs)

        def other_source(model, ids):
            args, kwargs = inputs.with_other_source(ids)
            return model(*args, **kwargs)

        call.__signature__ = inputs.signature_of_call()
        call.takes_vectors = rows
        if inputs.given is not None:
            call.cut = lambda model, ids: run(model, ids, True)
        probe(self.model, list(ids), path, mask=request.get("mask", self.intended or "bidirectional"), call=call, documents=request.get("documents"),
              pad_id=len(ids) if rows else None,  # of_rows takes this number as a vector of zeros
              other_source=None if rows or not inputs.has_source else other_source,
              positions="none" if rows else None)  # vectors may hold their own positions, a time for instance

    def _default(self):
        """Ids and their text for a first look: a plain sentence where the tokenizer takes it, drawn ids where it does not."""
        if self.tokenizing is not None:
            try:
                ids = self.tokenizing.ids(TEXT)
                if 3 <= len(ids) <= 64 and self._runs(ids):
                    return ids, TEXT
            except Exception:  # a vocabulary of other words, or one that the model's table does not reach
                pass
        for n in (LONGEST_DEFAULT, 16, 8, 4):
            ids = self.inputs.drawn(n)
            if n == 4 or self._runs(ids):
                return ids, None

    def _runs(self, ids):
        try:
            args, kwargs = self.inputs.of(ids, None)
            with torch.no_grad(), _plain_pytorch(self.model, attention=False):
                self.model(*args, **kwargs)
        except Exception:
            return False
        return True


@contextlib.contextmanager
def _told_plainly():
    """A run in which no attention was seen is told as what cannot be done."""
    try:
        yield
    except _NothingSeen as error:
        raise Unusable(str(error)) from None


def _n_queries(records):
    return max((record.info["shape"][-2] for record in records if len(record.info["shape"]) > 1), default=0)


def _check_is_attended(records, inputs):
    """Refuses a run in which every query saw one key, of several: the model takes the axis of the batch for that of positions."""
    n = inputs._at(inputs.place_of_values).shape[1]
    shapes = [record.info["shape"][-2:] for record in records if len(record.info["shape"]) > 1]
    if n > 1 and shapes and all(tuple(shape) == (1, 1) for shape in shapes):
        raise Unusable(f"the model attends over the first axis of [1, {n}, feature], which is the batch: pass batch_first=True to its "
                       "attention, or return (model, None, inputs) with inputs of shape [position, 1, feature]")


def _inner(model):
    """The model inside of what torch.compile and DataParallel put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if not isinstance(inner, nn.Module) or type(model).__name__ not in WRAPPERS:
            return model
        model = inner


class _One:
    """Labels of ids as capture asks for them, one at a time."""

    def __init__(self, labels):
        self.labels = labels

    def __call__(self, token):
        return self.labels([token])[0]


def _kind(value):
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}, whose first is a {type(value[0]).__name__}" if value else "nothing in it"
    return f"a {type(value).__name__}"
