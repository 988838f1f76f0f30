"""Follows single elements: which position an element belongs to, and which earlier element it is a copy of."""

from __future__ import annotations

import torch

from . import fitting
from .fitting import close, random
from .replay import VIEWS, like


class Unnamed(Exception):
    """Something that attnscope has no words for: the operations, and why."""

    def __init__(self, why, nodes=()):
        super().__init__(why)
        self.why, self.nodes = why, list(nodes)


def positions(p, source, target, n):
    """Which row of `source` [n, width] each element of `target` depends on: a tensor of its shape, -1 for none."""
    base = source.value.reshape(n, -1)
    noise = random(*base.shape, seed=7) * (base.std() + 1e-3)
    order = torch.arange(n)

    def changed(rows):
        values = base.clone()
        values[rows] += noise[rows]
        y = p.run({source: like(source, values)}, [target])[0]
        same = (y == target.value) | (torch.isnan(y) & torch.isnan(target.value))
        return ~same

    at = torch.zeros(target.value.shape, dtype=torch.int64)
    for bit in range(max(1, (n - 1).bit_length())):
        at += changed((order >> bit) & 1 == 1).long() << bit
    return torch.where(changed(order >= 0), at, torch.full_like(at, -1))


class Elements:
    """The elements of a node by position: `at` [position, rank] are places in its flattened value."""

    def __init__(self, at, label=None, factor=None):
        self.at = at
        self.label = torch.arange(at.shape[1]) if label is None else label  # which channel of the map each rank copies
        self.factor = torch.ones(at.shape[1], dtype=torch.float64) if factor is None else factor

    def rows(self, value):
        return value.reshape(-1)[self.at]  # [position, rank]

    def filled(self, node, rows):
        """A value of the node's shape that holds `rows`."""
        flat = torch.zeros(node.value.numel(), dtype=torch.float64)
        flat[self.at.reshape(-1)] = rows.reshape(-1)
        return like(node, flat)


def elements(p, source, target, n):
    """The elements of `target` by the row of `source` that they depend on; None where rows differ in number."""
    at = positions(p, source, target, n).reshape(-1)
    counts = torch.bincount(at[at >= 0], minlength=n)
    if bool((at < 0).any()) or len(set(counts.tolist())) != 1:
        return None
    return Elements(torch.argsort(at, stable=True).reshape(n, -1))


def function(p, source, target, to=None):
    """The function from rows [position, width] of `source` to rows of `target`, ordered by `to`."""
    def f(rows):
        y = p.run({source: like(source, rows)}, [target])[0]
        return to.rows(y) if to is not None else y.reshape(rows.shape[0], -1)
    return f


def followed(p, source, target):
    """For every element of `target` the element of `source` it is made of, by place; None where that cannot be followed."""
    nodes = p.between([source], target)
    places = {source: torch.arange(source.value.numel()).reshape(source.value.shape)}
    for node in nodes:
        if node is source:
            continue
        inputs = [i for i in node.inputs if places.get(i) is not None]
        shape = getattr(node.value, "shape", None)
        op = p.op(node)
        if op == "getitem" or op in VIEWS and shape is None or isinstance(node.value, (tuple, list)):
            try:
                places[node] = _applied(node, places)
            except Exception:
                places[node] = None
            continue
        if op in VIEWS:
            try:
                places[node] = _applied(node, places)
            except Exception:
                places[node] = None
            continue
        found = next((places[i] for i in inputs if isinstance(places[i], torch.Tensor) and places[i].shape == shape), None)
        if found is None:
            for i in inputs:
                if isinstance(places[i], torch.Tensor) and places[i].numel() == node.value.numel():
                    try:
                        found = places[i].expand(shape)
                    except RuntimeError:
                        continue
        places[node] = found
    return places.get(target)


def _applied(node, places):
    """An operation that moves values, on places instead."""
    def fill(arg):
        if isinstance(arg, (list, tuple)):
            return type(arg)(fill(one) for one in arg)
        if type(arg).__name__ == "Node":
            if arg in places:
                if places[arg] is None:
                    raise ValueError
                return places[arg]
            if isinstance(arg.value, torch.Tensor) and arg.value.is_floating_point():
                return torch.full(arg.value.shape, -1, dtype=torch.int64)
            return arg.value
        return arg

    args, kwargs = fill(node.args), {k: fill(v) for k, v in node.kwargs.items() if k != "dtype"}
    if node.op.endswith("_to_copy"):
        return args[0]
    return node.target(*args, **kwargs)


class Map:
    """An affine map of rows, how its outputs lie in heads, and what happens to them before scores are made."""

    def __init__(self, weight, bias, norm=None, turns=None, factor=1.0, node=None):
        self.weight, self.bias = weight, bias  # [head, d, in], [head, d]
        self.norm, self.turns, self.factor, self.node = norm, turns, factor, node
        self.own = None  # the latent that its inputs are, where one stands between the input and the map
        self.is_turned_first = False  # before the norm


def read_map(p, source, operand, places, n, name):
    """How `operand`'s elements `places` [head, position, d] come from rows [n, width] of `source`."""
    try:
        return _read_map(p, source, operand, places, n, name)
    except Unnamed:
        parts = _parts(p, operand, places)
        if parts is None:
            raise
    # Dimensions that are made apart and joined, such as those that turn and those that do not.
    found = [(dims, _read_map(p, source, node, at, n, name)) for node, at, dims in parts]
    if any(m.norm is not None for _, m in found):
        raise Unnamed(f"parts of {name} are normed by themselves", [operand])
    d = places.shape[2]
    first = found[0][1]
    weight = torch.zeros(places.shape[0], d, first.weight.shape[2], dtype=torch.float64)
    bias, turns = torch.zeros(places.shape[0], d, dtype=torch.float64), torch.eye(d, dtype=torch.float64).repeat(n, 1, 1)
    for dims, m in found:
        weight[:, dims], bias[:, dims] = m.weight * m.factor, m.bias * m.factor
        if m.turns is not None:
            turns[:, dims[:, None], dims[None, :]] = m.turns
    are_turned = any(m.turns is not None for _, m in found)
    return Map(weight, bias, None, turns if are_turned else None, 1.0, first.node)


def _parts(p, operand, places):
    """[(node, its elements [head, position, d], dimensions of `operand` that they are)] of values joined along the dimensions of a head;
    None where no such values are."""
    node = operand
    while p.op(node) in VIEWS and p.op(node) != "cat":
        inputs = [i for i in node.inputs if i in p.active or i in p.of_memory]
        if len(inputs) != 1:
            return None
        node = inputs[0]
    if p.op(node) != "cat":
        return None
    found, known = [], 0
    for one in node.args[0]:
        at = followed(p, one, operand)
        if at is None:
            return None
        own = at.reshape(-1)[places]
        is_own = (own >= 0).all(0).all(0)
        if bool((own[:, :, ~is_own] >= 0).any()):
            return None
        dims = torch.nonzero(is_own).flatten()
        if len(dims):
            found.append((one, own[:, :, dims], dims))
            known += len(dims)
    return found if len(found) > 1 and known == places.shape[2] else None


def _read_map(p, source, operand, places, n, name):
    """How `operand`'s elements `places` [head, position, d] come from rows [n, width] of `source`."""
    d_in = source.value.numel() // n
    chain = p.bottlenecks([source], operand)
    start = None
    for node in reversed(chain):
        found = _affine_node(p, source, node, n, d_in)
        if found is not None:
            start = node
            break
    if start is None:
        raise Unnamed(f"{name} is no affine map of its input", chain[1:2])
    # Back over factors and moves, so that the map is the stored one.
    while start is not source and p.op(start) in (VIEWS | {"mul", "div"}):
        inputs = [i for i in start.inputs if i in set(chain)]
        others = [a for a in start.args[1:] if type(a).__name__ == "Node"]
        if len(inputs) != 1 or p.op(start) in ("mul", "div") and any(
                getattr(o.value, "numel", lambda: 1)() != 1 for o in others):
            break
        back = _affine_node(p, source, inputs[0], n, d_in)
        if back is None:
            break
        start, found = inputs[0], back
    if start is source:
        at = Elements(torch.arange(source.value.numel()).reshape(n, d_in))
        weight, bias = torch.eye(d_in, dtype=torch.float64), torch.zeros(d_in, dtype=torch.float64)
    else:
        at, (weight, bias) = found, fitting.affine(function(p, source, start, found), n, d_in)
    node, norm, state = start, None, at
    base = start
    base_at = at
    while True:
        done = _copied(p, node, state, operand, places)
        if done is not None:
            ranks, factor = done
            label, factor = state.label[ranks], factor * state.factor[ranks]
            break
        step = _next_step(p, node, state, chain, operand, n, norm)
        if step is None:
            after = [c for c in chain if c.idx > node.idx]
            raise Unnamed(f"{name} is changed in a way that is neither a norm of heads nor a rotary embedding", after[:1])
        before, (node, state, found_norm) = (node, state), step
        if found_norm is not None:
            norm, base, base_at, normed = found_norm, node, state, before
    own_gains, d = None, places.shape[2]
    if float((factor - factor.reshape(-1)[0]).abs().max()) > 1e-9 * float(factor.abs().max()):
        if norm is None:
            weight, bias = weight[label] * factor[..., None], bias[label] * factor
        elif norm.width == d and norm.bias is None:
            weight, bias, own_gains = weight[label], bias[label], _gains(p, node, state, chain, ranks, factor, n)
        else:
            raise Unnamed(f"{name} has factors of its own for each dimension after a norm", [operand])
        factor = torch.ones_like(factor) if own_gains is None else factor / own_gains
    else:
        weight, bias = weight[label], bias[label]
    # Whether positions turn it is asked from the norm's output on, or from the map's.
    if base is not node:
        done = _copied(p, base, base_at, operand, places)
        if done is None:
            raise Unnamed(f"{name} is both normed and turned in an order that cannot be followed", [operand])
        ranks = done[0]
    if own_gains is not None:  # each head has gains of its own
        norm.gain = (own_gains if norm.gain is None else own_gains * norm.gain[ranks % d]).reshape(-1)
        norm.is_per_head = True
    elif norm is not None and norm.gain is not None:
        if norm.width not in (d, label.numel()):
            raise Unnamed(f"{name} is normed over {norm.width} values, which are neither one head nor all", [base])
        if norm.width == d:
            norm.gain = norm.gain[ranks[0] % d]
        else:
            norm.gain = norm.gain[ranks.reshape(-1) % norm.width]
    turns = _turns(p, base, base_at, ranks, operand, places, n)
    earlier = None
    if norm is not None and normed[0] is not start:
        of_normed = normed[1].at[:, ranks].permute(1, 0, 2)  # [head, position, d]
        earlier = _turns(p, start, at, normed[1].label[ranks], normed[0], of_normed, n)
    if turns is not None and earlier is not None:
        raise Unnamed(f"positions turn {name} before and after its norm", [base])
    found = Map(weight, bias, norm, turns if earlier is None else earlier, float(factor.reshape(-1)[0]), start)
    found.is_turned_first = earlier is not None
    return found


def _gains(p, node, state, chain, ranks, factor, n):
    """What multiplies each dimension of each head after a norm, without the factor that all of them have."""
    for target in chain:
        if target.idx <= node.idx or not isinstance(target.value, torch.Tensor):
            continue
        at = _elements_of(p, node, state, target, n)
        done = None if at is None else _copied(p, node, state, target, at.at[None])
        if done is None or len(set(done[0][0].tolist())) != state.at.shape[1]:
            continue
        gains = torch.empty(state.at.shape[1], dtype=torch.float64)
        gains[done[0][0]] = done[1][0]
        rest = factor / gains[ranks]
        if close(rest, rest.reshape(-1)[:1].expand_as(rest), 1e-9):
            return gains[ranks]
    return factor


def _affine_node(p, source, node, n, d_in):
    """Elements of `node` where it is an affine map of rows of `source`, alike at all positions."""
    if node is source:
        return Elements(torch.arange(source.value.numel()).reshape(n, d_in))
    if not isinstance(node.value, torch.Tensor) or not node.value.is_floating_point():
        return None
    row = random(1, d_in, seed=11).repeat(n, 1)

    def run(rows):
        return p.run({source: like(source, rows)}, [node])[0]

    zero, one = run(torch.zeros_like(row)), run(row)
    if not bool(torch.isfinite(one).all()) or not close(run(2 * row) - zero, 2 * (one - zero)):
        return None
    other = random(n, d_in, seed=12)
    if not close(run(row + other) - zero, one + run(other) - 2 * zero):
        return None
    at = elements(p, source, node, n)
    if at is None:
        return None
    alike = at.rows(one)
    if not close(alike, alike[:1].expand_as(alike)) and float((alike - alike[:1]).abs().max()) > 1e-12:
        return None
    bias = at.rows(zero)
    if float((bias - bias[:1]).abs().max()) > 1e-9 * max(1.0, float(alike.abs().max())):
        return None
    return at


def _copied(p, node, state, target, places):
    """(rank, factor) of each element of `places` [head, position, d] at position 0, where they are copies with a factor."""
    values = node.value.reshape(-1).clone()
    n_ranks = state.at.shape[1]

    def run(of_first):
        got = values.clone()
        got[state.at[0]] = of_first
        shaped = torch.empty_strided(node.value.shape, node.value.stride(), dtype=torch.float64) \
            if 0 not in node.value.stride() else torch.empty(node.value.shape, dtype=torch.float64)
        y = p.run({node: shaped.copy_(got.reshape(node.value.shape))}, [target])[0] if node is not target else got
        return y.reshape(-1)[places[:, 0]]

    zero = run(torch.zeros(n_ranks, dtype=torch.float64))
    if float(zero.abs().max()) > 1e-12:
        return None
    factor = run(torch.ones(n_ranks, dtype=torch.float64))
    if float(factor.abs().min()) < 1e-12:
        return None
    codes = torch.arange(1, n_ranks + 1, dtype=torch.float64)
    ranks = run(codes) / factor
    rank = torch.round(ranks)
    if float((ranks - rank).abs().max()) > 1e-6 or float(rank.min()) < 1 or float(rank.max()) > n_ranks:
        return None
    rank = rank.long() - 1
    # A rotation that mixes would not keep other values.
    noise = random(n_ranks, seed=13)
    if not close(run(noise), noise[rank] * factor, 1e-9):
        return None
    return rank, factor


def _next_step(p, node, state, chain, operand, n, norm):
    """The furthest node that a norm, or a move with a rotation, leads to."""
    after = [c for c in chain if c.idx > node.idx and isinstance(c.value, torch.Tensor)]
    for target in reversed(after):
        if norm is None and target.value.numel() == node.value.numel():
            widths = {target.value.shape[-1], state.at.shape[1]}
            for width in sorted(widths):
                found = _norm_between(p, node, state, target, width, n)
                if found is not None:
                    return found
        if target is operand:
            continue
        at = _elements_of(p, node, state, target, n)
        if at is None:
            continue
        done = _copied(p, node, state, target, at.at[None])
        if done is not None and target is not node:
            ranks, factor = done[0][0], done[1][0]
            return target, Elements(at.at, state.label[ranks], factor * state.factor[ranks]), None
    return None


def _elements_of(p, node, state, target, n):
    """Elements of `target` by position, where positions of `node` are those of `state`."""
    values = node.value.reshape(-1)
    order = torch.arange(n)

    def changed(rows):
        got = values.clone()
        got[state.at[rows].reshape(-1)] += random(int(rows.sum()) * state.at.shape[1], seed=14)
        y = p.run({node: got.reshape(node.value.shape)}, [target])[0]
        return (y != target.value).reshape(-1)

    at = torch.zeros(target.value.numel(), dtype=torch.int64)
    for bit in range(max(1, (n - 1).bit_length())):
        at += changed((order >> bit) & 1 == 1).long() << bit
    if not bool(changed(order >= 0).all()):
        return None
    counts = torch.bincount(at, minlength=n)
    if len(counts) != n or len(set(counts.tolist())) != 1:
        return None
    return Elements(torch.argsort(at, stable=True).reshape(n, -1))


def _norm_between(p, node, state, target, width, n):
    """(target, its elements, norm) where `target` is a norm of `node`, over runs of `width` values of a position."""
    n_ranks = state.at.shape[1]
    if n_ranks % width:
        return None
    at = _elements_of(p, node, state, target, n)
    if at is None or at.at.shape != state.at.shape:
        return None

    def f(rows):  # [n * n_ranks / width, width]
        got = node.value.reshape(-1).clone()
        got[state.at.reshape(-1)] = rows.reshape(-1)
        y = p.run({node: got.reshape(node.value.shape)}, [target])[0].reshape(-1)
        return y[at.at].reshape(-1, width)

    seen = state.rows(node.value).reshape(-1, width)
    found = fitting.norm(f, seen.shape[0], width, seen)
    if found is None:
        return None
    found.width = width
    found.is_bare = found.gain is None and found.bias is None
    return target, Elements(at.at, state.label, state.factor), found


def _turns(p, node, at, ranks, operand, places, n):
    """Matrices [position, out, in] by which positions change each head's values; None where they change nothing."""
    d = places.shape[2]
    row = random(at.at.shape[1], seed=15)
    values = node.value.reshape(-1).clone()

    def run(of_all):
        got = values.clone()
        got[at.at.reshape(-1)] = of_all.repeat(n)
        y = p.run({node: got.reshape(node.value.shape)}, [operand])[0] if node is not operand else got
        return y.reshape(-1)[places]  # [head, position, d]

    y = run(row)
    if close(y, y[:, :1].expand_as(y), 1e-9):
        return None
    columns = []
    for j in range(d):
        unit = torch.zeros(at.at.shape[1], dtype=torch.float64)
        unit[ranks[:, j]] = 1
        got = run(unit)
        first = got[:, :1, j:j + 1]
        if float(first.abs().min()) < 1e-12:
            raise Unnamed("positions change values in a way that cannot be followed", [operand])
        columns.append(got / first)
    turns = torch.stack(columns, -1)  # [head, position, out, in]
    if not close(turns, turns[:1].expand_as(turns), 1e-6):
        raise Unnamed("positions turn the heads differently", [operand])
    return turns[0]
