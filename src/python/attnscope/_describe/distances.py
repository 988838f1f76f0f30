"""Reads vectors of distances that queries meet besides keys: what is added to the score of a query and a key is a product of the query
and a vector of their distance (Shaw et al. 2018, Transformer-XL)."""

from __future__ import annotations

import torch

from .fitting import close, random
from .naming import in_layer, one_of
from .tracing import Unnamed

_SMALL = 0.1  # scores stay where an exponential can be told from 0


class Vectors:
    """A vector of each head and distance query − key from −(n − 1) on, without that of distance 0, which a softmax does not see; and what
    is added to queries where they meet them. `leaves` are the tensors that may hold them."""

    def __init__(self, rows, seen, offset, node, leaves):
        self.rows, self.seen, self.offset = rows, seen, offset  # [head, distance, d], [distance], [head, d] or None
        self.node, self.leaves = node, leaves


def leaves_of(nodes, source):
    """Names of the tensors that some nodes are made of, back to `source`."""
    seen, stack = {source}, list(nodes)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += node.inputs
    return {node.name for node in seen if node.kind in ("parameter", "buffer")}


def read_distances(pattern_of, maps, rows, sizes, beside):
    """(Vectors, what else is added to the scores [head, query, key]) where what is added depends on the text.

    `pattern_of` gives the pattern [head, query, key] of equal scores for rows of the attention's input; `beside` is what is added, and
    the tensors that it may be made of.
    """
    (q, k), (n, d_in), (node, leaves) = maps, sizes, beside
    why = "what is added to the scores depends on the text"
    visible, total = rows.visible, (rows.scale or 0) * q.factor * k.factor
    is_own_seen = bool(visible.diagonal(dim1=1, dim2=2).all())
    if rows.axis != "keys" or rows.softcap is not None or rows.sinks is not None or rows.top_keys is not None or not total \
            or q.norm is not None or q.turns is not None or not is_own_seen:
        raise Unnamed(why, [node])

    def added(x):  # without what a softmax does not see: that of a query's own position
        logs = pattern_of(x).clamp_min(1e-300).log()
        return logs - logs.diagonal(dim1=1, dim2=2)[..., None]

    n_heads, d = q.weight.shape[:2]
    seen = visible.expand(n_heads, n, n)
    at_zero = added(torch.zeros(n, d_in, dtype=torch.float64))
    size = float(torch.einsum("hdi,i->hd", q.weight, random(d_in, seed=110)).abs().max())
    draws = [_SMALL / max(size, 1e-6) * random(n, d_in, seed=111 + i) for i in range(d + 2)]
    changes = torch.stack([added(x) - at_zero for x in draws])  # [draw, head, query, key]
    # What keys add by themselves is a bias of queries that keys alone meet.
    query, key = (1, 0) if bool(seen[0, 1, 0]) else (0, 1)
    alone = [torch.where(torch.arange(n)[:, None] == key, x, 0.0) for x in draws]
    of_keys = torch.stack([torch.einsum("hdi,i->hd", k.weight, x[key]) for x in alone], 1)  # [head, draw, d]
    by_keys = torch.stack([(added(x) - at_zero)[:, query, key] for x in alone], 1)
    if float(by_keys.abs().max()) > 1e-9:
        met = torch.linalg.lstsq(of_keys, by_keys[..., None]).solution[..., 0] / total  # [head, d]
        q.bias = q.bias + met
        keys = torch.stack([torch.einsum("hdi,ni,hd->hn", k.weight, x, met) for x in draws])
        changes = changes - total * (keys[:, :, None, :] - keys[..., None])
    queries = torch.stack([torch.einsum("hdi,ni->hnd", q.weight, x) for x in draws])  # [draw, head, query, d]
    far = 2 * n - 1
    found, is_seen = torch.zeros(n_heads, far, d, dtype=torch.float64), torch.zeros(far, dtype=torch.bool)
    back = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    for distance in range(-(n - 1), n):
        at, to = torch.nonzero((back == distance) & seen[0], as_tuple=True)
        if len(at) and distance:
            is_seen[distance + n - 1] = True
            given, wanted = queries[:-1, :, at].transpose(0, 1).flatten(1, 2), changes[:-1][:, :, at, to].transpose(0, 1).flatten(1)
            found[:, distance + n - 1] = torch.linalg.lstsq(given, wanted[..., None]).solution[..., 0] / total
    of_cells = total * torch.einsum("hnd,hnkd->hnk", queries[-1], found[:, (back + n - 1)])
    if not close(torch.where(seen, of_cells, 0.0), torch.where(seen, changes[-1], 0.0), 1e-6):
        raise Unnamed(why, [node])
    found = torch.where(found.abs() < 1e-10, 0.0, found)
    rest = at_zero - total * torch.einsum("hd,hnkd->hnk", q.bias, found[:, (back + n - 1)])
    rest, offset = torch.where(seen, rest, 0.0), None
    if float(rest.abs().max()) > 1e-7:
        offset = _offset(rest, found, seen, back + n - 1, total)
        if offset is not None:
            rest = torch.zeros_like(rest)
    return Vectors(found, is_seen, offset, node, leaves), rest


def _offset(rest, found, seen, place, total):
    """What is added to the queries of each head where they meet vectors of distances, if it gives the rest; None where it does not."""
    offsets = []
    for head in range(len(found)):
        given, wanted = total * found[head][place][seen[head]], rest[head][seen[head]]
        offset = torch.linalg.lstsq(given, wanted[:, None], driver="gelsd").solution[:, 0]
        if not close(given @ offset, wanted, 1e-6):
            return None
        offsets.append(offset)
    return torch.stack(offsets)


def joined_vectors(parts):
    """The Vectors of heads that are computed apart; None where they have none."""
    if all(part is None for part in parts):
        return None
    if any(part is None or not torch.equal(part.seen, parts[0].seen) for part in parts):
        raise Unnamed("some heads add a product of queries and vectors of distances to their scores, and others do not",
                      [part.node for part in parts if part is not None][:1])
    offsets = [torch.zeros_like(part.rows[:, 0]) if part.offset is None else part.offset for part in parts]
    offset = None if all(part.offset is None for part in parts) else torch.cat(offsets)
    return Vectors(torch.cat([part.rows for part in parts]), parts[0].seen, offset, parts[0].node, set().union(*(p.leaves for p in parts)))


def relative(written, attentions):
    """The part of a description with vectors of distances."""
    all_vectors = [a.distances for a in attentions]
    if any(vectors is None for vectors in all_vectors):
        raise Unnamed("some layers add a product of queries and vectors of distances to their scores, and others do not",
                      [v.node for v in all_vectors if v is not None][:1])
    n, stored = written.reading.n, _stored(written, all_vectors)
    if stored is None:
        flat = [vectors.rows.transpose(0, 1).flatten(1) for vectors in all_vectors]
        why = f"vectors of the distances −{n - 1} to {n - 1}, by head, that queries meet: a copy, which holds for so many positions"
        part = {"weight": written.copy("blocks.{layer}.relative", flat, why), "own": n - 1, "counts": "query - key", "limits": True}
    else:
        tables, own, counts = stored
        name = one_of([[table.name] for table in tables], written.at)
        if name is not None and all(abs(table.factor - 1) < 1e-6 for table in tables):
            weight = written.keep(name)
        else:
            first = tables[0]
            weight = written.copy("blocks.{layer}.relative", [table.rows * table.factor for table in tables],
                                  f"{first.name} times {first.factor:.9g}, and so on: a copy")
        part = {"weight": weight, "own": own, "counts": counts}
    if any(vectors.offset is not None for vectors in all_vectors):
        zeros = torch.zeros_like(next(v.offset for v in all_vectors if v.offset is not None))
        offsets = [zeros if vectors.offset is None else vectors.offset for vectors in all_vectors]
        part["query_bias"] = written.copy("blocks.{layer}.relative_query", offsets, "what queries have more where they meet vectors of "
                                          "distances: a copy")
    return part


class _Table:
    """A stored table whose rows, less that of distance 0, are the vectors divided by a factor."""

    def __init__(self, name, rows, factor, place):
        self.name, self.rows, self.factor, self.place = name, rows, factor, place  # (row of distance 0, in which order rows count)


def _stored(written, all_vectors):
    """([_Table of each layer], the row of distance 0, in which order the rows count distances) of stored tables; None where there are
    none."""
    fits = [_tables(written, vectors) for vectors in all_vectors]
    for place in dict.fromkeys(table.place for table in fits[0]):
        of_place = [[table for table in of if table.place == place] for of in fits]
        if all(of_place):
            name = one_of([[table.name for table in of] for of in of_place], written.at)
            named = None if name is None else [in_layer(name, idx) for idx in written.at]
            return [next((t for t in of if named and t.name == named[i]), of[0]) for i, of in enumerate(of_place)], *place
    return None


def _tables(written, vectors):
    """The stored tables that hold the vectors."""
    n_heads, far, d = vectors.rows.shape
    n, found = (far + 1) // 2, []
    distances = torch.nonzero(vectors.seen).flatten() - (n - 1)
    wanted = vectors.rows[:, distances + n - 1].transpose(0, 1)  # [distance, head, d]
    for name, value in written.stored.by_name.items():
        if name not in vectors.leaves:
            continue
        shape = [size for size in value.shape if size != 1]
        if len(shape) != 2 or shape[1] not in (d, n_heads * d) or shape[0] < 2:
            continue
        table = value.reshape(shape).double()
        for counts, sign in (("key - query", -1), ("query - key", 1)):
            for own in range(len(table)):
                rows = (own + sign * distances).clamp(0, len(table) - 1)
                given = (table[rows] - table[own]).reshape(len(distances), -1, d).expand_as(wanted)
                factor = float((given * wanted).sum()) / max(float((given * given).sum()), 1e-30)
                if factor and close(given * factor, wanted, 1e-6):
                    found.append(_Table(name, table, factor, (own, counts)))
    return found
