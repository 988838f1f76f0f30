"""Finds what is added to scores: which stored tensor it comes from, and the rule that finds the value of a query and a key in it.

A rule counts only if it gives what the model gives for other values of that tensor too.
"""

from __future__ import annotations

import math

import torch

from .fitting import AXES, close, random
from .tracing import Unnamed

_SEEN_FEWER = ("max_distance: the example is too short to show which distances share the last bucket; {} is {}. Describe the model "
               "with a longer example")


class Side:
    """What stands beside the scores of an attention until they are a pattern, as a function of the tensors that it is made of."""

    def __init__(self, p, scores, pattern, run):
        """`run` gives the pattern [head, query, key] of equal scores where some tensors have other values."""
        path = p.between([scores], pattern)
        inside, seen, stack = set(path), set(), []
        for node in path:
            stack += [i for i in node.inputs if i not in inside and node is not scores]
        self.of_text, self.constants, self.run, self.has_logarithms = [], set(), run, False
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in p.active:
                self.of_text.append(node)
                continue
            self.has_logarithms = self.has_logarithms or p.op(node).startswith("log")
            self.constants.update(a for a in node.args if isinstance(a, float))
            stack += node.inputs
        self.leaves = sorted((n for n in seen if n.kind in ("parameter", "buffer") and isinstance(n.value, torch.Tensor)
                              and n.value.is_floating_point()), key=lambda n: n.idx)


class Added:
    """What an attention adds to its scores: the values of the example, and what other values of its tensors would add."""

    def __init__(self, rows, sides):
        self.rows, self.sides, self.dim = rows, sides, AXES[rows.axis]

    def centred(self, x):
        """Values without what a softmax does not see: their mean over the keys of a row."""
        seen = self.rows.visible.expand(x.shape)
        x = torch.where(seen, x, torch.zeros_like(x))
        return torch.where(seen, x - x.sum(self.dim, keepdim=True) / seen.sum(self.dim, keepdim=True).clamp_min(1), x)

    def where(self, values):
        """What is added where some tensors hold other values, centred."""
        pattern = torch.cat([side.run({node: v for node, v in values.items() if node in side.leaves}) for side in self.sides])
        return self.centred(pattern.clamp_min(1e-300).log())

    def leaf(self):
        """The one tensor that decides what is added; None where there is none, or several."""
        found = []
        for node in dict.fromkeys(leaf for side in self.sides for leaf in side.leaves):
            other = node.value + 0.5 * random(*node.value.shape, seed=70)
            if not close(self.where({node: other}), self.rows.bias, 1e-9):
                found.append(node)
        return found[0] if len(found) == 1 and found[0].value.numel() > 1 else None


class Rule:
    """How a table holds what is added: keys of the description, and the values [head, query, key] that a table gives."""

    def __init__(self, keys, values, note=None):
        self.keys, self.values, self.note = keys, values, note


def rule(added, leaf, n, causal, likely=None):
    """(Rule, factor of the table) of what is added as a function of its tensor; None where no rule gives it. `likely` is tried first."""
    n_heads = added.rows.bias.shape[0]
    values = random(*leaf.value.shape, seed=71)
    found = added.where({leaf: values})
    rules = _rules(leaf.value.shape, (n_heads, n, causal), added.sides, lambda picked: _fits_row(added, found, values, picked))
    for one in [likely] if likely is not None else rules:
        expected = added.centred(one.values(values))
        size = float((expected * expected).sum())
        factor = float((expected * found).sum()) / size if size else 0.0
        if factor and close(factor * expected, found, 1e-6) \
                and close(factor * added.centred(one.values(leaf.value)), added.rows.bias, 1e-5):
            return one, 1.0 if abs(factor - 1) < 1e-9 else factor
    return None


def _fits_row(added, found, values, picked):
    """Whether a rule may hold, judged by one row of one head: `picked` gives the values of a query, by key."""
    n = found.shape[1]
    for query in (n - 1, n // 2):
        seen = added.rows.visible[0, query]
        a, b = picked(values, query)[seen], found[0, query][seen]
        a, b = a - a.mean(), b - b.mean()
        if float(b.abs().max()) > 1e-9 and not close(a * (float((a * b).sum()) / max(float((a * a).sum()), 1e-30)), b, 1e-6):
            return False
    return True


def _rules(shape, sizes, sides, may_fit):
    n_heads, n, _ = sizes
    shape = [size for size in shape if size != 1]
    if shape == [n_heads] or n_heads == 1 and not shape:
        yield Rule({"by": "slopes"}, lambda v: -v.reshape(-1)[:, None, None] * _back(n).abs())
    if len(shape) == 2 and shape[0] == shape[1] >= n:
        yield Rule({"by": "pairs"}, lambda v: v.reshape(shape)[:n, :n].expand(n_heads, n, n))
    if len(shape) == 3 and shape[0] == n_heads and shape[1] == shape[2] >= n:
        yield Rule({"by": "pairs"}, lambda v: v.reshape(shape)[:, :n, :n])
    if len(shape) == 3 and shape[2] == n_heads and shape[0] == shape[1] >= n:
        yield Rule({"by": "pairs", "axes": "query key head"}, lambda v: v.reshape(shape)[:n, :n].permute(2, 0, 1))
    for axes, by_row in _tables(shape, n_heads):
        n_rows = math.prod(shape) // (n_heads if by_row.has_heads else 1)
        for keys, picks, note in _picks(n_rows, sizes, sides):
            if may_fit(lambda v, query, picks=picks: by_row(v)[picks(torch.tensor([query]))[0], 0]):
                yield Rule({**keys, **axes}, lambda v, picks=picks, by_row=by_row:
                           by_row(v)[picks(torch.arange(n))].permute(2, 0, 1).expand(n_heads, n, n), note)


def _tables(shape, n_heads):
    """(axes, table [row, head] of a tensor) for each way in which its axes may count rows and heads."""
    def heads_last(v):
        return v.reshape(-1, n_heads)

    def heads_first(v):
        return v.reshape(n_heads, -1).T

    def of_all(v):
        return v.reshape(-1, 1)

    heads_last.has_heads = heads_first.has_heads = True
    of_all.has_heads = False
    if n_heads > 1 and len(shape) > 1 and shape[-1] == n_heads:
        yield {}, heads_last
    if n_heads > 1 and len(shape) > 1 and shape[0] == n_heads:
        yield {"axes": "head row"}, heads_first
    if len(shape) == 1 or len(shape) == 2 and n_heads == 1:
        yield {}, of_all


def _back(n, queries=None):
    """query − key, of all queries or of some."""
    at = torch.arange(n)
    return (at if queries is None else queries)[:, None] - at[None, :]


def _picks(n_rows, sizes, sides):
    """(keys, function of queries that gives the row of each key, note) of the rules that a table of so many rows may have."""
    _, n, causal = sizes
    # Where the example shows near distances alone, both rules hold, and the operations tell them apart.
    by_distance = [_each_distance(n_rows, n), _shared_distances(n_rows, n, causal, set().union(*(side.constants for side in sides)))]
    for rules in reversed(by_distance) if any(side.has_logarithms for side in sides) else by_distance:
        yield from rules
    for first in (0, 1):
        for rows in range(1, n + 1):
            columns = (n - first) // rows
            if rows * columns == n - first and n_rows == (2 * rows - 1) * (2 * columns - 1) + 3 * first:
                keys = {"by": "grid", "grid": [rows, columns], **({"first_token": True} if first else {})}
                yield keys, lambda queries, sides=(rows, columns), first=first: _grid(n, sides, first)[queries], None


def _each_distance(n_rows, n):
    for sign, word in ((-1, "key - query"), (1, "query - key")):
        likely = [n_rows // 2, (n_rows - 1) // 2, n_rows - 1, 0, n - 1]
        for own in dict.fromkeys([*(own for own in likely if 0 <= own < n_rows), *range(n_rows)]):
            yield {"by": "distances", "own": own, "counts": word}, \
                lambda queries, own=own, sign=sign: (sign * _back(n, queries) + own).clamp(0, n_rows - 1), None


def _shared_distances(n_rows, n, causal, constants):
    for both in dict.fromkeys((not causal, causal)):
        n_exact = (n_rows // 2 if both else n_rows) // 2
        if n_exact < 1 or both and n_rows % 2:
            continue
        # Code divides by log(max_distance / n_exact), a number that it holds.
        stated = [n_exact * math.exp(c) for c in sorted(constants) if 0 < c < 16]
        from_code = [round(m) for m in stated if abs(m - round(m)) < 1e-9 * m]
        stated = [m for m in dict.fromkeys([*from_code, 128]) if m > n_exact]
        told = {}
        for m in [*stated, *range(n_exact + 1, 2048)]:
            told.setdefault(tuple(buckets(torch.arange(n), n_rows, m, both).tolist()), m)
        for m in told.values():
            is_open = len(told) == 1
            note = _SEEN_FEWER.format(m, "what the code says" if m in from_code else "usual") if is_open else None
            keys = {"by": "buckets", "max_distance": m, **({"both_sides": both} if both == causal else {})}
            yield keys, lambda queries, m=m, both=both: buckets(_back(n, queries), n_rows, m, both), note


def buckets(back, n_buckets, max_distance, both):
    """T5's bucket of query − key, computed in single precision as trainings do: at the borders of buckets the last bit decides."""
    first = 0
    if both:
        n_buckets //= 2
        first = (back < 0).long() * n_buckets
    distance = back.abs() if both else back.clamp_min(0)
    n_exact = n_buckets // 2
    shared = torch.log(distance.float().clamp_min(1) / n_exact) / math.log(max_distance / n_exact) * (n_buckets - n_exact)
    shared = (n_exact + shared.long()).clamp_max(n_buckets - 1)
    return first + torch.where(distance < n_exact, distance, shared)


def _grid(n, sides, first):
    rows, columns = sides
    at = torch.arange(n - first)
    y, x = at // columns, at % columns
    down, right = y[:, None] - y[None, :] + rows - 1, x[:, None] - x[None, :] + columns - 1
    of_patches = down * (2 * columns - 1) + right
    n_rows = (2 * rows - 1) * (2 * columns - 1)
    if not first:
        return of_patches
    row = torch.empty(n, n, dtype=torch.long)
    row[1:, 1:], row[0, 1:], row[1:, 0], row[0, 0] = of_patches, n_rows, n_rows + 1, n_rows + 2
    return row


def slopes(added):
    """The slope of each head where what is added grows with the distance; None where it does not."""
    expected = added.centred(-_back(added.rows.bias.shape[1]).abs()[None].expand_as(added.rows.bias))
    sizes = (expected * expected).sum((1, 2)).clamp_min(1e-30)
    found = (expected * added.rows.bias).sum((1, 2)) / sizes
    return found if close(found[:, None, None] * expected, added.rows.bias, 1e-5) else None


def part(written, attentions):
    """The part of a description that says what is added to the scores of its layers."""
    n, causal = written.reading.n, written.settings["mask"] == "causal"
    all_added = [Added(a.rows, a.sides) for a in attentions]
    of_text = [node for added in all_added for side in added.sides for node in side.of_text]
    if of_text:
        raise Unnamed("what is added to the scores depends on the text", of_text[:1])
    leaves = [added.leaf() for added in all_added]
    of_heads = [slopes(added) for added in all_added]
    is_computed = all(leaf is None or leaf.kind == "buffer" for leaf in leaves)
    if is_computed and all(one is not None for one in of_heads):
        return _of_slopes(written, of_heads)
    if all(leaf is not None for leaf in leaves):
        found = [rule(all_added[0], leaves[0], n, causal)]
        for added, leaf in zip(all_added[1:], leaves[1:]):
            is_alike = found[0] is not None and leaf.value.shape == leaves[0].value.shape
            found.append(rule(added, leaf, n, causal, found[0][0]) if is_alike else None)
        if all(found):
            return _of_leaves(written, leaves, found)
    if all(one is not None for one in of_heads):
        return _of_slopes(written, of_heads)
    why = f"what is added to the scores of the first {n} positions, whatever the text: a copy"
    return {"weight": _copied(written, [a.rows.bias for a in attentions], why), "by": "pairs"}


def of_mask(by_layer, written):
    """The part that hides keys by minus infinity, for masks that no setting says; `by_layer` has what is seen and what is added."""
    values = [torch.where(seen, bias, torch.full_like(bias, -math.inf)).squeeze(0) for seen, bias in by_layer]
    n = values[0].shape[-1]
    return {"weight": _copied(written, values, f"which keys the first {n} queries see, and what is added to their scores: a copy"),
            "by": "pairs"}


def _of_slopes(written, of_heads):
    of_heads = [one.to(torch.float32) for one in of_heads]
    name = written.stored.one_name(of_heads, written.at)
    name = written.keep(name) if name else _copied(written, of_heads, "the slopes of what is added to scores by distance: a copy")
    return {"weight": name, "by": "slopes"}


def _of_leaves(written, leaves, found):
    rules, factors = [one for one, _ in found], [factor for _, factor in found]
    keys = dict(rules[0].keys)
    written.notes += [one.note for one in rules[:1] if one.note]
    values = [leaf.value for leaf in leaves]
    n_heads = written.settings["n_heads"]
    rows = [size for size in values[0].shape if size != 1]
    is_of_all = keys["by"] not in ("slopes", "pairs") and len(rows) == 1 and n_heads > 1
    if is_of_all:  # one value for all heads
        values = [value.reshape(-1, 1).expand(-1, n_heads) for value in values]
    if is_of_all or any(factor != 1 for factor in factors):
        why = " and ".join(["with a column for each head"] * is_of_all + [f"times {factors[0]:.9g}"] * (factors[0] != 1))
        name = _copied(written, [value * factor for value, factor in zip(values, factors)], f"{leaves[0].name} {why}: a copy")
    else:
        name = written.stored.one_name(values, written.at)
        name = written.keep(name) if name else _copied(written, values, "its names in the layers have no common form: a copy")
    return {"weight": name, **keys}


def _copied(written, by_layer, why):
    """The name of copies: one for all layers where they are alike."""
    alike = all(torch.equal(values, by_layer[0]) for values in by_layer)
    return written.copy("score_bias" if alike and len(by_layer) > 1 else "blocks.{layer}.score_bias", by_layer, why)
