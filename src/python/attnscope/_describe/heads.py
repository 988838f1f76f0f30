"""Reads an attention: its maps of queries, keys, values and outputs, its softmax, its mask and its pattern."""

from __future__ import annotations

import contextlib

import torch

from . import fitting
from .added import Side
from .distances import joined_vectors, leaves_of, read_distances
from .gates import read_gate
from .latents import read_through
from .mixed import read_mix, widened
from .places import places_of, without
from .replay import PRODUCTS, VIEWS, like
from .tracing import Unnamed, followed, positions


class Attention:
    """One attention of all its heads: maps [head, d, in], the softmax, and the pattern of the pass."""

    def __init__(self, maps, out, rows, pattern, norm_out, node, sources):
        self.q, self.k, self.v = maps
        self.o, self.o_bias = out  # [d_model, head, d], [d_model]
        self.rows, self.pattern, self.norm_out, self.node, self.sources = rows, pattern, norm_out, node, sources
        self.is_mixed = False  # heads read each other's scores or patterns, and each is as wide as all of them
        self.share = None  # how much of the first attention's values is added to its own
        self.distances = None  # vectors of distances that queries meet besides keys
        self.places = [None, None]  # rows that are added to the input of queries, and of keys
        self.gate = None  # what multiplies the outputs of the heads
        self.z_norm = None  # the norm of the outputs of the heads
        self.sides = []  # what stands beside the scores, in the order of the heads


def products(p, nodes):
    """Products of two values that both depend on the text."""
    return [n for n in nodes if p.op(n) in PRODUCTS and all(i in p.active and i not in p.gathered for i in n.inputs) and len(n.args) == 2]


def is_attention(p, nodes):
    return bool(products(p, nodes))


def crossings(p, nodes):
    """Products of a value of the decoder and one of the encoder's output."""
    def is_one(node):
        sides = [i in p.active for i in node.args]
        return sum(sides) == 1 and node.args[sides.index(False)] in p.of_memory

    return [n for n in nodes if p.op(n) in PRODUCTS and len(n.args) == 2 and is_one(n)]


def input_of(p, start, nodes):
    """The last value of the chain from `start` that maps or products read."""
    inside, reach, last = set(nodes), -1, start
    for node in nodes:
        if p.op(node) in PRODUCTS:
            break
        if reach <= node.idx and _is_rows_of(node, start):
            last = node
        reach = max([reach, *(user.idx for user in node.users if user in inside)])
    return last


def _is_rows_of(node, start):
    value = node.value
    return isinstance(value, torch.Tensor) and value.shape[-1:] == start.value.shape[-1:] and value.numel() == start.value.numel()


class Pair:
    """The two products of one attention: queries by keys, and pattern by values."""

    def __init__(self, p, scores, out, pattern_idx):
        self.p, self.scores, self.out = p, scores, out
        self.pattern, self.values = out.args[pattern_idx], out.args[1 - pattern_idx]
        self.is_right = pattern_idx == 1

    def rows_of_pattern(self, value):
        """[group, query, key]"""
        value = value if value.dim() == 3 else value[None]
        return value.transpose(1, 2) if self.is_right else value

    def at_in_pattern(self):
        """The place in the flattened pattern of each cell of its rows."""
        value = self.pattern.value
        return self.rows_of_pattern(torch.arange(value.numel()).reshape(value.shape)).reshape(-1)

    def places_of_values(self):
        """[group, key, d] places in the flattened values."""
        value = self.values.value
        at = torch.arange(value.numel()).reshape(value.shape)
        at = at if at.dim() == 3 else at[None]
        return at.transpose(1, 2) if self.is_right else at

    def places_of_out(self):
        """[group, query, d]"""
        value = self.out.value
        at = torch.arange(value.numel()).reshape(value.shape)
        at = at if at.dim() == 3 else at[None]
        return at.transpose(1, 2) if self.is_right else at


def read_attention(p, start, terms, n, d_model, find=products):
    """The attention that the sum of `terms` is, as a function of `start`; and the input that its maps read."""
    nodes = sorted({node for term in terms for node in p.between([start], term)}, key=lambda x: x.idx)
    found = find(p, nodes)
    above = p.above(found)
    pairs = []
    for m in found:
        if above[m]:
            scores = [o for o in above[m] if not above[o]]
            if any(above[o] for o in above[m]):
                raise Unnamed("an attention reads what an earlier one computes, and not only through the residual: "
                              "values of an earlier layer (value residuals), or an embedding that every layer adds again", [m])
            if len(scores) != 1:
                raise Unnamed(f"one pattern is made of {len(scores)} products of queries and keys, such as the difference of two "
                              "softmaxes: a description has one for each head", [m])
            sides = [i for i, arg in enumerate(m.args) if scores[0] in set(p.between([scores[0]], arg))]
            if len(sides) != 1:
                raise Unnamed("scores stand on both sides of a product", [m])
            pairs.append(Pair(p, scores[0], m, sides[0]))
    alone = [m for m in found if not above[m] and all(pair.scores is not m for pair in pairs)]
    if alone:
        raise Unnamed("a product of two values of the text that no values are multiplied by", alone)
    if not pairs:
        raise Unnamed("no attention was found", nodes[-1:])
    if len({pair.scores for pair in pairs}) != len(pairs):
        raise Unnamed("one matrix of scores is used twice", [pairs[0].scores])
    source = input_of(p, start, nodes)
    parts = [_read_pair(p, source, pair, n) for pair in pairs]
    q, k, v = ([part[i] for part in parts] for i in range(3))
    rows = _joined_rows([part[3] for part in parts], parts)
    pattern = torch.cat([part[4] for part in parts])
    outs = [(pair, part[5]) for pair, part in zip(pairs, parts)]
    gate = read_gate(p, source, outs, terms, n)
    out, norm_out, z_norm = _read_out(p, outs, terms, n, d_model, gate.opened() if gate else {})
    if z_norm is not None and gate is not None:
        raise Unnamed("the outputs of the heads are normed and gated", terms)
    mix = parts[0][7]
    if mix is not None and (len(parts) > 1 or gate is not None or z_norm is not None):
        raise Unnamed("heads are mixed, and computed apart or gated as well", [pairs[0].pattern])
    maps = [_joined(side, name) for side, name in ((q, "query"), (k, "key"), (v, "value"))]
    if any(m.own is not None for m in maps) and (len(parts) > 1 or mix is not None):
        raise Unnamed("heads are mixed or computed apart, and read a latent vector with a norm", [pairs[0].pattern])
    if mix is not None:
        maps, out = widened(mix, maps, out)
    attention = Attention(maps, out, rows, pattern, norm_out, pairs[0].scores, pairs)
    attention.gate, attention.is_mixed, attention.z_norm = gate, mix is not None, z_norm
    attention.sides, attention.share = [part[6] for part in parts], parts[0][8]
    attention.distances = joined_vectors([part[9] for part in parts])
    attention.places = [None if one is None else one.rows for one in parts[0][10]]
    if any([one and one.node for one in part[10]] != [one and one.node for one in parts[0][10]] for part in parts):
        raise Unnamed("heads differ in what is added to the input of their queries or keys", [pairs[0].scores])
    if any(part[8] != attention.share for part in parts):
        raise Unnamed("heads differ in how much of the first layer's values they add to theirs", [pairs[0].values])
    return attention, source


def _read_pair(p, source, pair, n):
    """Maps, softmax, pattern and places of the outputs of one pair of products; keys are of the encoder where values are."""
    scores = pair.scores
    is_cross = pair.values not in p.active
    of_keys, n_keys = (p.memory, p.n_memory) if is_cross else (source, n)
    at = followed(p, scores, pair.pattern)
    if at is None:
        raise Unnamed("the way from scores to pattern cannot be followed", [pair.pattern])
    left, right = scores.args
    places = [torch.arange(x.value.numel()).reshape(x.value.shape) for x in (left, right)]
    places = [x if x.dim() == 3 else x[None] for x in places]
    places[1] = places[1].transpose(1, 2)  # [group, row, d] of both
    rows = [positions(p, source, x, n) if x in p.active else positions(p, p.memory, x, p.n_memory) for x in (left, right)]
    rows = [x if x.dim() == 3 else x[None] for x in rows]
    rows[1] = rows[1].transpose(1, 2)
    for x, node, side in zip(rows, (left, right), ("left", "right")):
        if bool((x != x[:, :, :1]).any()):
            raise Unnamed("queries and keys are multiplied along the wrong axis: a row of the product's "
                          f"{side} side is no single position", [scores])
    left_at, right_at = rows[0][:, :, 0], rows[1][:, :, 0]  # [group, row] → position
    keys_at = positions(p, of_keys, pair.values, n_keys)
    keys_at = keys_at if keys_at.dim() == 3 else keys_at[None]
    keys_at = (keys_at.transpose(1, 2) if pair.is_right else keys_at)
    if bool((keys_at != keys_at[:, :, :1]).any()):
        raise Unnamed("the pattern is multiplied with values along another axis than positions", [pair.out])
    keys_at = keys_at[:, :, 0]  # [group, key]
    cells = pair.rows_of_pattern(at)  # [group, query, key] → place in scores
    cell_at = torch.arange(cells.numel()).reshape(cells.shape)
    values = pair.places_of_values()  # [group, key, d]
    counts = _keys_of_text(pair, keys_at, values)
    if not bool(counts.all()):
        cells, cell_at, keys_at, values = cells[:, :, counts], cell_at[:, :, counts], keys_at[:, counts], values[:, counts]
    shape = scores.value.shape if scores.value.dim() == 3 else (1, *scores.value.shape)
    if bool((cells < 0).any()):
        raise Unnamed("the pattern has columns that are no scores, such as a sink", [pair.pattern])
    group, row, column = cells // (shape[1] * shape[2]), cells // shape[2] % shape[1], cells % shape[2]
    of_left, of_right = left_at[group, row], right_at[group, column]
    if bool((of_left < 0).any()) or bool((of_right < 0).any()):
        raise Unnamed("queries or keys are no positions of the text", [scores])
    contracted = keys_at[:, None, :].expand_as(cells)
    swapped = left not in p.active if is_cross else not torch.equal(of_right, contracted)
    if swapped or is_cross:
        if not torch.equal(of_left if swapped else of_right, contracted):
            raise Unnamed("scores and values do not meet at the same keys: axes are in another order than [query, key]",
                          [scores, pair.out])
    queries = of_right if swapped else of_left
    if bool((queries != queries[:, :, :1]).any()):
        raise Unnamed("a row of the pattern belongs to several queries", [pair.pattern])
    queries = queries[:, :, 0]  # [group, row]
    flat = queries.reshape(-1)
    if len(set(torch.bincount(flat, minlength=n).tolist())) != 1:
        raise Unnamed("heads have queries at some positions only: the axes of heads and positions are mixed up", [scores])
    order = torch.argsort(flat, stable=True).reshape(n, -1).T  # [head, query] → row of the pattern
    n_rows = queries.shape[1]
    by_key = torch.argsort(keys_at, dim=1, stable=True)  # [group, key]
    every = torch.arange(n_keys).expand(len(keys_at), n_keys)
    if keys_at.shape[1] != n_keys or not torch.equal(torch.gather(keys_at, 1, by_key), every):
        raise Unnamed("a row of the pattern does not have one key per position", [pair.pattern])
    groups, in_group = order // n_rows, order % n_rows
    ordered = by_key[groups]  # [head, query, key]
    cell_of = cell_at[groups[..., None], in_group[..., None], ordered]  # [head, query, key] → place in the pattern's rows
    score_of = pair.rows_of_pattern(at).reshape(-1)[cell_of]
    row_of = score_of // shape[2]
    column_of = score_of // (shape[1] * shape[2]) * shape[2] + score_of % shape[2]
    query_rows, key_rows = (column_of, row_of) if swapped else (row_of, column_of)
    if bool((query_rows != query_rows[:, :, :1]).any()) or bool((key_rows != key_rows[:, :1]).any()):
        raise Unnamed("a head's queries meet keys of other heads", [scores])
    query_places, key_places = (places[1], places[0]) if swapped else (places[0], places[1])
    query, key = (right, left) if swapped else (left, right)
    q_at = query_places.reshape(-1, query_places.shape[-1])[query_rows[:, :, 0]]  # [head, position, d]
    k_at = key_places.reshape(-1, key_places.shape[-1])[key_rows[:, 0]]
    v_at = values[groups[:, :1], by_key[groups[:, 0]]]  # [head, key, d]
    outs = pair.places_of_out()[groups, in_group]  # [head, query, d]
    n_heads = order.shape[0]

    def f(of_cells, beside=None):  # [head, query, key] scores → pattern
        value = torch.zeros(scores.value.numel(), dtype=torch.float64)
        value[score_of.reshape(-1)] = of_cells.reshape(-1)
        got = p.run({scores: like(scores, value), **(beside or {})}, [pair.pattern])[0]
        return pair.rows_of_pattern(got).reshape(-1)[cell_of]

    side = Side(p, scores, pair.pattern, lambda beside: f(torch.zeros(n_heads, n, n_keys, dtype=torch.float64), beside))

    found, why = fitting.softmax(f, (n_heads, n, n_keys))
    mix = None
    if found is None and n_heads > 1 and bool(counts.all()):
        mix = read_mix(p, (scores, pair.pattern), (score_of, pair.at_in_pattern()[cell_of]), (n_heads, n, n_keys))
    if mix is not None:
        found = mix.rows
    if found is None:
        after = [node for node in p.between([scores], pair.pattern) if p.op(node) not in VIEWS and node is not scores]
        raise Unnamed(why, after[-1:] if "sum" in why else after)
    places = [None, None] if is_cross else [places_of(p, source, operand, n) for operand in (query, key)]
    with without(p, places[0], query) as alone:
        maps = (read_through(alone, source, query, q_at, n, "the query"),)
    with without(p, places[1], key) as alone:
        maps = (*maps, read_through(alone, of_keys, key, k_at, n_keys, "the key"))
    kept = None if is_cross else p.kept
    share = None if kept is None else kept.share(p, source, pair.values, v_at)
    with contextlib.nullcontext(p) if share is None else kept.left_out(p, source, pair.values) as alone:
        maps = (*maps, read_through(alone, of_keys, pair.values, v_at, n_keys, "the value"))
    distances = None
    if side.of_text and mix is None and not is_cross:
        def pattern_of(given):  # rows of the input → the pattern of equal scores
            at_zero = torch.zeros(scores.value.shape, dtype=torch.float64)
            got = p.run({source: like(source, given), scores: at_zero}, [pair.pattern])[0]
            return pair.rows_of_pattern(got).reshape(-1)[cell_of]

        distances, found.bias = read_distances(pattern_of, maps[:2], found, (n, source.value.numel() // n),
                                               (side.of_text[0], leaves_of(side.of_text, source)))
        side.of_text = []
    pattern = pair.rows_of_pattern(pair.pattern.value).reshape(-1)[cell_of] if mix is None else mix.pattern
    return (*maps, found, pattern, outs, side, mix, share, distances, places)


def _keys_of_text(pair, keys_at, values):
    """Which keys are positions. One that is zero, as its values are, is a sink: its score is 0, and it gives nothing."""
    extra = (keys_at < 0).all(0)
    if not bool(extra.any()):
        return ~extra
    scores = pair.scores
    rows = [arg.value if arg.value.dim() == 3 else arg.value[None] for arg in scores.args]
    rows[1] = rows[1].transpose(1, 2)
    are_zero = bool((pair.values.value.reshape(-1)[values[:, extra]] == 0).all())
    of_keys = next((x for x in reversed(rows) if x.shape[1] == len(extra)), None)
    if not are_zero or of_keys is None or bool((of_keys[:, extra] != 0).any()):
        raise Unnamed("keys that are no positions of the text, with values of their own", [scores, pair.out])
    return ~extra


def _joined_rows(all_rows, parts):
    """The softmax of heads that are computed apart."""
    first = all_rows[0]
    for rows, part in zip(all_rows[1:], parts[1:]):
        if (rows.sinks is None) != (first.sinks is None):
            raise Unnamed("some heads have a sink and others do not", [part[0].node])
        if rows.top_keys != first.top_keys:
            raise Unnamed("heads differ in how many keys a query sees", [part[0].node])
        if rows.axis != first.axis or rows.softcap != first.softcap or abs(rows.scale / first.scale - 1) > 1e-6:
            raise Unnamed("heads differ in the axis, the scale or the cap of their softmax", [part[0].node])
    joined = fitting.Rows(first.axis, first.scale, torch.cat([r.bias for r in all_rows]),
                          torch.cat([r.visible for r in all_rows]), first.softcap)
    joined.top_keys = first.top_keys
    joined.sinks = None if first.sinks is None else torch.cat([r.sinks for r in all_rows])
    return joined


def _joined(maps, name):
    first = maps[0]
    for other in maps[1:]:
        if other.weight.shape[1:] != first.weight.shape[1:]:
            raise Unnamed(f"heads differ in the width of their {name}", [other.node])
        if abs(other.factor - first.factor) > 1e-9 * abs(first.factor) or (other.norm is None) != (first.norm is None):
            raise Unnamed(f"heads differ in what happens to their {name}", [other.node])
        if (other.turns is None) != (first.turns is None) or first.turns is not None \
                and not fitting.close(other.turns, first.turns, 1e-6):
            raise Unnamed(f"positions turn the {name} of each head differently", [other.node])
    first.weight = torch.cat([m.weight for m in maps])
    first.bias = torch.cat([m.bias for m in maps])
    return first


def _read_out(p, outs, terms, n, d_model, beside):
    """(the map from the heads' outputs to the sum of `terms`, the norm after it, the norm before it); `beside` holds values of
    other nodes."""
    sources = [pair.out for pair, _ in outs]
    n_heads, d = sum(at.shape[0] for _, at in outs), outs[0][1].shape[2]

    def run(heads, targets):  # [position, head * d] → sum of the targets' rows
        heads = heads.reshape(n, n_heads, d)
        values, first = dict(beside), 0
        for pair, at in outs:
            flat = pair.out.value.reshape(-1).clone()
            flat[at.reshape(-1)] = heads[:, first:first + at.shape[0]].transpose(0, 1).reshape(-1)
            values[pair.out] = flat.reshape(pair.out.value.shape)
            first += at.shape[0]
        got = p.run(values, targets)
        return sum(x.reshape(n, -1) for x in got)

    if n > 1:
        rows = fitting.random(n, n_heads * d, seed=60)
        first = torch.cat([fitting.random(1, n_heads * d, seed=61), rows[1:]])
        if bool((run(rows, terms) != run(first, terms))[1:].any()):
            raise Unnamed("the outputs of the heads are joined across positions: the axes of heads and positions are not exchanged "
                          "back before they are reshaped", terms)
    whole = fitting.affine(lambda rows: run(rows, terms), n, n_heads * d)
    if whole is not None:
        return (whole[0].reshape(d_model, n_heads, d), whole[1]), None, None
    mapped = None  # the last value that is an affine map of the heads' outputs
    if len(terms) == 1:
        chain = p.bottlenecks(sources, terms[0])
        for node in reversed(chain):
            if not isinstance(node.value, torch.Tensor) or node.value.numel() != n * d_model \
                    or node.value.shape[-1] != d_model:
                continue
            found = fitting.affine(lambda rows, node=node: run(rows, [node]), n, n_heads * d)
            if found is None:
                continue
            mapped = mapped or node

            def after(rows, node=node):
                return p.run({node: like(node, rows)}, [terms[0]])[0].reshape(n, -1)

            norm = fitting.norm(after, n, d_model, node.value.reshape(n, -1))
            if norm is not None:
                return (found[0].reshape(d_model, n_heads, d), found[1]), norm, None
        found = _normed_out(p, run, terms[0], chain, (n, n_heads, d), d_model)
        if found is not None:
            return found
    late = [node for node in p.between(sources, terms[0]) if p.op(node) not in VIEWS]
    late = [node for node in late if node.idx > mapped.idx] if mapped is not None else late[1:]
    maps = [node for node in late if p.op(node) in PRODUCTS]
    if mapped is not None and maps:
        raise Unnamed("what the heads give goes through another map before a residual sum reads the layer's input again: a layer is "
                      "expected to add its attention first, then its feed-forward layer", maps[:1])
    raise Unnamed("what follows the heads is neither an affine map of their outputs nor a norm of one", late[:3])



def _normed_out(p, run, term, chain, sizes, d_model):
    """The map, no norm after it, and the norm before it, where what the heads give is normed before it is mapped: all heads together, or
    each by itself; None where it is not."""
    n, n_heads, d = sizes
    for node in chain:
        value = node.value
        if not isinstance(value, torch.Tensor) or value.numel() != n * n_heads * d:
            continue
        for width, is_by_head in ((n_heads * d, False), (d, False), (d, True)):
            if width == n_heads * d and value.shape[-1] != width or width == d and n_heads == 1:
                continue

            def normed(rows, node=node, is_by_head=is_by_head, width=width):
                got = run(rows.reshape(n, n_heads * d), [node])
                return _by_position(got, sizes, is_by_head).reshape(-1, width)

            norm = fitting.norm(normed, n * n_heads * d // width, width)
            if norm is None:
                continue
            norm.width = width

            def after(rows, node=node, is_by_head=is_by_head):
                flat = rows.reshape(n, n_heads, d)
                flat = flat.transpose(0, 1) if is_by_head else flat
                return p.run({node: like(node, flat.contiguous())}, [term])[0].reshape(n, -1)

            found = fitting.affine(after, n, n_heads * d)
            if found is not None:
                return (found[0].reshape(d_model, n_heads, d), found[1]), None, norm
    return None


def _by_position(rows, sizes, is_by_head):
    """Values [position, head, d] of rows that lie in this order, or by head."""
    n, n_heads, d = sizes
    return rows.reshape(n_heads, n, d).transpose(0, 1) if is_by_head else rows.reshape(n, n_heads, d)
