"""What the mask of an attention is, found from the keys that its sampled rows see.

A mask is told by what the rows prove, never by the length of the batch: a window that no text of the batch fills looks causal, and
the record says how far back rows were seen to look (`reach`). Keys that are padding, and those of other documents of a row where
the batch tells its documents, count for nothing here: `pad_mass` and `document_mass` are about those.
"""

import torch

from .rows import is_none

# Different masks of one record, at most; layers with others have none.
MOST = 16


def shown(rows):
    """What the rows of one block show, on their device: [5, sequence, head, row] as integers.

    The five are the first and the last visible key, the number of visible keys, the query's own place and the last place there is; all
    of them count real keys of the query's document alone. A row that sees nothing, or has a score that is no number, has 0 keys. Heads
    that see the same keys are one, where that costs no wait.
    """
    visible = rows.visible & ~torch.isnan(rows.scores).any(-1, keepdim=True)
    if is_none(visible != visible[:, :1]):
        visible = visible[:, :1]
    own, end = rows.positions, torch.full_like(rows.positions, rows.n_keys - 1)
    eligible = _eligible(rows)  # [sequence, row, key]
    if eligible is not None:
        visible = visible & eligible[:, None]
    n = visible.sum(-1)
    first = visible.to(torch.int8).argmax(-1)
    last = rows.n_keys - 1 - visible.to(torch.int8).flip(-1).argmax(-1)
    if eligible is not None:
        rank = eligible.cumsum(-1) - 1
        first, last = (rank[:, None].expand(visible.shape).gather(-1, at[..., None]).squeeze(-1) for at in (first, last))
        own, end = rank.gather(-1, own[..., None]).squeeze(-1), rank[..., -1]
    return torch.stack([first, last, n, own[:, None].expand(n.shape), end[:, None].expand(n.shape)]).to(torch.int32)


def _eligible(rows):
    """Keys that a mask is asked about [sequence, row, key]; None for all."""
    eligible = None if rows.real is None else rows.real[:, None].expand(*rows.positions.shape, -1)
    if rows.documents is not None:
        of_own = rows.documents.gather(-1, rows.positions)[..., None] == rows.documents[:, None]
        eligible = of_own if eligible is None else eligible & of_own
    return eligible


def of_layers(layers):
    """What a record says of masks: {"kinds": […], "of": […]}; None where nothing is known.

    `of` has for each layer the number of its kind, a list of one number per head where they differ, or null. It is left out where
    every layer is of the first kind.
    """
    kinds, known, of = [], [], []
    for layer in layers:
        heads = []
        for member in layer.members:
            is_cross = layer.stack == "cross" or member.is_cross
            heads += [None] * member.n_heads if is_cross or not member.shown else _of_member(member, known)
        numbers = []
        for kind in heads:
            if kind is not None and kind not in kinds and len(kinds) < MOST:
                kinds.append(kind)
            numbers.append(kinds.index(kind) if kind in kinds else None)
        of.append(numbers[0] if len(set(numbers)) == 1 else numbers)
    if not kinds:
        return None
    return {"kinds": kinds} if all(number == 0 for number in of) else {"kinds": kinds, "of": of}


def visible_keys(record, n_layers):
    """How many keys a sampled row of each layer sees, in the mean of its heads; None where a record does not have it."""
    masks = record.get("batch", {}).get("masks")
    if masks is None:
        return [None] * n_layers
    keys = []
    for of_layer in masks.get("of", [0] * n_layers):
        numbers = of_layer if isinstance(of_layer, list) else [of_layer]
        known = [masks["kinds"][number]["keys"] for number in numbers if number is not None]
        keys.append(sum(known) / len(known) if known else None)
    return keys


def _of_member(member, known):
    """The mask of each head. `known` remembers what rows that look alike were found to be: most layers share one mask."""
    parts, groups, n = [], [], 0
    for part in member.shown:  # [5, sequence, head, row]
        part = part.cpu()
        groups.append(torch.arange(n, n + part.shape[1])[:, None].expand(-1, part.shape[3]).flatten())
        parts.append(part.expand(-1, -1, member.n_heads, -1).transpose(1, 2).flatten(2))
        n += part.shape[1]
    values, group = torch.cat(parts, 2).long(), torch.cat(groups)  # [5, head, row], [row]
    is_first = (values == values[:, :1]).all(0).all(1).tolist()
    heads = []
    for head, is_as_first in enumerate(is_first):
        heads.append(heads[0] if head and is_as_first else _known(values[:, head], group, known))
    return heads


def _known(values, group, known):
    for rows, of, kind in known:
        if torch.equal(rows, values) and torch.equal(of, group):
            return kind
    kind = kind_of(*values, group)
    known.append((values, group, kind))
    return kind


def kind_of(first, last, n, own, end, group):
    """The mask that rows of one head show, as a dictionary; None where they tell nothing. All are one number a row.

    group   the sequence of each row
    """
    seeing = n > 0
    if not bool(seeing.any()):
        return None
    first, last, n, own, end, group = (x[seeing] for x in (first, last, n, own, end, group))
    later = bool((last > own).any())
    allowed = end + 1 if later else own + 1
    keys = {"keys": round(float(n.double().mean()), 2)}
    if int(n.sum()) != int(allowed.sum()):
        keys["allowed"] = round(float(allowed.double().mean()), 2)
    holes = n != last - first + 1
    if bool(holes.any()):
        return {"kind": "other", "later": later, "least": int(n[holes].min()), **keys}
    begin, end = _bounds(first, last, own, end, group)
    left, right = _side(own - first, first > begin, own), _side(last - own, last < end, own)
    if left is None or right is None:
        return _uneven(first - begin, last - begin, own - begin, group, left, right, later, keys)
    (is_left_exact, left), (is_right_exact, right) = left, right
    if not is_right_exact and right == 0:
        return None  # nothing stands after the queries: whether it would be seen is not known
    if not is_right_exact:
        if is_left_exact:
            return {"kind": "window", "left": left, "ahead": right, **keys}
        return {"kind": "bidirectional", "reach": left, "ahead": right, **keys}
    if is_left_exact:
        return {"kind": "window", "left": left, "right": right, **keys}
    since = int((own - begin)[last < end].min())
    found = {"kind": "causal", "reach": left, "from": since, "right": right, **keys}
    return {name: value for name, value in found.items() if value or name not in ("from", "right")}


def _bounds(first, last, own, end, group):
    """The first and the last key there is for each row. Where all rows of a sequence begin or end at one key, the others may be padding
    that nothing told of."""
    begin = torch.zeros_like(first)
    bounds = [begin, end.clone()]
    for at in group.unique().tolist():
        rows = group == at
        if len(own[rows].unique()) < 2:
            continue
        for bound, seen in zip(bounds, (first, last)):
            if len(seen[rows].unique()) == 1:
                bound[rows] = seen[rows]
    return bounds


def _side(reach, is_cut, own):
    """(True, how far rows see to one side) where a mask cuts them off at one distance, (False, how far at least) where it never does;
    None where it cuts them off at several. One row alone tells no distance but none."""
    longest = int(reach.max())
    cut = reach[is_cut]
    if not len(cut):
        return False, max(longest, 0)
    if int(cut.min()) != int(cut.max()) or longest > int(cut.max()):
        return None
    distance = int(cut.max())
    if distance != 0 and len(own[is_cut].unique()) < 2:
        return False, max(longest, 0)
    return True, distance


def _uneven(first, last, own, group, left, right, later, keys):
    """Masks that cut rows off at several distances: a prefix that is read both ways, documents of a row, or something else."""
    sizes, is_prefix, is_apart = [], left is not None and not left[0], True
    for at in group.unique().tolist():
        rows = group == at
        order = own[rows].argsort()
        first_of, last_of, own_of = first[rows][order], last[rows][order], own[rows][order]
        inside = last_of > own_of
        if bool(inside.any()):
            size = int(last_of[inside][0]) + 1
            sizes.append(size)
            expected = own_of.clamp(min=size - 1)
        else:
            expected = own_of
        is_prefix = is_prefix and bool((last_of == expected).all())
        # another document begins after all that was looked at before it
        begins_alike, ends_alike = first_of[1:] == first_of[:-1], last_of[1:] == last_of[:-1]
        is_new = first_of[1:] > own_of[:-1]
        is_new_after = first_of[1:] > last_of[:-1]
        is_apart = is_apart and bool(((begins_alike & ends_alike) | is_new_after).all() if later else (begins_alike | is_new).all())
    if is_prefix and sizes:
        return {"kind": "prefix", "size": min(sizes), **keys}
    if is_apart and (later or right == (True, 0)):
        return {"kind": "documents", "later": later, **keys}
    return {"kind": "other", "later": later, **keys}
