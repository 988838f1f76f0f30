"""probe: the input is changed, and modules that notice are written down."""

from __future__ import annotations

import contextlib
import inspect
import json

import torch
from torch import nn

from .axes import _name
from .following import _Drawing
from .shared import (
    _check_choice, _checked_path, _difference, _dtype, _hook, _own_random, _plain_pytorch, _readable, _save, _source,
    _tensors,
)
from .untrained import _looks_untrained, _untrained
from .words import ASIDE, CHOICES, CHOSEN, KEPT_CHOICES

MORE_PASSES = 4


def probe(model, ids, path, *, mask="causal", pad_id=None, n_pads=3, n_cuts=8, documents=None, call=None, seed=0,
          max_bytes=2 << 30, step=None, positions=None, other_source=None):
    """Changes the input of `model`, compares what every module gives, and writes how far each moved to `path`.

    ids         [position] or [batch, position] token ids; the first row is used, whole: give no padding
    mask        "causal" runs the tests on later tokens, length, cache and labels; "bidirectional" or "none" leaves them out
    pad_id      the token that padding is made of; the model's config knows it in transformers, else 0
    documents   starts of the documents packed in `ids`, e.g. [0, 17]: each must not notice those before it
    call        how to run the model when model(ids) is not it: call(model, ids, **kw), where kw may hold attention_mask
                and position_ids if call takes them. For an encoder–decoder model, for instance:
                call=lambda m, ids: m(input_ids=source, decoder_input_ids=ids)
    step        how to run the model on with a cache when it does not take past_key_values and use_cache:
                step(model, ids, cache) gives the new cache; cache is None at the first call
    positions   "none" for a model that is meant to have no positions
    other_source   how to run an encoder–decoder on the same target with another source: other_source(model, ids). Its output has
                to move

    The tests, each with the largest |difference| per module:
        repeat      the prompt again: dropout that is still on, and anything else that is not deterministic
        future      other tokens later on (causal models)
        length      one token less, and half of them (causal models)
        padding     pads on the left and on the right; rows of unequal length padded together ("unequal")
        batch       the row between two others
        documents   other tokens in earlier documents
        order       earlier tokens shuffled: here the last position *has* to move
        cache       the prompt in parts, with a cache, against the whole prompt (causal models)
        labels      losses of each output against the token it stands on, the next one, and the one after (causal models)

    The model runs in eval mode, without gradients, and gets its own mode and the random state back afterwards. Every run
    starts from one random state but the second of `repeat`. Differences are |a - b| in float32; -1 stands for a module
    whose output could not be compared in that case.
    """
    _check_choice("mask", mask, ("causal", "bidirectional", "none"))
    _check_choice("positions", positions, (None, "none"))
    target = _checked_path(path)
    ids = torch.as_tensor(ids)
    ids = (ids if ids.dim() == 1 else ids[0]).detach().cpu().to(torch.int64)  # [position]
    n = ids.shape[0]
    if n < 3:
        raise ValueError(f"a probe needs at least 3 tokens, and got {n}")
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), _plain_pytorch(model, attention=False), _own_random(model):
            probing = _Probe(model, ids, call, seed, max_bytes, pad_id, step)
            tensors, metadata = probing.run(mask, n_pads, n_cuts, documents)
            if other_source is not None and probing.is_blind_to(other_source):
                metadata["attnscope.source_blind"] = "true"
                metadata["attnscope.untrained"] = _untrained(model)
    finally:
        for module, training in modes.items():
            module.training = training
    metadata["attnscope.positions"] = positions
    _save(target, tensors, metadata)


class _Choosing(_Drawing):
    """Notes as well whether all that was drawn are indices, and used as nothing else."""

    def __init__(self):
        super().__init__()
        self.choices = {}  # {id: (tensor, the draws that it comes from)}, which keeps the tensors, and so the ids
        self.used, self.is_misused, self.n_draws = set(), False, 0

    @property
    def only_chooses(self):
        return bool(self.drawn) and self.drawn <= CHOICES and not self.is_misused and len(self.used) == self.n_draws

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = super().__torch_function__(func, kinds, args, kwargs)
        name = _name(func)
        if name == "multi_head_attention_forward":  # nothing inside it is seen
            given = inspect.signature(func).bind(*args, **kwargs)
            given.apply_defaults()
            if given.arguments["training"] and given.arguments["dropout_p"]:
                self.drawn.add("dropout")
        elif name in CHOICES:
            self.n_draws += 1
            self.note(out, {self.n_draws}, is_small=True)
        elif name not in ASIDE:
            self.follow(name, args, kwargs, out)
        return out

    def follow(self, name, args, kwargs, out):
        def of(*values):
            return {draw for x in _tensors(values) for draw in self.choices.get(id(x), (x, ()))[1]}

        draws = of(args, kwargs)
        if not draws:
            return
        of_source = of(args[:1])
        if name in CHOSEN and not of_source:
            self.used |= draws
        elif name in KEPT_CHOICES:
            for x in _tensors(out):
                self.note(x, draws)
        else:
            self.is_misused = True

    def note(self, x, draws, is_small=False):
        """Remembers indices; one number for each cell of a pattern, numbers that are not whole, and truths are none."""
        is_index = x.dtype in (torch.int64, torch.int32, torch.int16) and not (is_small and x.dim() > 2)
        self.is_misused |= not is_index
        self.choices[id(x)] = x, draws


class _Probe:
    def __init__(self, model, ids, call, seed, max_bytes, pad_id, step=None):
        self.model, self.ids, self.call, self.max_bytes, self.step = model, ids, call, max_bytes, step
        self.random = torch.Generator().manual_seed(seed)
        self.random_orders = torch.Generator().manual_seed(seed + 1)
        weight = next(model.parameters(), None)
        self.device = weight.device if weight is not None else torch.device("cpu")
        self.dtypes = set()  # of what modules give
        self.unread = ids[:0]  # a last token that the model leaves out by itself, as code does that takes targets for labels too
        if pad_id is None:
            pad_id = getattr(getattr(model, "config", None), "pad_token_id", None)
        self.pad_id = pad_id if isinstance(pad_id, int) and pad_id >= 0 else 0
        # Other tokens of the same kind: the prompt's own, which cannot be special by surprise; the whole vocabulary
        # when the prompt has too few.
        self.pool = torch.unique(ids[ids != self.pad_id])
        sizes = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding) and m.num_embeddings > ids.max()]
        if len(self.pool) < 4 and sizes:
            self.pool = torch.tensor([t for t in range(max(sizes)) if t != self.pad_id])
        if len(self.pool) < 2:
            raise ValueError("the prompt holds one token only and no embedding was found to draw others from")

    def accepts(self, name):
        try:
            own = inspect.signature(self.model.forward).parameters
            outer = inspect.signature(self.call).parameters if self.call else own
        except (TypeError, ValueError):
            return False
        takes_all = self.call is not None and any(p.kind is p.VAR_KEYWORD for p in outer.values())
        return name in outer or takes_all and name in own

    def forward(self, ids, shapes_only=False, seed=0, call=None, **inputs):
        """Runs [batch, position] ids; {module: [float outputs]} in the order in which the modules finish."""
        run = call or self.call or (lambda model, ids, **kw: model(ids, **kw))
        ids = torch.cat([ids, self.unread.expand(len(ids), -1)], 1)
        inputs = {name: value.to(self.device) if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
        return self.observed(lambda: run(self.model, ids.to(self.device), **inputs), shapes_only, seed)[0]

    def observed(self, run, shapes_only=False, seed=0):
        """What every module gives while `run` runs, and what `run` gives."""
        outputs, spent, hooks = {}, 0, []

        def keep(path):
            def hook(module, args, output):
                nonlocal spent
                kept = []
                for tensor in _tensors(output):
                    if not tensor.is_floating_point():
                        continue
                    self.dtypes.add(_dtype(tensor))
                    spent += 0 if shapes_only else 4 * tensor.numel()
                    if spent > self.max_bytes:
                        raise RuntimeError(
                            f"{path}: its output of shape {list(tensor.shape)} brings the probe to {_readable(spent)}, "
                            f"more than max_bytes = {_readable(self.max_bytes)}; use a shorter prompt or a larger max_bytes")
                    # a copy, because the next module may write into this one
                    kept.append(tuple(tensor.shape) if shapes_only
                                else tensor.detach().to("cpu", torch.float32, copy=True))
                name, again = path, 0
                while name in outputs:  # a module that runs several times
                    again += 1
                    name = f"{path}#{again}"
                outputs[name] = kept
            return hook

        try:
            for path, module in self.model.named_modules():
                hooks.append(_hook(module, False, keep(path or type(self.model).__name__)))
            torch.manual_seed(seed)
            given = run()
        finally:
            for remove in hooks:
                remove()
        return outputs, given

    def others(self, ids, random=None):
        """As many tokens, each different from the one that it replaces."""
        drawn = self.pool[torch.randint(len(self.pool), ids.shape, generator=random or self.random)]
        shifted = self.pool[(torch.searchsorted(self.pool, drawn) + 1) % len(self.pool)]
        return torch.where(drawn == ids, shifted, drawn)

    def run(self, mask, n_pads, n_cuts, documents):
        with _Choosing() as drawing:
            base, names, axes = self.read_axes()
        if not names and self.leaves_out_the_last(base):
            self.ids, self.unread = self.ids[:-1], self.ids[-1:]
            base, names, axes = self.read_axes()
        ids, n = self.ids, len(self.ids)
        if not names:
            n_given = n + len(self.unread)
            raise RuntimeError(f"no module of {type(self.model).__name__} gives an output with {n_given} positions, one for each that it was given")
        self.names, self.axes, self.n = names, axes, n
        sizes = self.sizes(base)
        again = self.moved(base, self.forward(ids[None]), 0, n)
        for _ in range(MORE_PASSES if drawing.only_chooses else 0):  # what draws by itself may draw alike once
            again = [max(pair) for pair in zip(again, self.moved(base, self.forward(ids[None]), 0, n))]
        noise = max((m / s for m, s in zip(again, sizes) if m > 0 and s > 0), default=0.0)
        redrawn = self.moved(base, self.forward(ids[None], seed=1), 0, n)
        drawn = max((m / s for m, s in zip(redrawn, sizes) if m > 0 and s > 0), default=0.0)
        self.output = self.output_of(base)
        tensors = {"tokens": ids, "probe.repeat.size": torch.tensor(sizes),
                   "probe.repeat.moved": torch.tensor([[max(pair)] for pair in zip(again, redrawn)])}  # [module, 1]
        metadata = {"attnscope.probe": "1", "attnscope.mask": mask, "attnscope.source": _source(self.model),
                    "attnscope.modules": json.dumps(names), "attnscope.noise": repr(float(noise)),
                    "attnscope.deterministic": "true" if max(again + redrawn) <= 0 else "false",
                    # the coarsest that any module gives, which says how far rounding may move things
                    "attnscope.dtype": next((d for d in ("bfloat16", "float16") if d in self.dtypes), "float32"),
                    "attnscope.output": self.output,
                    "attnscope.mixer": self.mixer(base)}
        # what NumPy or Python draws does not follow torch's random state
        if drawing.only_chooses and noise <= 1e-4:
            metadata["attnscope.sampled"] = ", ".join(sorted(drawing.drawn))
        is_apart = metadata["attnscope.mixer"] is None and type(self.model).__name__ not in names
        broken = [name for name in names if not all(bool(torch.isfinite(t).all()) for t in base[name])]
        if broken:
            metadata["attnscope.nonfinite"] = json.dumps(broken)
        metadata["attnscope.deaf"] = self.is_deaf(sizes)
        # two passes from one random state differ by what is kept between calls; from two states also by dropout
        is_random, is_noisy = max(drawn, noise) > 1e-4, noise > 1e-4
        causal_only = {"future", "length", "cache", "labels"}
        # a run of another shape draws other random numbers, which would pass for a movement
        of_other_shape = {"length", "padding", "unequal", "batch", "cache"}
        for test in ("future", "length", "padding", "unequal", "batch", "order", "cache", "labels"):
            if is_apart and test != "batch":  # where rows meet, tokens need not
                metadata[f"attnscope.{test}.skipped"] = "no output with a place for each token depends on other tokens"
                continue
            if test in causal_only and mask != "causal":
                metadata[f"attnscope.{test}.skipped"] = f"the mask is {mask}: earlier positions may see later ones"
                continue
            if test in of_other_shape and is_random or is_noisy:
                metadata[f"attnscope.{test}.skipped"] = (
                    "two passes over one prompt differ in eval mode: nothing can be compared")
                continue
            try:
                getattr(self, test)(base, sizes, {"future": n_cuts}.get(test, n_pads), tensors, metadata)
            except Exception as error:  # a model that takes no batch is no reason to lose the rest
                if "max_bytes" in str(error) or test == "future":
                    raise
                lines = str(error).strip().splitlines() or [""]
                metadata[f"attnscope.{test}.skipped"] = f"{type(error).__name__}: {lines[0]}"
        if documents is not None and is_noisy:
            metadata["attnscope.documents.skipped"] = "two passes over one prompt differ in eval mode: nothing can be compared"
        elif documents is not None:
            starts = [int(start) for start in documents]
            columns = []
            for start, end in zip(starts[1:], starts[2:] + [n]):
                changed = torch.cat([self.others(ids[:start]), ids[start:]])
                columns.append(self.moved(base, self.forward(changed[None]), start, end - start))
            tensors["probe.documents.moved"] = torch.tensor(columns).T.contiguous()  # [module, document after the first]
            tensors["probe.documents.size"] = torch.tensor(sizes)
            metadata["attnscope.documents"] = ",".join(map(str, starts))
        return tensors, metadata

    def is_blind_to(self, other_source):
        """Whether nothing that the model gives moves with its source, although modules inside do."""
        name = type(self.model).__name__
        try:
            before = self.forward(self.ids[None])
            after = self.observed(lambda: other_source(self.model, torch.cat([self.ids, self.unread])[None].to(self.device)))[0]
        except Exception:  # a source that cannot be another is no reason to lose the rest
            return False
        def is_same(one):
            return len(before[one]) == len(after.get(one, ())) and all(torch.equal(a, b) for a, b in zip(before[one], after[one]))

        return bool(before.get(name)) and is_same(name) and not all(is_same(one) for one in before)

    def read_axes(self):
        """What every module gives, the modules with a place for each token, and the axes of these places."""
        base = self.forward(self.ids[None])
        axes = self.sequence_axes(base, len(self.ids))
        return base, [name for name in base if any(axis is not None for axis in axes[name])], axes

    def leaves_out_the_last(self, base):
        """Whether nothing that any module gives depends on the last token, but for a loss."""
        ids = self.ids
        if len(ids) < 4:
            return False
        after = self.forward(torch.cat([ids[:-1], self.others(ids[-1:], self.random_orders)])[None])
        return base.keys() == after.keys() and all(
            a.shape == b.shape and (torch.equal(a, b) or not a.dim()) for name in base for a, b in zip(base[name], after[name]))

    def output_of(self, base):
        """The last module that gives something at every position: the model itself, as a rule."""
        return self.names[-1]

    def mixer(self, base):
        """The first module whose last position depends on the tokens before it: the end of the first attention, as a rule."""
        changed = torch.cat([self.others(self.ids[:-1], self.random_orders), self.ids[-1:]])
        after = self.forward(changed[None])
        self.content = self.moved(base, after, self.n - 1, 1)
        self.is_output_still = self.ends_alike(base, after)
        sizes = self.sizes(base)
        other = self.forward(self.others(self.ids, self.random_orders)[None])
        self.reads = [m > 1e-4 * s for m, s in zip(self.moved(base, other, 0, self.n), sizes)]  # or positions alone
        return next((name for name, m, s in zip(self.names, self.content, sizes) if m > 1e-4 * s), None)

    def is_deaf(self, sizes):
        """"true" where modules hear the tokens before the last, and the output of the model does not; None otherwise."""
        moved = self.sizes_of(self.content, sizes)
        is_heard = any(m > 1e-4 for m in moved)
        return "true" if is_heard and self.is_output_still and self.reads[-1] else None

    def ends_alike(self, base, after):
        """Whether nothing of what the model gives, however many tensors that are, differs at the last position."""
        name = type(self.model).__name__
        pairs = [(a, b) for a, b in zip(base.get(name, ()), after.get(name, ())) if a.shape == b.shape and self.n in a.shape]
        ends = [(a.narrow(axis, self.n - 1, 1), b.narrow(axis, self.n - 1, 1)) for a, b in pairs
                for axis, size in enumerate(a.shape) if size == self.n]
        return bool(ends) and all(torch.equal(a, b) for a, b in ends)

    def future(self, base, sizes, n_cuts, tensors, metadata):
        n = self.n
        n_cuts = min(n_cuts, n - 1)
        cuts = sorted({round(i * (n - 2) / max(n_cuts - 1, 1)) for i in range(n_cuts)})
        last = self.output
        part = next(i for i, axis in enumerate(self.axes[last]) if axis is not None)
        axis = self.axes[last][part]
        moved, influence = [], []
        for cut in cuts:
            changed = torch.cat([self.ids[:cut + 1], self.others(self.ids[cut + 1:])])
            after = self.forward(changed[None])
            moved.append(self.moved(base, after, 0, cut + 1))
            influence.append(_difference(base[last][part], after[last][part]).movedim(axis, 0).flatten(1).amax(1))
        tensors["probe.future.moved"] = torch.tensor(moved).T.contiguous()  # [module, cut]
        tensors["probe.future.size"] = torch.tensor(sizes)  # [module]
        tensors["probe.future.cuts"] = torch.tensor(cuts, dtype=torch.int64)  # [cut]
        tensors["probe.future.influence"] = torch.stack(influence)  # [cut, position]

    def length(self, base, sizes, _, tensors, metadata):
        """The first tokens alone against the whole prompt."""
        lengths = sorted({self.n - 1, max(self.n // 2, 1)}, reverse=True)
        columns = [self.of_length(base, length) for length in lengths]
        tensors["probe.length.moved"] = torch.tensor(columns).T.contiguous()  # [module, case]
        tensors["probe.length.size"] = torch.tensor(sizes)
        metadata["attnscope.length.cases"] = json.dumps([f"{length} of {self.n} tokens" for length in lengths])

    def of_length(self, base, length):
        """How far the first tokens alone move. What was given beside the tokens is left whole, and cut where it has a place for each
        token: only what moves both ways depends on the length, and not on what stands beside which token."""
        ways = [self.call] if getattr(self.call, "cut", None) is None else [self.call, self.call.cut]
        found, failed = [], None
        for call in ways:
            try:
                found.append(self.moved(base, self.forward(self.ids[None, :length], call=call), 0, length, total=length))
            except Exception as error:
                failed = failed or error
        if not found:
            raise failed
        return [min((m for m in each if m >= 0), default=-1.0) for each in zip(*found)]

    def masked(self, rows, left):
        """Rows of ids padded to one length, with their mask: outputs, and where each row begins."""
        longest = max(len(row) for row in rows)
        ids = torch.full((len(rows), longest), self.pad_id)
        mask = torch.zeros(len(rows), longest, dtype=torch.int64)
        starts = [longest - len(row) if left else 0 for row in rows]
        for i, (row, start) in enumerate(zip(rows, starts)):
            ids[i, start:start + len(row)], mask[i, start:start + len(row)] = row, 1
        return self.forward(ids, **self.mask_inputs(mask)), starts, longest

    def mask_inputs(self, mask):
        inverted = not self.accepts("attention_mask")
        inputs = {"src_key_padding_mask": mask == 0} if inverted else {"attention_mask": mask}
        if self.accepts("position_ids"):
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        return inputs

    def takes_mask(self, test, metadata):
        if self.accepts("attention_mask") or self.accepts("src_key_padding_mask"):
            return True
        metadata[f"attnscope.{test}.skipped"] = "neither call nor forward takes an attention_mask" if self.call else (
            "the model's forward takes no attention_mask")
        return False

    def shifts_positions(self, columns, sizes):
        """Whether pads on the left move something before any token meets another: learned positions that the model counts
        from the first pad on, as models do that are meant to be padded on the right."""
        if self.accepts("position_ids"):
            return False
        content = self.sizes_of(self.content, sizes)
        for reads, moved, own in zip(self.reads, self.sizes_of(columns, sizes), content):
            if reads and moved > 1e-4:
                return own <= 1e-4
        return False

    def of_tokens(self, moved):
        """Movements of the modules that read tokens. Others give tables by position, such as rotary angles, which padding rightly moves."""
        return [m if reads else -1.0 for m, reads in zip(moved, self.reads)]

    @staticmethod
    def sizes_of(moved, sizes):
        return [m / s if s > 0 else max(m, 0.0) for m, s in zip(moved, sizes)]

    def padding(self, base, sizes, n_pads, tensors, metadata):
        if not self.takes_mask("padding", metadata):
            return

        def run(left, right):
            pads = torch.tensor([self.pad_id])
            ids = torch.cat([pads.repeat(left), self.ids, pads.repeat(right)])[None]
            mask = torch.tensor([0] * left + [1] * self.n + [0] * right)[None]
            return self.forward(ids, **self.mask_inputs(mask))

        plain = run(0, 0)  # padded against unpadded, both with a mask: a mask alone may choose another kernel
        sizes = self.sizes(plain)
        cases = {f"left {n_pads}": (n_pads, 0), f"right {n_pads}": (0, n_pads)}
        columns = {name: self.of_tokens(self.moved(plain, run(*case), 0, self.n, left=case[0], total=self.n + n_pads))
                   for name, case in cases.items()}
        # without them a model with learned absolute positions rightly moves under left padding
        metadata["attnscope.padding.positions"] = "mask" if self.accepts("position_ids") else "model"
        if self.shifts_positions(columns[f"left {n_pads}"], sizes):
            del columns[f"left {n_pads}"]
            metadata["attnscope.padding.left"] = "not compared: the model counts positions from the first pad on"
        tensors["probe.padding.moved"] = torch.tensor(list(columns.values())).T.contiguous()  # [module, case]
        tensors["probe.padding.size"] = torch.tensor(sizes)
        metadata["attnscope.padding.cases"] = json.dumps(list(columns))

    def unequal(self, base, sizes, _, tensors, metadata):
        """Rows of unequal length padded together, against each row alone."""
        if not self.takes_mask("unequal", metadata):
            return
        lengths = sorted({self.n, max(2 * self.n // 3, 2), max(self.n // 3, 1)}, reverse=True)
        rows = [self.ids[:length] for length in lengths]
        alone = [self.masked([row], False)[0] for row in rows]
        sizes = [max(each) for each in zip(*(self.sizes(outputs) for outputs in alone))]
        columns, cases = [], []
        for left in (False, True):
            together, starts, longest = self.masked(rows, left)
            for i, (row, start) in enumerate(zip(rows, starts)):
                column = self.of_tokens(self.moved(alone[i], together, 0, len(row), left=start, total=longest, row=i, rows=len(rows)))
                if left and self.shifts_positions(column, sizes):
                    continue
                columns.append(column)
                cases.append(f"{len(row)} real tokens in a batch padded on the {'left' if left else 'right'} to {longest}")
        tensors["probe.unequal.moved"] = torch.tensor(columns).T.contiguous()  # [module, case]
        tensors["probe.unequal.size"] = torch.tensor(sizes)
        metadata["attnscope.unequal.cases"] = json.dumps(cases)

    def batch(self, base, sizes, n_pads, tensors, metadata):
        """The row alone against the same row between two others."""
        others = [self.ids[torch.randperm(self.n, generator=self.random)], self.others(self.ids)]
        after = self.forward(torch.stack([others[0], self.ids, others[1]]))
        tensors["probe.batch.moved"] = torch.tensor([self.moved(base, after, 0, self.n, row=1, rows=3)]).T.contiguous()
        tensors["probe.batch.size"] = torch.tensor(sizes)

    def order(self, base, sizes, _, tensors, metadata):
        """The last position, when the tokens before it stand in another order, and when they are others."""
        before, last = self.ids[:-1], self.ids[-1:]
        orders = [before.flip(0)] + [before[torch.randperm(self.n - 1, generator=self.random_orders)] for _ in range(2)]
        orders = [order for order in orders if not torch.equal(order, before)]
        if not orders:
            metadata["attnscope.order.skipped"] = "the tokens before the last are all alike, in any order"
            return
        columns = [self.moved(base, self.forward(torch.cat([order, last])[None]), self.n - 1, 1) for order in orders]
        tensors["probe.order.moved"] = torch.tensor(columns).T.contiguous()  # [module, order]
        tensors["probe.order.content"] = torch.tensor(self.content)  # [module], under other tokens
        tensors["probe.order.size"] = torch.tensor(sizes)

    def cache(self, base, sizes, _, tensors, metadata):
        """The prompt in parts with a cache, against the whole prompt."""
        step = self.step
        if step is None:
            if self.call is not None or not (self.accepts("past_key_values") and self.accepts("use_cache")):
                metadata["attnscope.cache.skipped"] = (
                    "the model's forward takes no past_key_values and use_cache: give probe(step=…)")
                return

            def step(model, ids, cache):
                return model(ids, past_key_values=cache, use_cache=True).past_key_values

        middle = max(self.n // 2, 1)
        steps = list(range(middle, min(self.n, middle + 4)))
        cases = {"one token after the other": [(0, middle)] + [(i, i + 1) for i in steps],
                 "two parts": [(0, middle), (middle, self.n)]}
        columns = []
        for parts in cases.values():
            cache, worst = None, [-1.0] * len(self.names)
            for start, end in parts:
                ids = self.ids[None, start:end].to(self.device)
                outputs, cache = self.observed(lambda ids=ids, cache=cache: step(self.model, ids, cache))
                if cache is None:
                    raise RuntimeError("the model gave no cache")
                moved = self.moved(base, outputs, start, end - start, part=end - start)
                worst = [max(pair) for pair in zip(worst, moved)]
            columns.append(worst)
        tensors["probe.cache.moved"] = torch.tensor(columns).T.contiguous()  # [module, case]
        tensors["probe.cache.size"] = torch.tensor(sizes)
        metadata["attnscope.cache.cases"] = json.dumps(list(cases))

    def labels(self, base, sizes, _, tensors, metadata):
        """Losses of the outputs against the token that each stands on, the next one, and the one after."""
        untrained = _looks_untrained(self.model)
        if untrained is not None:
            metadata["attnscope.labels.skipped"] = untrained
            return
        if getattr(self.call, "takes_vectors", False):
            metadata["attnscope.labels.skipped"] = "the inputs are vectors, which are no labels"
            return
        d_vocab = int(self.ids.max()) + 1
        logits = [t for t, axis in zip(base[self.output], self.axes[self.output])
                  if axis is not None and t.dim() >= 2 and axis == t.dim() - 2 and t.shape[-1] >= d_vocab]
        embedded = {m.num_embeddings for m in self.model.modules() if isinstance(m, nn.Embedding)}
        logits = [t for t in logits if t.shape[-1] in embedded or not embedded]
        if not logits:
            metadata["attnscope.labels.skipped"] = f"{self.output} gives no logits over the vocabulary"
            return
        losses = -logits[0].reshape(-1, self.n, logits[0].shape[-1])[0].to(torch.float64).log_softmax(-1)  # [position, token]
        n = self.n - 2  # positions that have all three
        columns = [losses[torch.arange(n), self.ids[offset:offset + n]] for offset in range(3)]
        tensors["probe.labels.losses"] = torch.stack(columns).to(torch.float32)  # [offset, position]

    def sequence_axes(self, base, n):
        """{module: [axis of positions or None, per output]}: the one axis that shortens when the prompt does."""
        shorter = None
        for call in (self.call, getattr(self.call, "cut", None)):
            with contextlib.suppress(Exception):  # a model of fixed length: the size has to tell
                shorter = shorter or self.forward(self.ids[None, :-1], shapes_only=True, call=call)
        features = {path or type(self.model).__name__: module.out_features for path, module in self.model.named_modules()
                    if isinstance(module, nn.Linear)}
        axes = {}
        for name, outputs in base.items():
            axes[name] = []
            for part, tensor in enumerate(outputs):
                equal = [axis for axis, size in enumerate(tensor.shape) if size == n]
                if shorter is not None:
                    other = shorter.get(name, [])[part:part + 1]
                    other = other[0] if other and len(other[0]) == tensor.dim() else tensor.shape
                    equal = [axis for axis in equal if other[axis] == n - 1]
                elif len(equal) > 1 and tensor.dim() == 3:
                    equal = [axis for axis in equal if axis == 1]
                elif tensor.dim() >= 3 or features.get(name.partition("#")[0]) == n:  # the last axis holds features
                    equal = [axis for axis in equal if axis < tensor.dim() - 1]
                # two axes of positions are scores or a pattern, where a hidden key may move without harm; and what comes after
                # the first such output is a cache or the like
                is_first = all(axis is None for axis in axes[name])
                axes[name].append(equal[0] if len(equal) == 1 and is_first else None)
        return axes

    def sizes(self, outputs):
        return [max((float(t.abs().max()) for t, a in zip(outputs.get(name, []), self.axes[name])
                     if a is not None and t.numel()), default=0.0) for name in self.names]

    def moved(self, base, after, start, length, left=0, total=None, row=0, rows=1, part=None):
        """Per module, max |difference| over `length` positions from `start` of the base, after bringing both to one shape.

        `after` has `total` positions, of which the base's first stands at `left`; or it has only the `part` compared.
        """
        columns = []
        for name in self.names:
            worst = -1.0
            for at_part, axis in enumerate(self.axes[name]):
                if axis is None or name not in base or name not in after or at_part >= len(after[name]):
                    continue
                a, b = base[name][at_part], after[name][at_part]
                if b.dim() != a.dim() or start + length > a.shape[axis]:
                    continue
                a = a.narrow(axis, start, length)
                if part is not None:
                    if b.shape[axis] != part:
                        continue
                elif total is not None and b.shape[axis] == total and left + start + length <= total:
                    b = b.narrow(axis, left + start, length)
                elif b.shape[axis] % max(rows, 1) == 0 and b.shape[axis] == rows * base[name][at_part].shape[axis] and rows > 1:
                    pass  # batch*position in one axis
                elif b.shape[axis] == base[name][at_part].shape[axis]:
                    b = b.narrow(axis, start, length)
                else:
                    continue
                choices = [b]
                differing = [i for i in range(a.dim()) if a.shape[i] != b.shape[i]]
                if rows > 1 and len(differing) == 1 and b.shape[differing[0]] == rows * a.shape[differing[0]]:
                    # batch alone (1 → rows), batch*head or head*batch, or batch*position, where either may be the outer one
                    at, size = differing[0], a.shape[differing[0]]
                    choices = [b.narrow(at, row * size, size), b.unflatten(at, (size, rows)).select(at + 1, row)]
                if choices[0].shape != a.shape:
                    continue
                differences = [_difference(a, b) for b in choices]
                worst = max(worst, min(float(d.max()) if d.numel() else 0.0 for d in differences))
            columns.append(worst)
        return columns
