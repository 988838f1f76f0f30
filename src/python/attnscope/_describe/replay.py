"""Computes a watched pass again, in double precision, with other values in some places.

What an operation is for is asked of its numbers, not of its name: put unit vectors in one place, and read another.
"""

from __future__ import annotations

import copy

import torch

_FEWER_BITS = (torch.float16, torch.bfloat16)
_FLOATS = (torch.float32, *_FEWER_BITS)
# Operations that move values and compute none.
VIEWS = {"view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "select", "slice",
         "clone", "contiguous", "alias", "detach", "lift_fresh_copy", "_to_copy", "split", "chunk", "unbind", "getitem",
         "split_with_sizes", "as_strided", "repeat", "cat", "stack", "index", "view_as", "repeat_interleave", "index_select",
         "flatten", "unflatten", "movedim", "squeeze_", "dropout", "native_dropout", "select_scatter", "slice_scatter", "copy",
         "swapaxes", "narrow", "unsafe_chunk", "unsafe_split", "as_strided_scatter", "view_copy", "flip", "roll", "gather"}
PRODUCTS = {"mm", "bmm"}
# Operations that take the shape of a value, and none of its numbers.
_OF_SHAPE = {"new_ones", "new_zeros", "new_full", "new_empty", "ones_like", "zeros_like", "full_like", "empty_like", "full", "ones",
             "zeros", "zero", "fill"}


class Unreplayed(Exception):
    """An operation that cannot be computed again in double precision."""

    def __init__(self, node, error):
        lines = str(error).strip().splitlines() or [""]
        super().__init__(f"{node.said()} cannot be computed again in double precision: {lines[0][:120]}")
        self.node = node


class Pass:
    """A watched pass with every value in double precision, and what depends on what."""

    def __init__(self, watched, own_rows=False, rounds=False):
        self.own_rows = own_rows  # the rows of the example are the tokens, whatever they were made of
        self.are_given = True  # rows that a map makes of an argument may be given anew
        self.nodes, self.ids, self.logits = watched.nodes, watched.ids, watched.logits
        self.own_logits = watched.own_logits
        for node in rounded_constants(self.nodes) if rounds else ():
            node.rounds_to = node.kwargs["dtype"]
        for node in self.nodes:
            node.users = []
            if node.kind != "call":
                node.value = _doubled(node.value)
            elif self.op(node).split(".")[0] in _OF_SHAPE and node.args and isinstance(node.args[0], type(node)) \
                    and not any(isinstance(one, type(node)) for one in (*node.args[1:], *node.kwargs.values())):
                node.becomes(_Made(node))
        for node in self.nodes:
            for one in dict.fromkeys(node.inputs):
                one.users.append(node)
        with torch.no_grad():
            for node in self.nodes:
                if node.kind == "call":
                    try:
                        node.value = _run(node, lambda n: n.value)
                    except Exception as error:
                        raise Unreplayed(node, error) from error
        self.leaves = watched.leaves
        self.ends = (self.logits,)  # what the text is read for
        self.memory, self.n_memory, self.of_memory = None, 0, frozenset()  # of a decoder: the encoder's output, and what depends on it
        self.kept = None  # values of the first attention that later ones add to theirs
        self.active = self._active_of_arguments() if own_rows else self._active()
        self.gathered = self._gathered()

    def gives_own_logits(self):
        """Whether the operations that were seen give the logits of the model's own call."""
        own, again = self.own_logits.detach().to("cpu", torch.float64), self.logits.value
        if own.shape != again.shape:
            return False
        known = torch.isfinite(own)
        return bool(known.any()) and float((own - again)[known].abs().max()) <= 1e-3 * max(1e-30, float(own[known].abs().max()))

    @staticmethod
    def op(node):
        """The operation without its namespace."""
        return node.op.split(".")[-1] if node.op.startswith("aten") else node.op

    def seen_from(self, ids, ends=None):
        """The pass as one text sees it, up to some values or the logits; `below` are all values that depend on the text."""
        own = copy.copy(self)
        own.ids, own.ends = ids, tuple(ends or (self.logits,))
        own.active = own._active()
        own.gathered = own._gathered()
        return own

    def seen_from_rows(self, argument, ends=None):
        """The pass as numbers see it that one argument holds: rows that are made of them are the tokens."""
        own = copy.copy(self)
        own.own_rows, own.are_given, own.ends = True, False, tuple(ends or (self.logits,))
        own.below = {argument}
        for node in self.nodes:
            if node.kind == "call" and any(i in own.below for i in node.inputs):
                own.below.add(node)
        own.active = own.needed(own.below)
        own.roots = [argument] if argument in own.active else []
        own.gathered = own._gathered()
        return own

    def forget(self):
        """Finds anew what depends on the text, after a node reads another one."""
        self.active = self.active & set(self.between(self.roots, *self.ends))
        self._orders = {}
        self.gathered = self._gathered()

    def _gathered(self):
        """Nodes that the text reaches by whole numbers alone, such as rows of parameters that a router picks."""
        found, roots = set(), set(self.roots)
        for node in self.nodes:
            inputs = [i for i in node.inputs if i in self.active]
            if node in self.active and node not in roots and isinstance(node.value, torch.Tensor) and inputs and all(
                    i in found or isinstance(i.value, torch.Tensor) and not (i.value.is_floating_point() or i.value.is_complex())
                    for i in inputs):
                found.add(node)
        return found

    def _active_of_arguments(self):
        """Nodes of floats that depend on any argument but masks."""
        def is_mask(value):
            return bool(((value == 0) | (value == 1) | (value < -1e3)).all())

        args = [n for n in self.nodes if n.kind == "argument" and isinstance(n.value, torch.Tensor)]
        sources = {n for n in args if n.value.is_floating_point() and not is_mask(n.value)}
        others = {n for n in args if n not in sources}
        active, from_ids = set(sources), set(others)
        for node in self.nodes:
            if any(i in active for i in node.inputs):
                active.add(node)
            elif node.kind == "call" and any(i in from_ids for i in node.inputs):
                from_ids.add(node)
                if self.op(node) in ("embedding", "index", "index_select", "mm", "bmm") \
                        and isinstance(node.value, torch.Tensor) and node.value.is_floating_point():
                    active.add(node)
                    sources.add(node)
        needed = self.needed(active)
        self.roots = [n for n in self.nodes if n in sources and n in needed]
        return needed

    def needed(self, active):
        """What of `active` leads to the ends."""
        needed, stack = set(), list(self.ends)
        while stack:
            node = stack.pop()
            if node not in needed and node in active:
                needed.add(node)
                stack.extend(node.inputs)
        return needed

    def _active(self):
        """Nodes of floats that depend on the token ids; rows of a table that ids choose are where they begin."""
        if self.ids is None:
            self.roots = []
            return set()
        from_ids, active, roots = {self.ids}, set(), []
        for node in self.nodes:
            inputs = node.inputs
            if any(i in active for i in inputs):
                active.add(node)
            elif node.kind == "call" and any(i in from_ids for i in inputs):
                from_ids.add(node)
                is_rows = self.op(node) in ("embedding", "index", "index_select", "mm", "bmm", "gather")
                if is_rows and isinstance(node.value, torch.Tensor) and node.value.is_floating_point():
                    active.add(node)
                    roots.append(node)
        self.below = active
        needed = self.needed(active)
        self.roots = [root for root in roots if root in needed]
        # A model may read a part of its ids alone, such as all but the last.
        self.argument = self.ids
        read = {i for root in self.roots for i in root.inputs if i in from_ids and not i.value.is_floating_point()}
        if len(read) == 1 and (part := read.pop()).value.numel() < self.ids.value.numel():
            self.ids = part
        return needed

    def is_one(self, node):
        """Whether a node multiplies or divides a value by ones alone, such as a mask of padding where there is none."""
        op = self.op(node)
        if op not in ("mul", "div", "masked_fill", "where"):
            return False
        if op == "masked_fill":
            return len(node.args) == 3 and not bool(node.args[1].value.any())
        if op == "where":
            return len(node.args) == 3 and node.args[0] not in self.active and bool(node.args[0].value.all()) \
                and getattr(node.args[1], "value", None) is not None and node.args[1].value.shape == node.value.shape
        others = [getattr(a, "value", a) for a in node.args if a not in self.active]
        return len(others) == 1 and (bool((others[0] == 1).all()) if isinstance(others[0], torch.Tensor) else others[0] == 1)

    def between(self, sources, *sinks):
        """Nodes on paths from any of `sources` to any of `sinks`, both included, in order."""
        last = max((sink.idx for sink in sinks), default=-1)
        below, above, stack = set(sources), set(), list(sources)
        while stack:
            for user in stack.pop().users:
                if user.idx <= last and user not in below:
                    below.add(user)
                    stack.append(user)
        stack = list(sinks)
        while stack:
            node = stack.pop()
            if node in below and node not in above:
                above.add(node)
                if node not in sources:
                    stack.extend(node.inputs)
        return sorted(above, key=lambda n: n.idx)

    def above(self, nodes):
        """For each of some nodes, the others of them that it is made of, in order."""
        reached = {node: set(self.between([node], *(other for other in nodes if other is not node))) for node in nodes}
        return {node: [other for other in nodes if other is not node and node in reached[other]] for node in nodes}

    def bottlenecks(self, sources, *sinks):
        """Nodes that every path from `sources` to `sinks` goes through, in order; a single source counts itself."""
        nodes = self.between(sources, *sinks)
        inside = set(nodes)
        found, reach = [], -1
        for node in nodes:
            starts = len(sources) > 1 and node not in sinks and any(s.idx > node.idx and s in inside for s in sources)
            if reach <= node.idx and not starts:
                found.append(node)
            ends = [user.idx for user in node.users if user in inside]
            # Each of several ends leads out of what is looked at.
            ends += [len(self.nodes)] if len(sinks) > 1 and node in sinks else []
            reach = max([reach, *ends])
        return found

    def run(self, values, targets):
        """Values of `targets` where the nodes of `values` have other values."""
        changed = dict(values)
        wanted = self._order(tuple(values), tuple(targets))
        with torch.no_grad():
            for node in wanted:
                changed[node] = _run(node, lambda n: changed.get(n, n.value))
        return [changed.get(target, target.value) for target in targets]

    def _order(self, sources, targets):
        key = (sources, targets)
        cache = self.__dict__.setdefault("_orders", {})
        if key not in cache:
            nodes = set()
            for target in targets:
                nodes.update(self.between(sources, target))
            cache[key] = sorted((n for n in nodes if n not in sources and n.kind == "call"), key=lambda n: n.idx)
        return cache[key]


class _Made:
    """What an operation makes of the shape of a value, as a function of nothing."""

    def __init__(self, node):
        self.node, self.target, self.args, self.kwargs = node.args[0], node.target, node.args[1:], node.kwargs

    def __call__(self):
        kwargs = {name: _wide(arg) for name, arg in self.kwargs.items()}
        return self.target(torch.zeros_like(self.node.value), *self.args, **kwargs)


def like(node, rows):
    """`rows` in the shape and strides of the value of a node."""
    value = node.value
    to = torch.empty_strided(value.shape, value.stride(), dtype=rows.dtype)
    if any(stride == 0 and size > 1 for stride, size in zip(value.stride(), value.shape)):
        return rows.reshape(value.shape)
    return to.copy_(rows.reshape(value.shape))


def rounded_constants(nodes):
    """Conversions of constants to fewer bits in a model whose weights have more: of a table, of cosines for instance, that code keeps so.

    What is made of weights or of the text is computed in double precision, whatever it is converted to.
    """
    weights = [node.value for node in nodes if node.kind == "parameter" and isinstance(node.value, torch.Tensor)]
    n_of_fewer = sum(x.numel() for x in weights if x.dtype in _FEWER_BITS)
    if 2 * n_of_fewer > sum(x.numel() for x in weights):
        return []
    constant, found = set(), []
    for node in nodes:
        if node.kind == "buffer" or node.kind == "call" and all(one in constant for one in node.inputs):
            constant.add(node)
            if Pass.op(node) == "_to_copy" and node.kwargs.get("dtype") in _FEWER_BITS:
                found.append(node)
    return found


def _doubled(value):
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().to("cpu")
    if value.is_complex():
        return value.to(torch.complex128)
    return value.to(torch.float64) if value.is_floating_point() else value


def _wide(value):
    if value in _FLOATS:
        return torch.float64
    if value == torch.complex64:
        return torch.complex128
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value


def _run(node, value_of):
    """One operation on the values that `value_of` gives, in double precision."""
    def fill(arg):
        if isinstance(arg, (list, tuple)):
            return type(arg)(fill(one) for one in arg)
        return value_of(arg) if type(arg).__name__ == "Node" else arg

    args = fill(node.args)
    kwargs = {name: _wide(fill(arg)) for name, arg in node.kwargs.items()}
    if isinstance(args, tuple):
        args = tuple(_wide(arg) if isinstance(arg, (torch.dtype, torch.device)) else arg for arg in args)
    out = node.target(*args, **kwargs)
    if node.rounds_to is not None:
        out = out.to(node.rounds_to)
    return _doubled(out) if isinstance(out, torch.Tensor) else out

