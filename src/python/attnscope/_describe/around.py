"""Reads what stands around the layers: the embedding before them and the head after them."""

from __future__ import annotations

import torch

from . import fitting
from .heads import products
from .replay import PRODUCTS, VIEWS, like
from .tracing import Unnamed, followed, function, positions


# What a model may give in place of its logits.
THEN = {"log_softmax": torch.log_softmax, "softmax": torch.softmax,
        "norm": lambda x, dim: torch.nn.functional.normalize(x, dim=dim)}
SAID = {"log_softmax": "the log_softmax of the logits", "softmax": "the softmax of the logits", "norm": "the logits divided by their length"}


class Embedding:
    """A table of tokens or a map of rows of numbers, a factor, what is added at each position, and a norm."""

    def __init__(self, tokens, scale, positions, norm, values=None):
        self.tokens, self.scale, self.positions, self.norm = tokens, scale, positions, norm
        self.values = values  # the map's weight [d_model, number]; its bias is a part of `positions`


class Head:
    """A transform, the map to the logits, and what happens to them."""

    def __init__(self):
        self.dense = self.norm = self.activation = self.unembed = self.softcap = None
        self.then, self.turned, self.pooled, self.pooled_norm = None, False, None, None
        self.picked = None  # the positions that the head reads, where it does not read all
        self.order = None  # the rows of the example in the order in which the described model reads them, where that is another


def read_embedding(p, chain, n, d_model):
    """The embedding that ends at the last node of `chain`."""
    end = chain[-1] if chain else None
    rows = [c for c in chain if isinstance(c.value, torch.Tensor) and c.value.numel() == n * d_model
            and c.value.shape[-1] == d_model]
    if end is None or not rows:
        raise Unnamed("the embedding was not found", p.roots)
    norm, summed = None, end
    for node in rows:
        if node is end:
            break
        norm = fitting.norm(function(p, node, end), n, d_model, node.value.reshape(n, -1))
        if norm is not None:
            summed = node
            break
    if p.own_rows:
        values = _values(p, summed, n, d_model) if p.are_given else None
        if values is not None:
            return Embedding(None, 1.0, values[1], norm, values[0])
        return Embedding(summed.value.reshape(n, d_model), 1.0, None, norm)
    table = _table(p, d_model)
    n_vocab = table.shape[0] if table is not None else int(p.ids.value.max()) + 1
    ids_shape, kind = p.ids.value.shape, p.ids.value.dtype

    def of(ids):
        got = p.run({p.ids: ids.to(kind).reshape(ids_shape)}, [summed])[0]
        return got.reshape(n, d_model)

    least = 0
    found = _rises(of, n, n_vocab, least)
    if found is None and table is not None and n_vocab > 2:
        least = 1  # code often places id 0, its padding, unlike the others
        found = _rises(of, n, n_vocab, least)
    if found is None:
        raise Unnamed("the embedding of a token depends on other tokens, or on its position in another way than by a sum",
                      [x for x in p.between(p.roots, summed) if p.op(x) not in VIEWS][:4])
    base_row, rise = found
    scale = 1.0
    tokens = None
    if table is not None and table.shape[1] == d_model:
        base = (table - table[least])[least:]
        size = float((base * base).sum())
        factor = float((base * rise).sum()) / size if size else 1.0
        if fitting.close(base * factor, rise, 1e-9):
            tokens, scale = table, factor
            if abs(scale - 1) < 1e-12:
                scale = 1.0
    if tokens is None and least:
        raise Unnamed("id 0 stands elsewhere than other tokens, and the embedding of those is no table's row times a number",
                      [x for x in p.between(p.roots, summed) if p.op(x) not in VIEWS][:4])
    if tokens is None:
        tokens = rise + (base_row[0] if table is None else 0)
    added = base_row - tokens[least] * scale  # [position, d_model]
    size = max(1e-30, float(base_row.abs().max()))
    if float(added.abs().max()) < 1e-9 * size:
        return Embedding(tokens, scale, None, norm)
    return Embedding(tokens, scale, added, norm)


def _rises(of, n, n_vocab, least):
    """(embedding of a text of `least` alone [position, d_model], what each id from it on adds to that [id, d_model]); None where the
    two do not add up to the embedding of another text."""
    base = of(torch.full((n,), least, dtype=torch.int64))
    parts = []
    for first in range(least, n_vocab, n):
        ids = torch.arange(first, min(first + n, n_vocab))
        filled = torch.cat([ids, torch.full((n - len(ids),), least, dtype=torch.int64)])
        parts.append((of(filled) - base)[:len(ids)])
    rise = torch.cat(parts)
    check = torch.randint(least, n_vocab, (n,), generator=torch.Generator().manual_seed(5))
    return (base, rise) if fitting.close(of(check), base + rise[check - least], 1e-9) else None


def _values(p, summed, n, d_model):
    """(weight [d_model, number], what is added at each position) where a map makes the residual of the rows of one argument."""
    if len(p.roots) != 1 or p.roots[0].kind != "argument" or p.roots[0].value.numel() % n:
        return None
    rows, width = p.roots[0], p.roots[0].value.numel() // n
    if rows.value.shape[-1] != width or not torch.equal(positions(p, rows, summed, n).reshape(n, d_model),
                                                        torch.arange(n)[:, None].expand(n, d_model)):
        return None
    of = function(p, rows, summed)
    added = of(torch.zeros(n, width, dtype=torch.float64))
    found = fitting.affine(lambda x: of(x) - added, n, width)
    return None if found is None else (found[0], added)


def _table(p, d_model):
    """The table [token, d_model] whose rows the ids choose, where one node alone does so."""
    # Positions that are counted over the ids are made of them too.
    roots = p.roots if len(p.roots) == 1 else [
        root for root in p.roots if all(p.op(x) in VIEWS for x in p.between([p.ids], root) if x not in (p.ids, root))]
    if len(roots) != 1:
        return None
    for arg in roots[0].inputs:
        value = arg.value
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() == 2 and arg not in p.active:
            is_across = value.shape[1] != d_model or p.op(roots[0]) == "index" and roots[0].args[1][0] is None
            return value.T if is_across and value.shape[0] == d_model else value
    return None


def sines(added):
    """Which sines and cosines the values of positions are; None where they are none."""
    n, d = added.shape
    at = torch.arange(n, dtype=torch.float64)[:, None]
    for kind in ("sines", "sines_halves", "sines_halves_to_end"):
        n_sines = d // 2 if kind == "sines_halves_to_end" else (d + 1) // 2
        if kind == "sines_halves_to_end" and n_sines < 2:
            continue
        shares = torch.arange(n_sines, dtype=torch.float64)
        shares = shares / (d // 2 - 1) if kind == "sines_halves_to_end" else 2 * shares / d
        angles = at / 10_000.0 ** shares
        if kind == "sines":
            rows = torch.stack([angles.sin(), angles.cos()], -1).reshape(n, -1)[:, :d]
        else:
            rows = torch.cat([angles.sin(), angles.cos()], 1)
            rows = torch.cat([rows, torch.zeros(n, max(0, d - rows.shape[1]), dtype=torch.float64)], 1)[:, :d]
        if float((rows - added).abs().max()) < 2e-6:
            return kind
    return None


def read_head(p, chain, n, d_model, norms_of):
    """(norms of the residual, Head) of the chain from the last residual to the logits."""
    head = Head()
    start = chain[0]
    chain, chosen, is_turned = _before_choice(p, chain, n)
    # The rows of the residual that the head reads: all, some of them, or what one row was made of.
    rows, first_read = n, None
    for node in chain[1:]:
        value = node.value
        if not isinstance(value, torch.Tensor) or value.shape[-1:] != (d_model,) or not 0 < value.numel() < rows * d_model:
            continue
        rows = value.numel() // d_model
        picked = positions(p, start, node, n).reshape(rows, d_model)
        if bool((picked != picked[:, :1]).any()) or _mixes(p, start, node, n, d_model):
            first_read, head.pooled = _pooled(p, chain, node, n, d_model, head.picked)
            if head.pooled == _OF_SOME:
                others = [at for at in range(n) if at not in set(head.picked)]
                head.order, head.pooled = others + head.picked, f"mean from {len(others)}"
            head.picked = [0]
            break
        head.picked, first_read = picked[:, 0].tolist(), node
    maps = []
    for before, node in zip(chain, chain[1:]):
        if any(p.op(x) in PRODUCTS for x in p.between([before], node) if x is not before):
            maps.append((before, node))
    if not maps and head.picked is not None and len(head.picked) == 1 and chain[-1].value.shape[-1:] == (d_model,):
        maps = [(chain[-1], chain[-1])]  # the row that the head reads is what the model gives
    if not maps:
        head.picked, head.turned = chosen, is_turned
        return _read_hidden(p, chain, n, d_model, norms_of), head
    if len(maps) > 2:
        raise Unnamed("the head has more than two maps", [node for _, node in maps])
    first_input = _wide(maps[0][0], chain, d_model)
    norms, at, ends = [], start, []

    def read(nodes, n_rows):
        found, name = _norms_and_activation(p, nodes, n_rows, d_model, norms_of)
        ends.extend([name] * (name is not None))
        return found

    if head.picked is not None:
        steps = [c for c in chain if c.idx <= first_input.idx and isinstance(c.value, torch.Tensor)
                 and c.value.shape[-1] == d_model]
        before = [c for c in steps if c.value.numel() == n * d_model and (c is start or _is_in_order(p, start, c, n, d_model))]
        after = [c for c in steps if c.value.numel() == rows * d_model and c.idx >= first_read.idx]
        norms += norms_of(p, before, n, d_model) if head.pooled else read(before, n)
        late = read(after, rows) if after else []
        if head.pooled and len(late) == 1:
            head.pooled_norm = late.pop()
        if late and head.pooled:
            raise Unnamed(f"{len(late)} norms stand after the {head.pooled} of positions", after[-1:])
        norms += late
    else:
        norms = read([c for c in chain if at.idx <= c.idx <= first_input.idx], n)
    width = d_model
    if len(ends) > 1 or ends and len(maps) == 2:
        raise Unnamed("several activations stand in the head before its maps", [node for _, node in maps])
    if ends:
        eye = torch.eye(d_model, dtype=torch.float64)
        head.dense, head.activation = (eye, torch.zeros(d_model, dtype=torch.float64)), ends[0]
    if len(maps) == 2:
        first_input, width = _read_dense(p, head, chain, first_input, maps, rows, d_model)
    _read_unembed(p, head, chain, first_input, maps[-1][1], rows, width)
    if chosen is not None:
        if head.picked is not None or head.then is not None and is_turned:
            raise Unnamed("positions are chosen before the map to the logits and after it", chain[-1:])
        head.picked, head.turned = chosen, is_turned
    return norms, head


def _before_choice(p, chain, n):
    """(the chain up to the logits of all positions, the positions of which the model gives its logits, whether these are its columns);
    (the chain, None, False) where it gives those of all, or where the choice is made before the last map."""
    end = chain[-1]
    for at in range(len(chain) - 1, 0, -1):
        node, value = chain[at], chain[at].value
        if not isinstance(value, torch.Tensor) or p.op(node) not in VIEWS and node is not end and value.numel() == end.value.numel():
            break
        if value.numel() > end.value.numel() and value.dim() > 1 and value.numel() == n * value.shape[-1]:
            places = followed(p, node, end)
            width = value.shape[-1]
            if places is None or places.dim() < 2 or bool((places < 0).any()):
                break
            for is_turned in (False, True):
                flat = places.transpose(-1, -2) if is_turned else places
                flat = flat.reshape(-1, flat.shape[-1])
                if flat.shape[1] == width and torch.equal(flat % width, torch.arange(width).expand_as(flat)) \
                        and bool((flat // width == (flat // width)[:, :1]).all()):
                    return chain[:at + 1], (flat // width)[:, 0].tolist(), is_turned
            break
        if p.op(node) not in VIEWS:
            break
    return chain, None, False


def _norms_and_activation(p, chain, n, d_model, norms_of):
    """(norms along a chain of rows, the activation that follows them); None where there is no activation."""
    try:
        return norms_of(p, chain, n, d_model), None
    except Unnamed:
        rows = [c for c in chain if isinstance(c.value, torch.Tensor) and c.value.numel() == n * d_model and c.value.shape[-1] == d_model]
        grid = 2.5 * fitting.random(n, d_model, seed=54)
        for node in rows[:-1]:
            name = fitting.activation(grid, function(p, node, rows[-1])(grid))
            if name is not None:
                return norms_of(p, [c for c in chain if c.idx <= node.idx], n, d_model), name
        raise


def _read_hidden(p, chain, n, d_model, norms_of):
    """The norms before hidden states that are what the model gives."""
    rows = [c for c in chain if isinstance(c.value, torch.Tensor) and c.value.shape[-1:] == (d_model,)
            and c.value.numel() == n * d_model and (c is chain[0] or _is_in_order(p, chain[0], c, n, d_model))]
    if rows[-1] is not chain[-1]:
        raise Unnamed("no map to the logits was found", [chain[-1]])
    return norms_of(p, rows, n, d_model)


def _is_in_order(p, start, node, n, d_model):
    """Whether row i of a node is of position i."""
    at = positions(p, start, node, n).reshape(n, d_model)
    return torch.equal(at, torch.arange(n)[:, None].expand(n, d_model))


def _wide(node, chain, d_model):
    """`node`, or the last one before it that still holds rows of the residual's width."""
    at = chain.index(node)
    while at and chain[at].value.shape[-1] != d_model:
        at -= 1
    return chain[at]


def _mixes(p, start, node, n, d_model):
    """Whether a row of `node` depends on more than one position."""
    base = start.value.reshape(n, -1)
    noise = fitting.random(*base.shape, seed=50)
    times = torch.zeros(node.value.numel() // d_model, dtype=torch.int64)
    for at in range(n):
        rows = base.clone()
        rows[at] += noise[at]
        got = p.run({start: like(start, rows)}, [node])[0]
        times += (got != node.value).reshape(-1, d_model).any(1).long()
    return bool((times != 1).any())


_OF_SOME = "mean of some"  # of positions that are not the last ones


def _pooled(p, chain, first, n, d_model, picked):
    """(node, word) of the row that is the mean or the largest values of all positions' rows; `first` is the first of one row.

    `picked` are the positions that are left before, where not all are. A mean over positions that count is a sum, and a later
    node divides it.
    """
    full = [c for c in chain if c.idx < first.idx and isinstance(c.value, torch.Tensor)
            and c.value.shape[-1:] == (d_model,) and c.value.numel() == n * d_model]
    x = fitting.random(n, d_model, seed=53)
    ways = {"mean": x.mean(0), "max": x.amax(0)}
    ways.update({f"mean from {i}": x[i:].mean(0) for i in range(1, n) if picked == list(range(i, n))})
    if p.own_rows and picked is not None and sorted(set(picked)) == picked:
        ways.setdefault(_OF_SOME, x[picked].mean(0))
    for node in chain[chain.index(first):]:
        if not isinstance(node.value, torch.Tensor) or node.value.numel() != d_model:
            break
        got = p.run({full[-1]: like(full[-1], x)}, [node])[0].reshape(-1)
        for word, expected in ways.items():
            if fitting.close(got, expected, 1e-9):
                return node, word
    reads = products(p, p.between([full[-1]], chain[-1]))
    if reads:
        raise Unnamed("one token reads the positions by attention before the head (class attention)", reads[:1])
    raise Unnamed("positions are pooled before the head in a way that is neither a mean nor a maximum", [first])


def _read_dense(p, head, chain, source, maps, rows, d_model):
    """Reads a dense layer, its activation and its norm before the unembedding; gives the input of the last map, and its width."""
    stop = maps[1][0]
    if stop.value.numel() % rows:
        raise Unnamed("the head has two maps, and what the second one reads has no row per position", [maps[1][1]])
    width = stop.value.numel() // rows
    nodes = [c for c in chain if source.idx < c.idx <= stop.idx and isinstance(c.value, torch.Tensor) and c.value.numel() == rows * width]
    dense, at = None, None
    for node in reversed(nodes):
        found = fitting.affine(function(p, source, node), rows, d_model)
        if found is not None:
            dense, at = found, node
            break
    if dense is None:
        raise Unnamed("the head has a layer before its last map that is not affine in its input", [maps[0][1]])
    head.dense = dense
    grid = 2.5 * fitting.random(rows, width, seed=51)
    for node in [at, *[c for c in nodes if c.idx > at.idx]]:
        name = fitting.activation(grid, function(p, at, node)(grid)) if node is not at else "identity"
        if name is None:
            continue
        head.activation = name
        if node is stop:
            return stop, width
        norm = fitting.norm(function(p, node, stop), rows, width, node.value.reshape(rows, -1))
        if norm is not None:
            head.norm = norm
            return stop, width
    raise Unnamed("what stands in the head is neither an activation nor a norm", [x for x in nodes if x.idx > at.idx][:3])


def _read_unembed(p, head, chain, source, mapped, rows, d_model):
    end = chain[-1]
    value = end.value
    n_out = value.numel() // rows
    tail = [c for c in chain if c.idx >= source.idx and isinstance(c.value, torch.Tensor)]

    def flat(x):  # [row, logit]
        if x.numel() % rows:
            raise Unnamed("the model's output has no row of logits per position", [end])
        if x.dim() >= 2 and x.shape[-1] == rows and x.shape[-2] == n_out and rows != n_out:
            return x.reshape(-1, n_out, rows)[0].T
        return x.reshape(rows, -1)

    head.turned = value.dim() >= 2 and value.shape[-1] == rows and value.shape[-2] == n_out and rows != n_out

    def f(node):
        return lambda x: flat(p.run({source: like(source, x)}, [node])[0])

    for node in reversed(tail):
        found = fitting.affine(f(node), rows, d_model)
        if found is None:
            continue
        head.unembed = found
        if node is end:
            return
        x = fitting.random(rows, d_model, seed=52)
        before, after = f(node)(x), f(end)(x)
        for name, function_of in THEN.items():
            if fitting.close(function_of(before, -1), after, 1e-9):
                head.then = name
                return
        big = f(end)(x * 1e8).abs().max()
        cap = float(f"{float(big):.6g}")
        for divided in (1.0, cap):  # where the division by the cap belongs to the map, the map is not the logits' yet
            if cap > 0 and fitting.close(cap * torch.tanh(divided * before / cap), after, 1e-7):
                head.softcap = cap
                head.unembed = tuple(divided * part for part in found)
                return
        raise Unnamed("the logits are changed at the end in a way without a name",
                      [c for c in tail if c.idx > node.idx and p.op(c) not in VIEWS][:3])
    raise Unnamed("the map to the logits is not affine", [mapped])

