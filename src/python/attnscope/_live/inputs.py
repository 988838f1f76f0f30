"""What the forward call of a model is given: ids alone, ids and a target, rows of numbers, or the inputs that came with the model."""

from __future__ import annotations

import inspect
import re

import torch
from torch import nn

from .._capture.axes import MASKED
from .._capture.order import _is_position_first
from .._capture.shared import _is_ids
from .faults import Unusable

TARGET = re.compile(r"tgt|trg|target|decoder|(^|_)dec(_|$)|^y$")
NOT_TOKENS = re.compile(r"mask|length|position|segment|type|label")
HIDES = -30  # numbers down to here hide a key: its weight is below what float32 holds beside others


class Inputs:
    """The arguments of one forward call, with the ids in them replaced.

    given    what came with the model: a tensor, a tuple of arguments, or a dictionary of them; None where nothing did
    """

    def __init__(self, model, given):
        self.model, self.given = model, given
        weight = next(model.parameters(), None)
        self.device = weight.device if weight is not None else torch.device("cpu")
        self.names, self.required = _parameters(model)
        if isinstance(given, torch.Tensor):
            self.args, self.kwargs = (given,), {}
        elif isinstance(given, dict) or hasattr(given, "keys"):
            self.args, self.kwargs = (), dict(given)
        elif isinstance(given, (tuple, list)):
            two = len(given) == 2 and isinstance(given[0], (tuple, list)) and isinstance(given[1], dict)
            self.args, self.kwargs = (tuple(given[0]), dict(given[1])) if two else (tuple(given), {})
        elif given is not None:
            raise Unusable(f"the inputs are a {type(given).__name__}, expected a tensor, a tuple of arguments or a dictionary of them")
        else:
            self.args, self.kwargs = (), {}
        self.labels = []  # where ids stand that a loss alone reads, one for each of the source
        self.places = self._places_of_ids()
        self.batch_axis, self.n_rows = 0, 1
        if self.places:
            ids = self._at(self.places[0])
            named = {str(i): value for i, value in enumerate(self.args)} | self.kwargs
            self.turn(_is_position_first(ids, named))
        self.place_of_values = None  # where the rows of --values stand
        self.sources = set()  # places of sequences of vectors that cross-attention alone reads
        self.source = None  # [1, position]: the ids that stand at both places where nothing was given

    def turn(self, is_position_first):
        """Takes the ids for [position, batch], or for [batch, position]."""
        self.batch_axis = int(is_position_first)
        if self.places:
            ids = self._at(self.places[0])
            self.n_rows = ids.shape[self.batch_axis] if ids.dim() == 2 else 1

    @property
    def first_ids(self):
        return self._at(self.places[0])

    @property
    def may_turn(self):
        """Whether ids could as well be [position, batch], for all that their shape and what came with them say."""
        if self.given is None:
            return len(self.required) == 1
        ids = self._at(self.places[0]) if self.places else None
        if ids is None or ids.dim() != 2:
            return False
        return self.batch_axis == 0 and min(ids.shape) > 1 or ids.shape[0] > 1 == ids.shape[1]

    @property
    def rows(self):
        """Where a sequence of vectors stands, [batch, position, width]: that of --values, or one of given inputs that hold no ids;
        None elsewhere."""
        if self.place_of_values is not None:
            return self.place_of_values if self._at(self.place_of_values).dim() == 3 else None
        if self.places or self.given is None:
            return None
        return self._place_of_vectors(3)

    def _place_of_vectors(self, n_dims):
        """Where a sequence of vectors stands: the target where there is one beside a source."""
        named = [(idx, self.names[idx] if idx < len(self.names) else str(idx), value) for idx, value in enumerate(self.args)]
        named += [(name, name, value) for name, value in self.kwargs.items()]
        found = [(at, name) for at, name, value in named if isinstance(value, torch.Tensor) and value.is_floating_point()
                 and value.dim() == n_dims and not re.search("mask", name) and not _is_mask(value)]
        targets = [at for at, name in found if TARGET.search(name)]
        targets = targets or [at for at, _ in found if at not in self.sources]
        return next(iter(targets or [at for at, _ in found]), None)

    def note_sources(self, read):
        """Takes note of the sequences of vectors that are among `read`, what keys of cross-attention were made of."""
        for at, value in (*enumerate(self.args), *self.kwargs.items()):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() == 3 \
                    and any(x.shape == value.shape and torch.equal(x, value) for x in read):
                self.sources.add(at)

    def with_values(self, values, position_axis):
        """Inputs of one call on `values`, a list of rows: they stand where the given inputs have a sequence of vectors, in a batch
        of one, or are the only argument where nothing was given. All else stays as it was given."""
        if self.given is None:
            if len(self.required) > 1:
                raise Unusable(f"{self._needs()}: return (model, tokenizer, inputs), where inputs are the arguments of one call, and "
                               "--values stands in for the sequence of vectors in them")
            dtypes = [p.dtype for p in self.model.parameters() if p.is_floating_point()]
            rows = torch.tensor(values, dtype=dtypes[0] if dtypes else torch.float32, device=self.device)
            made = Inputs(self.model, ((rows[None],), {}))
            made.place_of_values = 0
            return made
        at = self._place_of_vectors(3)
        at = self._place_of_vectors(2) if at is None else at
        if at is None:
            raise Unusable("--values stands in for a sequence of vectors [batch, position, feature], and the inputs that came with the "
                           "model hold none")
        before = self._at(at)
        rows = torch.tensor(values, dtype=before.dtype, device=self.device)
        rows = rows if before.dim() == 2 else rows.unsqueeze(1 - position_axis)
        args = tuple(rows if i == at else self._of_first_row(value, before, position_axis) for i, value in enumerate(self.args))
        kwargs = {k: rows if k == at else self._of_first_row(value, before, position_axis) for k, value in self.kwargs.items()}
        made = Inputs(self.model, (args, kwargs))
        made.place_of_values = at
        return made

    def _of_first_row(self, value, vectors, position_axis):
        """A tensor that was given beside a batch of vectors, as it is for the first of them."""
        if not isinstance(value, torch.Tensor) or vectors.dim() != 3 or value.dim() == 0:
            return value
        n_rows, n = vectors.shape[1 - position_axis], vectors.shape[position_axis]
        if value.dim() == 3 and value.is_floating_point() and value.shape[1 - position_axis] == n_rows:
            return value.narrow(1 - position_axis, 0, 1)  # another sequence of vectors
        is_mask_of_positions = value.dim() == 2 and value.shape == (n, n)
        return value[:1] if value.shape[0] == n_rows and not is_mask_of_positions else value

    def row_numbers(self, position_axis):
        """The sequence of vectors as one number per position: that of the first position with the same vector."""
        vectors = self._at(self.rows).select(1 - position_axis, 0)
        _, kinds = torch.unique(vectors, dim=0, return_inverse=True)
        first = {}
        return [first.setdefault(kind, idx) for idx, kind in enumerate(kinds.tolist())]

    def of_rows(self, numbers, position_axis, more=None, cuts=False):
        """(args, kwargs) of one call on vectors of the sequence, by their numbers [batch, position]; one more than there are is a
        vector of zeros, for padding. All else is as for the first sequence of the batch; where it `cuts`, as long as the numbers."""
        at, whole = self.rows, self._at(self.rows)

        def beside(value, place):
            value = self._moved(value)
            if not isinstance(value, torch.Tensor) or place == at:
                return value
            n_rows = whole.shape[1 - position_axis]
            first = value
            if value.dim() >= 2 and value.shape[:2] != (whole.shape[position_axis],) * 2 or value.dim() == 1:
                first = with_rows(value, 1 - position_axis if value.dim() > 1 else 0, n_rows, len(numbers))
            is_cut = cuts and place not in self.sources
            return cut(first, whole.shape[position_axis], numbers.shape[1], 1 - position_axis) if is_cut else first

        args, kwargs = [beside(value, idx) for idx, value in enumerate(self.args)], {k: beside(v, k) for k, v in self.kwargs.items()}
        given = whole.to(self.device).select(1 - position_axis, 0)
        given = torch.cat([given, torch.zeros_like(given[:1])])
        vectors = given[numbers.to(self.device)]  # [batch, position, width]
        vectors = vectors.transpose(0, 1) if position_axis == 0 else vectors
        if isinstance(at, int):
            args[at] = vectors
        else:
            kwargs[at] = vectors
        return tuple(args), {**kwargs, **{name: self._moved(value) for name, value in (more or {}).items()}}

    def row_axis(self, n_queries):
        """The axis of positions of the sequence of vectors: the one that is attended over, where attention tells."""
        shape = self._at(self._place_of_vectors(3)).shape
        return 0 if n_queries == shape[0] != shape[1] and n_queries > 1 else 1

    @property
    def takes_ids(self):
        return self.given is None or bool(self.places)

    def _places_of_ids(self):
        """Where ids stand in the given inputs: the source first, then a target."""
        if self.given is None:
            return []
        named = [(idx, self.names[idx] if idx < len(self.names) else str(idx), value) for idx, value in enumerate(self.args)]
        named += [(name, name, value) for name, value in self.kwargs.items()]
        beside = [value for _, _, value in named if isinstance(value, torch.Tensor)]
        found = [(at, name, value) for at, name, value in named if _is_ids(value) and not NOT_TOKENS.search(name)
                 and not is_one_per_row(value, beside)]
        self.labels = [at for at, name, value in named if _is_ids(value) and "label" in name and found and value.shape == found[0][2].shape]
        # Beside tokens, numbers that are 0 and 1 alone are kinds of tokens or a mask, whatever they are called.
        found = [place for i, place in enumerate(found) if i == 0 or TARGET.search(place[1]) or not bool(((place[2] == 0) | (place[2] == 1)).all())]
        found.sort(key=lambda place: bool(TARGET.search(place[1])))
        return [at for at, _, _ in found]

    def take_target_for_labels(self):
        """Leaves the target alone in changed inputs: a loss reads it, and no decoder does."""
        self.labels.append(self.places.pop())

    def _fitted(self, labels, n):
        """Labels of `n` positions where the source has as many: the given ones, again from the first where they are fewer."""
        axis = 1 - self.batch_axis if labels.dim() == 2 else 0
        n_given = labels.shape[axis]
        if n == n_given or n_given == 0:
            return labels
        return labels.index_select(axis, torch.arange(n, device=labels.device) % n_given)

    def _at(self, place):
        return self.args[place] if isinstance(place, int) else self.kwargs[place]

    def own_ids(self):
        """The ids of the first row of the given inputs, or of their target where there is one."""
        ids = self._at(self.places[-1])
        return (ids if ids.dim() == 1 else ids.select(self.batch_axis, 0)).tolist()

    def with_source(self, ids, target):
        """(inputs, ids) that a probe changes: where a target stands beside the source, the source is `ids` in all of its runs, and
        what it changes is `target`, or the given one."""
        n_texts = len(self.required) if self.given is None else len(self.places)
        if n_texts < 2:
            return self, ids
        if self.given is not None:
            made = Inputs(self.model, self.of(list(ids), None))
            return made, made.own_ids() if target is None else target
        self.source = torch.as_tensor(ids, device=self.device)[None]
        return self, ids if target is None else target

    @property
    def has_source(self):
        """Whether a source stands beside what a probe changes."""
        return self.source is not None or self.given is not None and len(self.places) > 1

    def with_other_source(self, ids):
        """(args, kwargs) of a call in which each token of the source is another of its own, and the target is `ids`."""
        args, kwargs = self.of(ids, None)
        at = 0 if self.given is None else self.places[0]
        other = other_tokens(args[at] if isinstance(at, int) else kwargs[at])
        if other is None:
            raise Unusable("the source holds one kind of token")
        return with_argument(args, kwargs, at, other)

    def of(self, ids, target, more=None, cuts=False):
        """(args, kwargs) of one forward call. `ids` are a list, or a tensor [batch, position] that a probe made; where it `cuts`, what
        was given beside ids of as many positions is as long as they are."""
        more = {name: self._moved(value) for name, value in (more or {}).items()}
        if ids is None:
            return tuple(map(self._moved, self.args)), {**{k: self._moved(v) for k, v in self.kwargs.items()}, **more}
        rows = torch.as_tensor(ids, device=self.device)
        rows = rows[None] if rows.dim() == 1 else rows
        if self.given is None:
            return self._plain(rows, target, isinstance(ids, torch.Tensor)), more
        args, kwargs = list(self.args), dict(self.kwargs)
        # a probe changes what is written: the target where there are two
        of_probe = isinstance(ids, torch.Tensor) and len(self.places) > 1
        replaced = {self.places[-1 if of_probe else 0]: rows}
        if target is not None and len(self.places) > 1:
            replaced[self.places[1]] = torch.as_tensor(target, device=self.device)[None]
        for at, value in replaced.items():
            before = self._at(at)
            value = value.T if self.batch_axis == 1 else value
            value = value[0] if before.dim() == 1 and value.shape[0] == 1 else value
            if isinstance(at, int):
                args[at] = value.to(before.dtype)
            else:
                kwargs[at] = value.to(before.dtype)
        n_rows, n_given = rows.shape[0], self._at(self.places[-1 if of_probe else 0]).shape[-1 - self.batch_axis]
        for at in self.labels:
            labels = self._fitted(self._at(at), rows.shape[1])
            if isinstance(at, int):
                args[at] = labels
            else:
                kwargs[at] = labels

        def beside(value, at):
            if at in replaced:
                return value
            value = self._wide(value, n_rows)
            return cut(value, n_given, rows.shape[1], self.batch_axis) if cuts and at not in self.labels else value

        args = [beside(value, idx) for idx, value in enumerate(args)]
        kwargs = {k: beside(value, k) for k, value in kwargs.items()}
        return tuple(args), {**kwargs, **more}

    def _plain(self, rows, target, of_probe):
        """Ids as the first argument, and again as the target where the call needs one. A probe changes what is written, so that the
        source stays what it was."""
        if len(self.required) < 2:
            return (rows.T if self.batch_axis == 1 else rows,)
        second = self.required[1]
        if not TARGET.search(second) or len(self.required) > 2:
            raise Unusable(f"{self._needs()}: return (model, tokenizer, inputs), where inputs are the arguments of one call")
        if not of_probe or self.source is None:
            self.source = rows[:1]
        source = self.source.expand(rows.shape[0], -1) if of_probe else rows
        return source, rows if target is None else torch.as_tensor(target, device=self.device)[None]

    def _needs(self):
        return f"{type(self.model).__name__}.forward needs {', '.join(self.required)}"

    def _moved(self, value):
        return value.to(self.device) if isinstance(value, torch.Tensor) else value

    def _wide(self, value, n_rows):
        """A given tensor with as many rows as the ids that stand beside it: its first row, repeated."""
        value, axis = self._moved(value), self.batch_axis
        if not isinstance(value, torch.Tensor) or n_rows == self.n_rows:
            return value
        if value.dim() == 1 and self.n_rows == 1 and len(value) != 1:
            return value
        return with_rows(value, axis if value.dim() > 1 else 0, self.n_rows, n_rows)

    def signature_of_call(self):
        """Of a function that takes the model, ids, and what else of padding and positions the model takes."""
        kinds = inspect.Parameter
        names = [name for name in ("attention_mask", "position_ids", "past_key_values", "use_cache") if name in self.names
                 and name not in self.kwargs]
        parameters = [kinds("model", kinds.POSITIONAL_OR_KEYWORD), kinds("ids", kinds.POSITIONAL_OR_KEYWORD)]
        return inspect.Signature(parameters + [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in names])

    def drawn(self, n):
        """Ids that every table of the model has, always the same; none of them is what the model calls padding."""
        tables = [module for module in self.model.modules() if isinstance(module, nn.Embedding)]
        sizes = [module.num_embeddings for module in tables]
        sizes = [size for size in sizes if size >= 8] or sizes
        if not sizes:
            sizes = [max(p.shape) for p in self.model.parameters() if p.dim() == 2] or [8]
        pads = {module.padding_idx for module in tables}
        pads |= {value for module in self.model.modules() for name, value in vars(module).items()
                 if type(value) is int and re.search(r"pad(ding)?_?(id|idx|index|token)", name)}
        kinds = [token for token in range(min(sizes)) if token not in pads] or list(range(min(sizes)))
        random = torch.Generator().manual_seed(0)
        return [kinds[idx] for idx in torch.randint(len(kinds), (n,), generator=random).tolist()]


def with_rows(value, axis, n_rows, n):
    """A tensor that was given with `n_rows` rows of a batch, with `n`: its first one again and again. Others are left."""
    if value.dim() <= axis or value.shape[axis] != n_rows or n_rows == n:
        return value
    return value.narrow(axis, 0, 1).expand([n if i == axis else size for i, size in enumerate(value.shape)])


def cut(value, n_before, n, batch_axis):
    """A tensor with a place for each of `n_before` positions, with the first `n` of them; a square of them is cut on both sides."""
    if not isinstance(value, torch.Tensor) or n >= n_before:
        return value
    axes = [1 - batch_axis] if value.dim() >= 2 and value.shape[1 - batch_axis] == n_before else []
    if value.dim() >= 2 and value.shape[-2:] == (n_before, n_before):
        axes = [value.dim() - 2, value.dim() - 1]
    for axis in axes:
        value = value.narrow(axis, 0, n)
    return value


def is_one_per_row(ids, beside):
    """Whether integers are one number for each row of a batch, a time step or a class: one alone, or as many as there are rows in a
    tensor of rows of vectors or of pictures."""
    others = [x for x in beside if x is not ids and x.dim() >= 1]
    if ids.dim() == 2 and ids.shape[1] > 1:
        return False
    n = ids.numel()
    if any(x.dim() >= 3 and x.is_floating_point() and x.shape[0] == n for x in others):
        return True
    return n == 1 and any(x.dim() >= 2 and x.numel() > 1 or _is_ids(x) and x.numel() > 1 for x in others)


def _is_mask(x):
    """Whether a tensor says of each query and key whether it is seen: zeros beside ones, or beside values that hide, which no rows
    of data have or which stand where masks have them."""
    if x.dim() < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] < 2:
        return False
    values = x.detach().cpu().reshape(-1, *x.shape[-2:])
    is_zero = values == 0
    if bool((is_zero | (values <= MASKED)).all()):
        return True
    if torch.unique(values).numel() > 2:
        return False
    if bool((is_zero | (values <= HIDES)).all()):
        return _has_form_of_mask(is_zero)
    is_binary = bool((is_zero | (values == 1)).all())
    is_one_hot = is_binary and bool((~is_zero).sum(-1).eq(1).all())
    return is_binary and not is_one_hot and (_has_form_of_mask(is_zero) or _has_form_of_mask(~is_zero))


def _has_form_of_mask(is_seen):
    """Whether [matrix, query, key] hide later keys, keys of other blocks, far ones, or some keys from all queries. Keys that no query
    sees are left aside; with each pair taken both ways, all, those of blocks or those on some diagonals are left."""
    for matrix in is_seen:
        keys = matrix.any(0).nonzero().flatten()
        both = matrix[keys][:, keys]
        both = both | both.T | torch.eye(len(keys), dtype=torch.bool)
        is_banded = all(bool((diagonal == diagonal[0]).all()) for diagonal in (both.diagonal(k) for k in range(len(keys))))
        of_others = both.to(torch.float32)
        is_blocked = torch.equal(of_others @ of_others > 0, both)  # whoever sees one of a block sees all of it
        if not is_banded and not is_blocked:
            return False
    return True


def other_tokens(ids):
    """Ids in each of whose places stands another one of their own; None where there is one kind of them."""
    kinds = torch.unique(ids)
    return None if len(kinds) < 2 else kinds[(torch.searchsorted(kinds, ids.contiguous()) + 1) % len(kinds)]


def with_argument(args, kwargs, place, value):
    """(args, kwargs) of a call with another value in one place."""
    if isinstance(place, int):
        return (*args[:place], value, *args[place + 1:]), kwargs
    return args, {**kwargs, place: value}


def _parameters(model):
    """Names of the parameters of forward, and of those without a default."""
    while isinstance(getattr(model, "_orig_mod", None), nn.Module):
        model = model._orig_mod  # compiled
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return [], []
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [p.name for p in parameters], [p.name for p in plain if p.default is p.empty]
