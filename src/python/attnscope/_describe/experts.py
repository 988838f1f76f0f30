"""Reads a mixture of experts: its router, the experts that the example chose, and how their outputs are weighed."""

from __future__ import annotations

import torch

from . import fitting
from .replay import PRODUCTS, VIEWS
from .slabs import is_slab, read_slab
from .tracing import Unnamed, elements, function


class Experts:
    """A router, experts by number, and the expert that every token uses."""

    def __init__(self, router, each, n_used):
        self.router, self.each, self.n_used = router, each, n_used  # (weight [expert, in], bias), {expert: Mlp}
        self.shared = self.shared_weight = self.choice_bias = None
        self.scores, self.normalises, self.scale = "softmax", False, 1.0

    @property
    def n(self):
        return len(self.router[0])

    @property
    def activation(self):
        return next(iter(self.each.values())).activation

    @property
    def each_has_gate(self):
        return next(iter(self.each.values())).gate is not None

    def key(self):
        """What is the same in all layers that have experts."""
        one = next(iter(self.each.values()))
        shared = None if self.shared is None else (self.shared.gate is None, self.shared_weight is None)
        return (self.n, self.n_used, self.scores, self.normalises, round(self.scale, 6), one.gate is None, one.up[0].shape,
                self.choice_bias is None, shared)


class Choice:
    """What picks experts for each row: the node, how many it picks, and which; a softmax alone picks all of them."""

    def __init__(self, node, n_experts, picks, chosen):
        self.node, self.n_experts, self.picks, self.chosen = node, n_experts, picks, chosen  # chosen [row, pick]

    @property
    def scores(self):
        """What it chooses by, as the node of them."""
        return self.node.args[0]

    def only(self, expert):
        """Values by which every row chooses one expert."""
        if self.picks is not None:
            return {self.picks: torch.full_like(self.picks.value, expert)}
        one = torch.zeros_like(self.node.value)
        one[..., expert] = 1
        return {self.node: one}


def choice(p, nodes):
    """The Choice of a branch; None where it has none."""
    maps = [m for m in nodes if p.op(m) in PRODUCTS]
    top = next((node for node in nodes if p.op(node) in ("topk", "max", "_softmax") and len(node.args) > 1
                and isinstance(node.args[0].value, torch.Tensor)
                and p.between(maps, node)), None) if len(maps) > 2 else None
    if top is not None and p.op(top) == "_softmax" and len(maps) == 3 and not any(p.op(node) == "topk" for node in nodes):
        return None
    while top is not None and p.op(top) == "_softmax":  # of scores that are chosen by, or the weights themselves
        later = next((node for node in nodes if node.idx > top.idx and p.op(node) in ("topk", "max") and len(node.args) > 1), None)
        if later is None:
            n = top.value.shape[-1]
            return Choice(top, n, None, torch.arange(n).expand(top.value.numel() // n, n))
        top = later
    if top is None:
        return None
    picks = [node for node in top.users if node in set(nodes) and p.op(node) == "getitem" and node.args[1] == 1]
    if len(picks) != 1:
        raise Unnamed("the numbers of the chosen experts are used in several ways", [top])
    n = top.args[0].value.shape[-1]
    return Choice(top, n, picks[0], picks[0].value.reshape(top.args[0].value.numel() // n, -1))


def read_experts(p, source, outs, sizes, read_mlp, with_bias):
    """(Experts, norm on their output) of a branch that chooses among maps of its input; it is the sum of `outs`."""
    n, d_model = sizes
    nodes = sorted({x for out in outs for x in p.between([source], out)}, key=lambda x: x.idx)
    inside, chooses = set(nodes), choice(p, nodes)
    top = chooses.node
    maps = [m for m in nodes if p.op(m) in PRODUCTS]
    above = set(p.between([source], top))
    routers = [m for m in maps if m in above]
    if len(routers) != 1 or len(chooses.chosen) != n:
        raise Unnamed(f"a router of {len(routers)} maps, expected one", routers[:3] or [top])
    logits = with_bias(p, routers[0], inside, top)
    at = elements(p, source, logits, n)
    router = None if at is None else fitting.affine(function(p, source, logits, at), n, d_model)
    if router is None or len(router[0]) != chooses.n_experts:
        raise Unnamed("the router is no affine map of its input to one number for each expert", [logits])
    groups, alone = _groups(p, [m for m in maps if m not in routers])
    each, shared = {}, []
    slabs = [group for group in groups if is_slab(p, source, chooses, group[1], n)]
    for group in slabs:
        each.update(read_slab(p, source, chooses, group, (n, d_model), read_mlp, with_bias, inside))
    groups = [group for group in groups if group not in slabs]
    if len(slabs) > 1:
        raise Unnamed("several products hold the experts of one layer", [down for down, _ in slabs])
    rows = {down: _rows(p, source, down, ups, d_model) for down, ups in groups}
    for (down, _), number in zip(groups, _numbers(p, source, chooses, groups, rows, (n, d_model))):
        given, end = rows[down], with_bias(p, down, inside, outs[0])
        mlp, norm = read_mlp(p, given, end, given.value.numel() // d_model, d_model)
        if norm is not None or not mlp.is_plain:
            raise Unnamed("the hidden values or the output of an expert are normed or activated once more", [end])
        if number is None:
            shared.append(mlp)
        else:
            each[number] = mlp
    if not each:
        raise Unnamed("no expert was found behind the router", [top])
    if len(shared) > 1:
        raise Unnamed(f"{len(shared)} experts that every token uses, expected one", [m for m, _ in groups[:2]])
    if len({(mlp.activation, mlp.gate is None, mlp.up[0].shape) for mlp in each.values()}) > 1 \
            or shared and shared[0].activation != next(iter(each.values())).activation:
        raise Unnamed("the experts of a layer differ in their kind or width", [top])
    experts = Experts(router, each, chooses.chosen.shape[1])
    experts.shared = shared[0] if shared else None
    experts.shared_weight = _shared_weight(p, source, alone, inside, outs[0], n, d_model, with_bias)
    return experts, _weigh(p, experts, source, chooses, outs, n, d_model)


def _groups(p, maps):
    """([(last map, [first maps])] of what looks like one feed-forward layer each, maps that stand alone)."""
    inside = p.above(maps)
    later = [m for m in maps if inside[m]]
    used = {m for last in later for m in inside[last]}
    if any(len(inside[m]) > 2 for m in later) or len(used) != sum(len(inside[m]) for m in later):
        raise Unnamed("experts that are no feed-forward layers of up and down, or gate, up and down", later[:3])
    return [(m, inside[m]) for m in later], [m for m in maps if m not in later and m not in used]


def _rows(p, source, down, ups, d_model):
    """The rows that a feed-forward layer is given."""
    first = min(up.idx for up in ups)
    chain = [c for c in p.bottlenecks([source], down) if c.idx < first and isinstance(c.value, torch.Tensor)
             and c.value.dim() >= 2 and c.value.shape[-1] == d_model and c.value.is_floating_point()]
    if not chain:
        raise Unnamed("what an expert is given is no row of its input", ups)
    return chain[-1]


def _numbers(p, source, chooses, groups, rows, sizes):
    """The expert that each feed-forward layer is, in the order of `groups`; None for one that every token uses."""
    n, d_model = sizes
    x = source.value.reshape(n, d_model)
    of = {expert: torch.nonzero((chooses.chosen == expert).any(1)).flatten() for expert in range(chooses.n_experts)}
    found, on_all = [], []
    for down, _ in groups:
        given = rows[down].value.reshape(-1, d_model)
        if not p.between([chooses.node], rows[down]):  # all rows, whatever is chosen
            on_all.append(down)
            found.append(None)
            continue
        own = [expert for expert, tokens in of.items() if expert not in found and _are_rows(given, x[tokens])]
        if not own:
            raise Unnamed("which rows an expert runs on does not follow from the choice", [rows[down]])
        found.append(own[0])
    if len(on_all) > 1:
        found = [_counted(p, chooses, down) if down in on_all else expert
                 for (down, _), expert in zip(groups, found)]
    numbers = [expert for expert in found if expert is not None]
    if len(set(numbers)) != len(numbers):
        raise Unnamed("several maps belong to one expert", [down for down, _ in groups][:3])
    return found


def _are_rows(given, expected):
    """Whether two sets of rows are the same, in any order."""
    if len(given) != len(expected):
        return False
    order = [torch.argsort((rows * torch.arange(1, rows.shape[1] + 1)).sum(1)) for rows in (given, expected)]
    return torch.equal(given[order[0]], expected[order[1]])


def _counted(p, chooses, down):
    """The expert with whose choice alone a map's output counts; None where it always does."""
    away = down.value + 1
    counts = []
    for expert in range(chooses.n_experts):
        plain, moved = (p.run({**chooses.only(expert), **values}, [p.logits])[0] for values in ({}, {down: away}))
        counts.append(not torch.equal(plain, moved))
    own = [expert for expert, counted in enumerate(counts) if counted]
    if len(own) == chooses.n_experts:
        return None
    if len(own) != 1:
        raise Unnamed("which expert a feed-forward layer is does not follow from the choice", [down])
    return own[0]


def _shared_weight(p, source, alone, inside, out, n, d_model, with_bias):
    """The map whose sigmoid weighs the expert that every token uses."""
    if not alone:
        return None
    if len(alone) > 1 or alone[0].value.numel() != n:
        raise Unnamed("a map among the experts that is neither of a feed-forward layer nor the weight of one", alone[:3])
    node = with_bias(p, alone[0], inside, out)
    at = elements(p, source, node, n)
    found = None if at is None else fitting.affine(function(p, source, node, at), n, d_model)
    if found is None:
        raise Unnamed("the weight of the shared expert is no affine map of its input", [node])
    return found


def _weigh(p, experts, source, chooses, outs, n, d_model):
    """Finds how the outputs are weighed and summed; gives the norm on the sum."""
    x = source.value.reshape(n, d_model)
    logits = x @ experts.router[0].T + experts.router[1]
    chosen, top, out = chooses.chosen, chooses.node, outs[0]
    given = chooses.scores.value.reshape(n, experts.n)
    parts = torch.zeros(n, experts.n_used, d_model, dtype=torch.float64)
    for expert, mlp in experts.each.items():
        mask = (chosen == expert)[..., None]
        parts = torch.where(mask, _applied(mlp, x)[:, None], parts)
    shared = 0.0 if experts.shared is None else _applied(experts.shared, x)
    if experts.shared_weight is not None:
        shared = shared * torch.sigmoid(x @ experts.shared_weight[0].T + experts.shared_weight[1])
    ways = {"softmax": logits.softmax(-1), "sigmoid": logits.sigmoid()}
    ends = [c for c in p.bottlenecks([source], out) if c.idx > top.idx and isinstance(c.value, torch.Tensor)
            and c.value.numel() == n * d_model and c.value.shape[-1] == d_model] if len(outs) == 1 else outs[:1]
    others = sum((one.value.reshape(n, d_model) for one in outs[1:]), torch.zeros(n, d_model, dtype=torch.float64))
    for word, values in ways.items():
        bias = _choice_bias(given, values, logits)
        if bias is None:
            continue
        for normalises in (True, False):
            weights = torch.gather(values, 1, chosen)
            weights = weights / weights.sum(-1, keepdim=True) if normalises else weights
            total = (weights[..., None] * parts).sum(1)
            for end in reversed(ends):
                rest = end.value.reshape(n, d_model) + others - shared
                scale = float((rest * total).sum() / (total * total).sum().clamp_min(1e-30))
                if not fitting.close(total * scale, rest, 1e-7):
                    continue
                experts.scores, experts.normalises = word, normalises
                experts.scale = 1.0 if abs(scale - 1) < 1e-7 else float(f"{scale:.7g}")
                experts.choice_bias = bias if float(bias.abs().max()) else None
                if end is out:
                    return None
                norm = fitting.norm(function(p, end, out), n, d_model, end.value.reshape(n, -1))
                if norm is not None:
                    return norm
    after = [node for node in p.between([top], out) if p.op(node) not in VIEWS and p.op(node) not in PRODUCTS]
    raise Unnamed("the experts' outputs are weighed otherwise than by a softmax or a sigmoid of the router's outputs", after[1:4])


def _choice_bias(given, values, logits):
    """What was added to the scores only to choose by; None where the choice is made by something else."""
    for by in (values, logits):
        added = given - by
        if fitting.close(added, added[:1].expand_as(added), 1e-9) or float(added.abs().max()) < 1e-12:
            bias = added[0]
            is_none = float(bias.abs().max()) < 1e-9 * max(1e-30, float(given.abs().max()))
            if is_none or by is values:
                return torch.zeros_like(bias) if is_none else bias
    return None


def _applied(mlp, x):
    """What a feed-forward layer gives of rows."""
    up = x @ mlp.up[0].T + mlp.up[1]
    act = fitting.function_of(mlp.activation)
    hidden = act(up) if mlp.gate is None else act(x @ mlp.gate[0].T + mlp.gate[1]) * up
    return hidden @ mlp.down[0].T + mlp.down[1]
