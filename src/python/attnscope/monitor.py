"""The monitor: statistics of every attention head while a model trains, written to a log every few steps."""

import contextlib
import math
import warnings

import torch

from . import _capture as seen
from . import aside, ranks
from .beside import beside
from .entry import Entry
from .layers import layers_of
from .log import Log, now, number, numbers
from .loggers import opened
from .outputs import spread_of
from .patches import Patches
from .sampling import Sampler
from .statistics import OF_LAYERS, Heads, chosen, fields_of, of_heads
from .watch import Watch

# So many steps may pass without a pass that can be looked at, before one warning says so. Where passes were looked at in vain, the
# monitor then looks when a record is due; each time that shows nothing it waits for twice as many records, up to MOST_AHEAD.
PATIENCE = 3
MOST_AHEAD = 64
# on_record, and a logger of log_to, is called no more when it has failed so many times in a row.
MOST_FAILURES = 10


class Monitor:
    """Records statistics of every attention head of `model` every `every` steps, in the log `path`.

        monitor = Monitor(model, "run.jsonl", every=50, rows=64)
        for step, batch in enumerate(batches):
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(step, loss=loss)

        $ attnscope run.jsonl            # look at it, also while it is written
        $ attnscope watch run.jsonl      # findings as they begin

    Attach it when the model is in its final form: after .to(device), DistributedDataParallel, FSDP and torch.compile.

    every        record the first step, and then every so many
    rows         how many query rows of a batch are looked at in each layer; 0 looks at all of them
    statistics   ids of attnscope's registry, or "all"; see attnscope.statistics.DEFAULT
    on_record    called with each record as a dictionary, on the process that writes. Where it fails, a warning says so and the
                 log goes on; after ten failures in a row it is called no more
    log_to       "tensorboard", "wandb", "trackio", a SummaryWriter, a run, or a list of these: curves of each layer go there too;
                 see attnscope.loggers. A failure there is treated as one of on_record
    log_heads    curves of each head in log_to as well
    evaluation   look at passes in eval mode and without gradients too; they are passed over otherwise
    seed         of the choice of rows, which uses no random number of the training
    example      token ids of one batch, or the arguments of a forward call: the model is described once (attnscope.describe), and
                 attnscope.toml is written beside the log, so that attnscope opens later checkpoints in that directory
    tensor_parallel_group   processes that share the heads of each layer; found for DTensor and Megatron

    Training is not disturbed: outputs, gradients, parameters and random states are the same to the bit. Whatever goes wrong in
    the monitor turns it off, with one warning. Attention that it cannot see costs nothing for long: after a few steps it looks
    only when a record is due, and less and less often.
    """

    def __init__(self, model, path, every=50, rows=64, *, statistics=None, on_record=None, evaluation=False, seed=0,
                 tensor_parallel_group=None, example=None, log_to=None, log_heads=False):
        for name, value, least in (("every", every, 1), ("rows", rows, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}, expected a whole number from {least} on")
        self.statistics, self.every, self.rows, self.evaluation = chosen(statistics), every, rows, evaluation
        self.fields = fields_of(self.statistics)
        self.on_record, self.path = on_record, path
        self.sampler, self.n_records = Sampler(rows, seed), 0
        self.entry = Entry(model)
        self.group = tensor_parallel_group or ranks.tensor_parallel_group(self.entry.inner)
        if self.group is not None and not ranks.holds_rank_0(self.group):
            self.group = None  # the heads of another copy of the model
        self.writes = ranks.rank() == 0
        self.looks = self.writes or self.group is not None
        self.is_sharded = ranks.n_ranks() > 1 and ranks.is_sharded(self.entry.inner)
        self.loggers = opened(log_to, path, log_heads, self.writes)
        self.log = Log(path) if self.writes else None
        self.is_off = self.is_closed = False
        self.error = None  # what turned it off, or on_record, or a logger
        self.watch = self.pass_over = None
        self.seen = self.seen_loss = self.seen_pass = None  # of the pass that was looked at
        self.is_scheduled = self.was_entered = False  # the next pass is to be looked at; one has come
        self.n_waiting, self.n_failed_aside, self.told, self.has_told_unseen = 0, 0, False, False
        self.was_in_vain, self.n_in_vain = False, 0  # a pass was looked at and showed nothing; in so many steps
        self.n_ahead = 0  # records ahead that it then waits for
        self.n_failed_calls = {}  # of on_record and loggers, in a row
        self._last = -math.inf  # the step before
        self._until = -math.inf  # steps below this one need nothing
        self._next = -math.inf  # the next step to record
        if example is not None and self.writes:
            beside(path, self.entry.inner, example)
        self.arm()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Every step.

    def step(self, step, loss=None):
        """Says that step number `step` is done. Gives the record, at steps where one is written."""
        if self._last < step < self._until:
            self._last = step
            return None
        if self.is_off and not self.must_tell:
            return None
        return self.guarded(self._step, step, loss)

    def _step(self, step, loss):
        step = int(step)
        if step <= self._last and self.log is not None:
            self.log.begin_segment()  # the training went back
        stride = step - self._last if 0 < step - self._last < math.inf else 1
        if step <= self._last:
            self._next = -math.inf
        self._last = step
        record = None
        self.stop_watching()
        # Processes that wait for each other have to agree on when: it depends on nothing that only one of them sees.
        if self.group is not None:
            is_done = self.is_scheduled
        else:
            is_done = self.seen is not None or self.is_sharded and self.was_entered
        if is_done:
            record = self.record(step, loss)
            self.put_off(step, stride, 1)
            self.n_waiting = self.n_in_vain = self.n_ahead = 0
        elif self.is_scheduled:
            self.n_waiting += 1
            if self.n_waiting <= PATIENCE:
                self.entry.find_compiled()
            self.n_in_vain += self.was_in_vain
            is_in_vain = self.was_in_vain and self.n_in_vain >= PATIENCE
            if is_in_vain:
                self.n_ahead = min(max(2 * self.n_ahead, 1), MOST_AHEAD)
                self.put_off(step, stride, self.n_ahead)
            if self.n_waiting == PATIENCE and self.looks and not self.told:
                self.told = True
                self.tell_nothing(is_in_vain)
        if step + stride >= self._next:
            self.arm()
        return record

    def put_off(self, step, stride, n_records):
        """Looks at nothing until the record is due that is so many records ahead."""
        self.entry.disarm()
        self.is_scheduled = False
        self._next = (step // self.every + n_records) * self.every
        self._until = self._next - stride

    def tell_nothing(self, is_in_vain):
        since = "yet" if self.n_records == 0 else "lately"
        later = f"; the monitor looks again at step {self._next}, and then less often" if is_in_vain else ""
        self.warn(f"nothing recorded {since}: {self.why_nothing()}{later}", stacklevel=6)

    def tell_unseen(self, names):
        """Says once that there is attention which the log has nothing of."""
        if not self.has_told_unseen:
            self.has_told_unseen = True
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self.warn(f"no attention is seen in {', '.join(names[:3])}{more}: no softmax and no kernel that is known runs there; the "
                      "log does not have their heads", stacklevel=7)

    @property
    def must_tell(self):
        """Whether other processes wait for this one, though its monitor is off."""
        return self.is_off and not self.is_closed and (self.group is not None or self.is_sharded)

    def why_nothing(self):
        if self.pass_over:
            return self.pass_over
        if aside.has_compiled(self.entry.inner):
            return ("no forward pass of the model was seen: what calls it is compiled; compile the model itself, and attach "
                    "the monitor afterwards")
        return "the model that the monitor was given was not called"

    # The pass that is looked at.

    def arm(self):
        """Looks at the next forward pass."""
        self.seen = self.seen_loss = self.seen_pass = None
        self._until = -math.inf
        self.is_scheduled, self.was_entered, self.was_in_vain = True, False, False
        if self.is_sharded or self.looks and not self.is_off:
            self.entry.arm(self.enter)

    def enter(self, module, args, kwargs):
        """The model is called: begins to watch, unless this is no pass of the training. Gives whether it was one."""
        return bool(self.guarded(self._enter, module, args, kwargs))

    def _enter(self, module, args, kwargs):
        if self.is_off and not self.is_sharded:
            return True
        blind = seen._blind(tuple(seen._tensors((args, kwargs))))
        if blind is not None:
            self.pass_over = f"nothing can be seen in {blind}"
            return False
        if getattr(module, "_is_replica", False):
            self.pass_over = "DataParallel runs copies of the model in threads; use DistributedDataParallel"
            return False
        inner = self.entry.inner
        if not self.evaluation and not torch.is_grad_enabled():
            self.pass_over = "passes without gradients are passed over; give evaluation=True to look at them"
            return False
        if not self.evaluation and not inner.training:
            self.pass_over = "passes in eval mode are passed over; give evaluation=True to look at them"
            return False
        self.pass_over, self.was_entered = None, True
        self.entry.disarm()
        runs_aside = self.entry.is_compiled_call(module) or aside.must_run_aside(inner)
        if self.is_sharded and runs_aside and not self.agreed():
            return True
        if not self.looks and not (self.is_sharded and runs_aside) or self.is_off:
            return True
        watch = self.new_watch()
        if runs_aside:
            self.run_aside(watch, args, kwargs)
        else:
            self.watch = watch
            watch.begin()
            # hooks on the model itself come too late for the call that is being made
            watch.guarded(watch.read, inner, "", args, kwargs)
            self.entry.when_left(module, self.leave)
        return True

    def new_watch(self):
        return Watch(self.entry.inner, self.sampler, self.n_records, self.fields, self.failed, self.statistics)

    @contextlib.contextmanager
    def watching(self):
        """Takes all that runs inside as one pass, for code that calls parts of the model and never the whole of it."""
        self.begin_pass()
        whole = False
        try:
            yield self
            whole = True
        finally:
            self.end_pass(whole)

    def begin_pass(self):
        """Where `watching` cannot stand: the first of two calls around the parts of one pass."""
        if self.entry.is_armed:
            self.guarded(self._begin_pass)

    def _begin_pass(self):
        inner = self.entry.inner
        if self.entry.move_to_compiled(self.enter):  # what is compiled is called as a whole
            return
        if aside.has_fast_paths(inner):
            self.pass_over = "parts in eval mode would leave their fused path; attach the monitor to a part that is called"
            return
        if self.evaluation or torch.is_grad_enabled() and inner.training:
            self.entry.disarm()
            self.watch = self.new_watch()
            self.watch.begin()

    def end_pass(self, whole=True):
        """The second of the two calls."""
        if self.watch is not None:
            self.leave(None, (), {}, whole)

    def run_aside(self, watch, args, kwargs):
        if not self.looks:
            aside.run_aside(self.entry.inner, args, kwargs)
            return
        watch.begin()
        try:
            output = aside.run_aside(self.entry.inner, args, kwargs)
        except Exception as error:
            self.n_failed_aside += 1
            if self.n_failed_aside >= PATIENCE or self.is_sharded:
                raise
            self.pass_over = f"the model fails when it runs beside its compiled code: {type(error).__name__}"
            self.entry.arm(self.enter)
            return
        finally:
            watch.end()
        self.n_failed_aside = 0
        self.take(watch, output, kwargs)

    def leave(self, output, args, kwargs, is_whole):
        """The call of the model is over; `is_whole` is false where it ended with an exception."""
        watch, self.watch = self.watch, None
        if watch is None:
            return
        watch.end()
        if is_whole:
            self.guarded(self.take, watch, output, kwargs)
        elif not self.is_off:
            self.arm()

    def take(self, watch, output, kwargs):
        if self.is_off:
            return
        if not watch.measured:
            self.was_in_vain = True
            Patches.found = (None, ())  # a kernel may have been given a name during the pass
            names = watch.unseen()
            self.pass_over = (f"nothing can be seen in {watch.blind}" if watch.blind else
                              "no attention was seen in the model: no softmax over a product of queries and keys, and no "
                              "kernel that is known" + (f"; {', '.join(names[:3])} ran" if names else ""))
            if not self.is_sharded:
                self.entry.arm(self.enter)
            return
        self.seen, self.seen_loss, self.seen_pass = watch.measured, _loss(output, kwargs), watch.ended(output)

    def stop_watching(self):
        if self.watch is not None:  # a pass that was never left
            self.watch.end()
            self.watch = None

    # The record.

    def record(self, step, loss):
        head = values = None
        known, unseen = {}, []
        if self.seen is not None and self.looks:
            layers = layers_of(self.seen)
            known, unseen = self.seen_pass.on_host(layers), self.seen_pass.unseen
            values = [self.values(layer, layers) for layer in layers]
            head = [layer.described() for layer in layers]
        if self.group is not None:
            head, values = self.joined(head, values)
        if not self.writes or head is None:
            self.seen = None
            return None
        loss = self.seen_loss if loss is None else loss
        loss = loss.detach() if isinstance(loss, torch.Tensor) else loss
        self.seen = self.seen_loss = self.seen_pass = None
        self.n_records += 1
        record = {"step": step, "time": now(), "loss": None if loss is None else number(float(loss)), "batch": numbers(known),
                  "values": {name: [numbers(of_layer[name]) for of_layer in values] for name in self.statistics}}
        described = {"model": type(self.entry.innermost).__name__, "statistics": self.statistics, "layers": head,
                     "rows": self.rows, "every": self.every}
        if unseen:
            described["unseen"] = unseen
            self.tell_unseen(unseen)
        self.log.write(described, record)
        self.hand_on(record, head)
        return record

    def hand_on(self, record, layers):
        """Calls on_record and the loggers, whose failures are no reason to lose the log."""
        if self.on_record is not None and self.gives_up("on_record", self.on_record, record):
            self.on_record = None
        self.loggers = [logger for logger in self.loggers if not self.gives_up(logger.name, logger, record, layers)]

    def gives_up(self, name, call, *args):
        """Calls it. Gives whether it has failed so often that it is called no more."""
        try:
            call(*args)
            self.n_failed_calls[id(call)] = 0
        except Exception as error:
            n = self.n_failed_calls[id(call)] = self.n_failed_calls.get(id(call), 0) + 1
            if n == MOST_FAILURES:
                self.error = error
                self.warn(f"{name} failed {MOST_FAILURES} times in a row and is called no more, the log goes on: {_said(error)}",
                          stacklevel=8)
                return True
            if n == 1:
                self.warn(f"{name} failed, the log goes on: {_said(error)}", stacklevel=8)
        return False

    def values(self, layer, layers):
        """{statistic: [per head]} of one layer; one value for a statistic of whole layers."""
        heads = {name: [] for name in self.statistics}
        for member in layer.members:
            rows, k_norms = member.on_host()
            is_cross = layer.stack == "cross" or member.is_cross
            of_rows = Heads(rows, k_norms, member.d_head, is_cross, member.has_sink, member.has_padding, member.output_norms,
                            member.has_documents)
            found = of_heads(self.statistics, of_rows)
            for name, values in found.items():
                heads[name] += values
        if "resid_spread" in heads:
            heads["resid_spread"] = [spread_of(layer, layers)]
        return heads

    def joined(self, head, values):
        """The heads of all processes of a tensor-parallel group, in their order. Every process has to take part."""
        parts = ranks.gathered(None if self.is_off else (head, values), self.group)
        if any(part is None for part in parts):
            self.group = None
            self.failed(RuntimeError("another process of the tensor-parallel group turned its monitor off"))
            return None, None
        if any(part[0] is None for part in parts):
            return None, None
        self.n_records += 0 if self.writes else 1
        heads = [{**parts[0][0][i], "n_heads": sum(part[0][i]["n_heads"] for part in parts)} for i in range(len(parts[0][0]))]
        joined = [{name: [v for part in parts[:1 if name in OF_LAYERS else None] for v in part[1][i][name]]
                   for name in self.statistics} for i in range(len(heads))]
        return heads, joined

    def agreed(self):
        """Whether the monitor is on in all processes of a sharded model. Otherwise it is turned off in all."""
        if all(ranks.gathered(not self.is_off, None)):
            return True
        self.is_sharded = False
        self.failed(RuntimeError("another process turned its monitor off"))
        return False

    # What goes wrong.

    def guarded(self, step, *args):
        """Nothing that goes wrong in here reaches the training."""
        try:
            return step(*args)
        except Exception as error:
            self.failed(error)
            return None

    def failed(self, error):
        if self.is_off:
            return
        self.is_off, self.error = True, error
        if not self.must_tell:
            self._last, self._until = -math.inf, math.inf
        self.entry.disarm()
        self.seen = None
        self.warn(f"the monitor is off, training goes on: {_said(error)}", stacklevel=6)
        self.shut()

    def warn(self, text, stacklevel):
        with contextlib.suppress(Warning):  # warnings are errors here: training goes on nevertheless
            warnings.warn(f"attnscope: {text}", stacklevel=stacklevel)

    def close(self):
        """Takes everything off the model and closes the log."""
        self.stop_watching()
        self.entry.disarm()
        self.is_off = self.is_closed = True
        self._last, self._until = -math.inf, math.inf
        self.shut()

    def shut(self):
        for logger in self.loggers:
            with contextlib.suppress(Exception):
                logger.close()
        if self.log is not None:
            try:
                self.log.close()
            except OSError:
                pass


def _said(error):
    """An exception in one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines[0] else type(error).__name__


def _loss(output, kwargs):
    """The loss that a model of transformers gives with its output; None for any other."""
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        return None
    loss = loss.detach().clone()
    labels, n_items = kwargs.get("labels"), kwargs.get("num_items_in_batch")
    if n_items is not None and isinstance(labels, torch.Tensor) and labels.dim() == 2:
        loss = loss * n_items / (labels[:, 1:] != -100).sum()  # a sum over this part, divided by what all parts hold
    return loss
