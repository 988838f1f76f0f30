"""Reads a watched pass as a transformer: an embedding, layers of attention and feed-forward, and a head."""

from __future__ import annotations

import torch

from . import fitting, joined
from .around import read_embedding, read_head
from .experts import Experts, choice, read_experts
from .order import of_branches
from .kept import first_values
from .heads import crossings, input_of, is_attention, products, read_attention
from .replay import PRODUCTS, VIEWS, like
from .scaled import Scaled
from .sides import decoder_of, encoder_of, sides
from .tracing import Elements, Unnamed, elements, followed, function


class NotIds(Unnamed):
    """The rows of the residual are not one per token id."""


class Layer:
    """One block: its attention, that to an encoder, its feed-forward layer, and the norms around them by place."""

    def __init__(self):
        self.attention, self.cross, self.mlp, self.norms = None, None, None, {}
        self.paths = {}  # the module of each branch
        self.residuals = {}  # branch → what multiplies the residual before the branch is added


class Mlp:
    """A feed-forward layer: down(act(up x)) or down(act(gate x) * up x); maps are (weight [out, in], bias [out])."""

    def __init__(self, up, gate, down, activation):
        self.up, self.gate, self.down, self.activation = up, gate, down, activation
        self.hidden_norm = self.after = None  # the norm before the second map, and the activation behind it

    @property
    def is_plain(self):
        return self.hidden_norm is None and self.after is None


class Reading:
    """Everything that a pass says of its model."""

    def __init__(self):
        self.layers, self.is_parallel, self.notes = [], False, []
        self.embedding = self.head = self.final_norm = None
        self.has_no_residual = False
        self.encoder = None  # the Reading of the encoder whose output the layers attend to
        self.text = None  # the ids that are read
        self.argument = self.places = None  # the argument that holds them, or rows of numbers, and where
        self.is_values = False  # whether the argument holds rows of numbers


def read(p):
    """The model that a pass belongs to.

    Raises Unnamed with the operations that have no name.
    """
    of = None if p.own_rows else sides(p)
    if of is None:
        return _read_model(p)
    try:
        source = encoder_of(p, of)
        encoder, memory = _read_encoder(source)
        later = products(source, source.between([memory], *of.leaving))
        if later:
            raise Unnamed("layers of the decoder attend to different layers of the encoder", later[:1])
        reading = _read_model(decoder_of(p, of, memory, encoder.n))
    except NotIds as found:  # no model of rows either: it reads two texts
        raise Unnamed(found.why, found.nodes) from found
    reading.encoder = encoder
    for side, part in (("encoder", encoder), ("decoder", reading)):
        if part.argument is None:
            reading.notes.append(f"the {side} reads no token ids: its tokens are the rows of the example, 0 to {part.n - 1}, and this "
                                 "describes it on the example alone")
    return reading


def _read_model(p):
    """The stack that the logits are made of, and its head."""
    with first_values(p, products) as p.kept:
        reading = _read_whole(p)
    if p.kept is not None and all(layer.attention is None or layer.attention.share is None for layer in reading.layers):
        raise Unnamed("values of the first attention are read again behind it, and not as values of a later one", p.kept.twin.users[:1])
    return reading


def _read_whole(p):
    reading, tail, last = _read_stack(p)
    scaled = reading.scaled
    rows = [c for c in tail if isinstance(c.value, torch.Tensor) and c.value.shape[-1:] == (reading.d_model,)
            and c.value.numel() == reading.n * reading.d_model]
    if not scaled.is_plain:
        end = next((c for c in reversed(rows[1:]) if scaled.follow(p, tail[0], c, reading.n)), tail[0])
        tail = [c for c in tail if c.idx >= end.idx]
    norms, reading.head = read_head(p, tail, reading.n, reading.d_model, _norms)
    _put_tail(reading, last, norms)
    scaled.put_head(reading)
    reading.layers = of_branches(reading.layers)
    _check(reading)
    return reading


def _read_encoder(p):
    """The encoder, and its output: the last value that has rows of the residual before the maps of the decoder."""
    reading, tail, last = _read_stack(p)
    if not reading.scaled.is_plain:
        raise Unnamed("the residual of an encoder is multiplied between its branches")
    rows, end = reading.n * reading.d_model, tail[0]
    for node in tail[1:]:
        if any(p.op(x) in PRODUCTS for x in p.between([tail[0]], node)):
            break
        if isinstance(node.value, torch.Tensor) and node.value.numel() == rows and node.value.shape[-1] == reading.d_model:
            end = node
    _put_tail(reading, last, _norms(p, [c for c in tail if c.idx <= end.idx], reading.n, reading.d_model))
    reading.layers = of_branches(reading.layers)
    _check(reading)
    return reading, end


def _read_stack(p):
    """(Reading, the chain from the last residual on, where the last branch belongs) of an embedding and layers."""
    if not p.roots:
        raise NotIds("expected token ids that choose rows of a table; no table is read by what the model was given",
                     [p.nodes[-1]])
    chain = p.bottlenecks(p.roots, *p.ends)
    sums = {}  # a residual sum → where its residual comes from, and the other terms
    factors = {}  # a residual sum → what multiplies the residual before it, one number for each value; None where nothing does
    for before, node in zip(chain, chain[1:]):
        terms = _terms(p, node, before)
        own, times = [t for t in terms if _is_copy(p, t, before)], None
        if len(terms) > 1 and not own:
            multiples = [t for t in terms if _is_multiple(p, t, before)]
            times = _times(p, before, multiples[0]) if len(multiples) == 1 else None
            own = [] if times is None else multiples
        if len(terms) > 1 and len(own) == 1:
            others = [t for t in terms if t is not own[0]]
            if sums or any(p.op(x) in PRODUCTS for t in others for x in p.between([before], t)):
                sums[node] = (before, others)  # earlier sums belong to the embedding
                factors[node] = times
    is_added = bool(sums)
    if not sums:
        sums = _alone(p, chain)
    starts = [before for before, _ in sums.values()]
    d_model = starts[0].value.shape[-1]
    n = starts[0].value.numel() // d_model if p.own_rows else p.ids.value.numel()
    for start in starts:
        if start.value.shape[-1] != d_model or start.value.numel() != n * d_model:
            is_one = start.value.numel() == d_model < n * d_model
            one = f": one token reads its {n} positions by attention (class attention)" if is_one else ""
            raise NotIds(f"expected a residual of {n} positions by {d_model}, found {list(start.value.shape)}{one}", [start])
    reading = Reading()
    reading.n, reading.d_model, reading.has_no_residual = n, d_model, not is_added
    reading.scaled = Scaled(d_model)
    if not p.own_rows:
        reading.text, reading.argument = p.ids, p.argument
        reading.places = followed(p, p.argument, p.ids).reshape(-1)
    if p.own_rows:
        before = [x for x in p.between(p.roots, starts[0]) if p.op(x) in ("_softmax", *PRODUCTS)]
        lost = products(p, before) + [x for x in before if p.op(x) == "_softmax"]
        if lost:
            raise Unnamed("attention before the first layer that adds to its input would be lost in the rows of the example", lost[:2])
    reading.embedding = read_embedding(p, [c for c in chain if c.idx <= starts[0].idx], n, d_model)
    if reading.embedding.values is not None:
        reading.is_values, reading.argument = True, p.roots[0]
    end, last = starts[0], None
    for node, (start, terms) in sums.items():
        try:
            gap = _norms(p, [c for c in chain if end.idx <= c.idx <= start.idx], n, d_model)
        except Unnamed:
            if not reading.layers or not reading.scaled.follow(p, end, start, n):
                raise
            gap = []
        _put_after(reading, last, gap, start)
        last = _read_branches(p, reading, start, terms, n, d_model)
        reading.scaled.put(reading.layers[-1], last)
        if factors.get(node) is not None:
            if last not in ("attn", "mlp"):
                raise Unnamed("the residual is multiplied before several branches are added, or attention to the encoder is", [node])
            reading.layers[-1].residuals[last] = factors[node]
        end = node
    return reading, [c for c in chain if c.idx >= end.idx], last


def _alone(p, chain):
    """The one attention of a model without a residual: what it gives → what it reads."""
    found = products(p, sorted(p.active, key=lambda x: x.idx))
    if not found or len(found) > 2:
        raise Unnamed("no residual sum was found: expected blocks that add to their input", _joints(p, chain))
    start = input_of(p, chain[0], sorted(p.active, key=lambda x: x.idx))
    after = [c for c in chain if c.idx >= found[-1].idx and isinstance(c.value, torch.Tensor)
             and c.value.numel() == start.value.numel() and c.value.shape[-1] == start.value.shape[-1]]
    if start not in chain or not after:
        raise Unnamed("no residual sum was found, and attention does not keep the width of its input", found[-1:])
    return {after[0]: (start, [after[0]])}


def _terms(p, node, before):
    """The terms of a sum that both depend on the text, back to `before`."""
    if node is before or node not in p.active:
        return [node]
    op = p.op(node)
    if op in VIEWS and op not in ("cat", "stack", "index", "select", "slice", "getitem") or p.is_one(node):
        inputs = [i for i in node.inputs if i in p.active]
        if len(inputs) == 1:
            inner = _terms(p, inputs[0], before)
            return inner if len(inner) > 1 else [node]
    if op == "add" and len(node.args) >= 2 and node.kwargs.get("alpha", 1) == 1:
        a, b = node.args[:2]
        if getattr(a, "kind", None) and getattr(b, "kind", None) and a in p.active and b in p.active:
            return [*_terms(p, a, before), *_terms(p, b, before)]
    of = _stacked(p, node)
    return [term for one in of for term in _terms(p, one, before)] if of else [node]


def _stacked(p, node):
    """The values that a node is the sum of, where they are stacked first; none where it is no such sum."""
    if node.op != "aten.sum.dim_IntList" or len(node.args) > 2 or p.op(node.args[0]) != "stack":
        return []
    parts, dim = [*node.args[0].args, 0][:2]
    dims = {d % node.args[0].value.dim() for d in node.args[1]}
    return list(parts) if dims == {dim % node.args[0].value.dim()} and all(part in p.active for part in parts) else []


def _is_copy(p, node, source):
    """Whether a node is `source`, moved and nothing else."""
    while node is not source:
        inputs = [i for i in node.inputs if i in p.active]
        op = p.op(node)
        if len(inputs) != 1 or not (op in VIEWS or p.is_one(node)) or op in ("cat", "index", "select", "slice", "getitem"):
            return False
        node = inputs[0]
    return True


def _is_multiple(p, node, source):
    """Whether a node is `source` times numbers that the text does not change."""
    steps = 0
    while node is not source:
        inputs = [i for i in node.inputs if i in p.active]
        op = p.op(node)
        if len(inputs) != 1 or not (op in ("mul", "div") or op in VIEWS and op not in ("cat", "index", "select", "slice", "getitem")):
            return False
        node, steps = inputs[0], steps + 1
    return steps > 0


def _times(p, source, node):
    """The numbers [d_model] by which `node` is `source`; None where they differ by position."""
    width = source.value.shape[-1]
    n = source.value.numel() // width
    x = fitting.random(n, width, seed=31)
    times = function(p, source, node)(x) / x
    return times[0] if fitting.close(times, times[:1].expand_as(times), 1e-9) else None


def _joints(p, chain):
    """Where values of the text come together without a name."""
    return [c for c in chain if len([i for i in c.inputs if i in p.active]) > 1][:4] or chain[1:2]


def _norms(p, chain, n, d_model):
    """The norms that follow each other along a chain; empty where it only moves values."""
    chain = [c for c in chain if isinstance(c.value, torch.Tensor) and c.value.numel() == n * d_model
             and c.value.shape[-1] == d_model]
    found, at = [], 0
    while at < len(chain) - 1:
        x = fitting.random(n, d_model, seed=30)
        same = [j for j in range(len(chain) - 1, at, -1)
                if torch.equal(function(p, chain[at], chain[j])(x), x)]
        if same:
            at = same[0]
            continue
        for j in range(len(chain) - 1, at, -1):
            norm = fitting.norm(function(p, chain[at], chain[j]), n, d_model, chain[at].value.reshape(n, -1))
            if norm is not None:
                found.append(norm)
                at = j
                break
        else:
            between = [c for c in chain[at + 1:] if p.op(c) not in VIEWS]
            raise Unnamed("what stands between two branches is no norm of the residual", (between or chain[at + 1:])[:3])
    return found


def _read_branches(p, reading, start, terms, n, d_model):
    """Reads what is added to a residual, puts it into its layer, and says where: "attn", "cross", "mlp" or "both"."""
    attends = [t for t in terms if is_attention(p, p.between([start], t))]
    crosses = [t for t in terms if crossings(p, p.between([start], t))]
    others = [t for t in terms if t not in attends and t not in crosses]
    if crosses:
        return _read_cross(p, reading, start, terms, crosses, n, d_model)
    if attends:
        layer = Layer()
        reading.layers.append(layer)
        layer.attention, norms = _attention_of(p, start, attends, n, d_model)
        layer.paths["attn"] = layer.attention.node.path
        _put(layer, "attn_pre", norms, attends[0])
        if layer.attention.norm_out is not None:
            layer.norms["attn_out"] = layer.attention.norm_out
    if others:
        if not reading.layers or not attends and reading.layers[-1].mlp is not None:
            reading.layers.append(Layer())
        layer = reading.layers[-1]
        nodes = sorted({x for t in others for x in p.between([start], t)}, key=lambda x: x.idx)
        has_experts = choice(p, nodes) is not None
        if len(others) > 1 and not has_experts:
            layer.mlp, norms = _joined_mlps(p, start, others, n, d_model)
            norm = None
        else:
            source = input_of(p, start, nodes)
            norms = _norms(p, _chain_to(p, start, source), n, d_model)
            layer.mlp, norm = read_experts(p, source, others, (n, d_model), read_mlp, _with_bias) if has_experts else \
                read_mlp(p, source, others[0], n, d_model)
        layer.paths["mlp"] = next((m.path for m in nodes if p.op(m) in PRODUCTS), "")
        _put(layer, "mlp_pre", norms, others[0])
        if norm is not None:
            layer.norms["mlp_out"] = norm
        reading.is_parallel = reading.is_parallel or bool(attends)
    return "both" if attends and others else "attn" if attends else "mlp"


def _attention_of(p, start, terms, n, d_model):
    """(attention, norms before it) of the sum of some terms. Several that have norms of their own are one of all their heads."""
    sources = [input_of(p, start, p.between([start], term)) for term in terms]
    if len(set(sources)) == 1 or start in sources:
        attention, source = read_attention(p, start, terms, n, d_model)
        return attention, _norms(p, _chain_to(p, start, source), n, d_model)
    parts = [read_attention(p, start, [term], n, d_model)[0] for term in terms]
    norms = [_norms(p, _chain_to(p, start, source), n, d_model) for source in sources]
    bare = joined.bare(norms, terms)
    for part, own in zip(parts, norms):
        joined.fold(part, own)
    return joined.attentions(parts), bare


def _joined_mlps(p, start, terms, n, d_model):
    """(feed-forward layer, norms before it) of several that are added at once: one as wide as all of them."""
    sources = [input_of(p, start, p.between([start], term)) for term in terms]
    norms = [_norms(p, _chain_to(p, start, source), n, d_model) for source in sources]
    bare, parts = joined.bare(norms, terms), []
    for source, term, own in zip(sources, terms, norms):
        mlp, norm = read_mlp(p, source, term, n, d_model)
        if norm is not None or mlp.down is None or not mlp.is_plain:
            raise Unnamed("several feed-forward layers are added at once, and their outputs are normed, activated or not mapped", [term])
        parts.append(Mlp(*(m if m is None else joined.folded(m, own) for m in (mlp.up, mlp.gate)), mlp.down, mlp.activation))
    return Mlp(*joined.mlps(parts, terms)), bare


def _read_cross(p, reading, start, terms, crosses, n, d_model):
    """Reads the attention of a layer to the encoder."""
    if len(crosses) < len(terms) or any(is_attention(p, p.between([start], t)) for t in crosses):
        raise Unnamed("attention to the encoder is added together with another branch", crosses)
    layer = reading.layers[-1] if reading.layers else None
    if layer is None or layer.cross is not None or layer.mlp is not None:
        raise Unnamed("attention to the encoder stands elsewhere than between a layer's attention and its feed-forward layer", crosses)
    layer.cross, source = read_attention(p, start, crosses, n, d_model, crossings)
    _put(layer, "cross_pre", _norms(p, _chain_to(p, start, source), n, d_model), source)
    if layer.cross.norm_out is not None:
        layer.norms["cross_out"] = layer.cross.norm_out
    return "cross"


def _chain_to(p, start, source):
    return p.bottlenecks([start], source) if source is not start else [start]


def _put(layer, place, norms, node):
    if len(norms) > 1:
        raise Unnamed(f"{len(norms)} norms follow each other before a branch", [node])
    if norms:
        layer.norms[place] = norms[0]


_POST = {"attn": "attn_post", "cross": "cross_post"}


def _put_after(reading, last, norms, node):
    if not norms:
        return
    if last is None or len(norms) > 1:
        raise Unnamed(f"{len(norms)} norms stand between two branches", [node])
    reading.layers[-1].norms[_POST.get(last, "mlp_post")] = norms[0]


def _put_tail(reading, last, norms):
    place = _POST.get(last, "mlp_post")
    others = [layer for layer in reading.layers[:-1] if (layer.mlp if place == "mlp_post" else layer.attention) is not None]
    is_post = all(place in layer.norms for layer in others) if others else \
        last == "mlp" and "attn_post" in reading.layers[-1].norms
    if len(norms) > (2 if is_post else 1):
        raise Unnamed(f"{len(norms)} norms stand before the head")
    norms = list(norms)
    if is_post and norms:
        reading.layers[-1].norms[place] = norms.pop(0)
    reading.final_norm = norms[0] if norms else None


def read_mlp(p, source, out, n, d_model, block=None):
    """(Mlp, norm on its output) of a branch without attention; `block` picks one of several that run side by side."""
    block = block or whole
    nodes = _but_gathered(p, p.between([source], out), out)
    maps = [m for m in nodes if p.op(m) in PRODUCTS]
    if not maps:
        raise Unnamed("a branch with neither attention nor maps", [x for x in nodes if p.op(x) not in VIEWS][1:5])
    inside = p.above(maps)
    first = [m for m in maps if not inside[m]]
    later = [m for m in maps if inside[m]]
    if len(later) > 1 or len(first) > 2:
        named = [x for x in nodes if p.op(x) in ("topk", "sort", "index_put", "index_add", "scatter", "nonzero")]
        raise Unnamed(f"a feed-forward layer of {len(maps)} maps, expected up and down, or gate, up and down", named or maps[2:5])
    hidden = next((i for i in later[0].inputs if i in set(nodes)), None) if later else None
    ups = [_with_bias(p, _part_of(p, _with_bias(p, m, set(nodes), hidden or out), hidden or out), set(nodes), hidden or out)
           for m in first]
    norm = None
    if hidden is None:  # no second map
        hidden = out
    read_ups, places = [], []
    for node in ups:
        places.append(block(elements(p, source, node, n)))
        found = None if places[-1] is None else fitting.affine(function(p, source, node, places[-1]), n, d_model)
        if found is None:
            raise Unnamed("the first map of a feed-forward layer is not affine in its input", [node])
        read_ups.append(found)
    found = _activated(p, source, ups, hidden, (read_ups, places), n, block)
    inner_norm = None
    if found is None and block is whole and later:  # a norm may stand between the activation and the second map
        inner, inner_norm = _normed_hidden(p, ups, hidden, n)
        found = None if inner is None else _activated(p, source, ups, inner, (read_ups, places), n, block)
    if found is None:
        between = [x for x in p.between(ups, hidden) if p.op(x) not in VIEWS and x not in ups]
        known = len(ups) == 1 and read_ups[0][0].shape[0] * n == hidden.value.numel()
        raise Unnamed("an activation that attnscope does not know" if known else
                      "what stands between the maps of a feed-forward layer is neither an activation nor a gate", between)
    mlp, hidden_at = found
    mlp.hidden_norm = inner_norm
    if inner_norm is not None:
        hidden_at = Elements(torch.arange(hidden.value.numel()).reshape(n, -1))
    if later:
        mlp.down, norm, mlp.after = _read_down(p, hidden, hidden_at, out, n, d_model) if block is whole else \
            (_read_down_of(p, source, hidden, hidden_at, out, n, block), None, None)
    return mlp, norm


def _normed_hidden(p, ups, hidden, n):
    """(node, norm) where the hidden values are the norm of a node behind the first maps; (None, None) where they are none."""
    width = hidden.value.numel() // n
    for node in p.bottlenecks(ups, hidden):
        if node is hidden or not isinstance(node.value, torch.Tensor) or node.value.numel() != hidden.value.numel() \
                or node.value.shape[-1] != width:
            continue
        norm = fitting.norm(function(p, node, hidden), n, width, node.value.reshape(n, -1))
        if norm is not None:
            return node, norm
    return None, None


def _activated(p, source, ups, hidden, first, n, block):
    """(Mlp without its second map, the elements of its hidden values) where these are activated or gated; None where they are not."""
    read_ups, places = first
    hidden_at = _in_rows(p, ups[0], hidden, places[0], n)
    if hidden_at is None and block is not whole:
        hidden_at = block(_behind(p, source, ups, hidden, n))
    hidden_at = hidden_at or Elements(torch.arange(hidden.value.numel()).reshape(n, -1)) if block is whole else hidden_at
    if hidden_at is None:
        raise Unnamed("what an expert's second map reads is of no single position", [hidden])
    width = hidden_at.at.shape[1]
    widths = [found[0].shape[0] for found in read_ups]
    grid = 2.5 * fitting.random(n, max(widths), seed=40)

    def of(values):
        rows = {node: at.filled(node, v) for node, v, at in zip(ups, values, places)}
        return hidden_at.rows(p.run(rows, [hidden])[0])

    if len(ups) == 1 and widths[0] == width:
        name = fitting.activation(grid, of([grid]))
        return None if name is None else (Mlp(read_ups[0], None, None, name), hidden_at)
    if len(ups) == 1 and widths[0] == 2 * width:
        weight, bias = read_ups[0]
        for picks in ((slice(0, width), slice(width, None)), (slice(0, None, 2), slice(1, None, 2))):
            halves = [(weight[pick], bias[pick]) for pick in picks]
            for order in ((0, 1), (1, 0)):
                def gated(gate, up, order=order, picks=picks):
                    both = torch.empty(n, 2 * width, dtype=torch.float64)
                    both[:, picks[order[0]]], both[:, picks[order[1]]] = gate, up
                    return of([both])

                name = _gated(gated, n, width)
                if name is not None:
                    return Mlp(halves[order[1]], halves[order[0]], None, name), hidden_at
    if len(ups) == 2 and widths == [width, width]:
        for order in ((0, 1), (1, 0)):
            name = _gated(lambda gate, up, order=order: of([gate, up] if order == (0, 1) else [up, gate]), n, width)
            if name is not None:
                return Mlp(read_ups[order[1]], read_ups[order[0]], None, name), hidden_at
    return None


def _gated(f, n, width):
    gate, up = 2.5 * fitting.random(n, width, seed=41), fitting.random(n, width, seed=42)
    name = fitting.activation(gate, f(gate, torch.ones_like(up)))
    if name is None:
        return None
    full = f(gate, up)
    return name if fitting.close(full, f(gate, torch.ones_like(up)) * up, 1e-9) else None


def _with_bias(p, node, inside, end):
    """The node after the bias of a map."""
    while node is not end:
        users = [u for u in node.users if u in inside]
        if len(users) != 1 or users[0] is end and p.op(users[0]) not in ("add",):
            return node
        user = users[0]
        op = p.op(user)
        others = [i for i in user.inputs if i is not node]
        is_bias = op == "add" and others and all(i not in p.active or i in p.gathered for i in others)
        if not (is_bias or op in VIEWS and op not in ("split", "chunk", "getitem", "slice", "select", "unbind", "cat", "index",
                                                      "split_with_sizes")):
            return node
        if user.value.numel() != node.value.numel():
            return node
        node = user
    return node


def _part_of(p, node, end):
    """The part of a map's outputs that leads to `end`, where other branches read the rest of them."""
    part = node
    for after in p.bottlenecks([node], end)[1:]:
        if after is end or p.op(after) not in VIEWS:
            break
        if isinstance(after.value, torch.Tensor) and after.value.numel() < part.value.numel():
            part = after
    return part


def _in_rows(p, up, hidden, at, n):
    """The elements of the hidden values by position, in the order of the units that they come from; None where these cannot be
    followed one by one."""
    came = followed(p, up, hidden)
    if came is not None and came.numel() == up.value.numel() and bool((came >= 0).all()):
        order = torch.empty(came.numel(), dtype=torch.int64)
        order[came.reshape(-1)] = torch.arange(came.numel())
        return Elements(order[at.at])
    return None


def _read_down(p, hidden, hidden_at, out, n, d_model):
    width = hidden.value.numel() // n

    def to(node):
        return lambda rows: p.run({hidden: hidden_at.filled(hidden, rows)}, [node])[0].reshape(n, -1)

    whole = fitting.affine(to(out), n, width)
    if whole is not None:
        return whole, None, None
    grid = 2.5 * fitting.random(n, d_model, seed=44)
    for node in reversed(p.bottlenecks([hidden], out)):
        if not isinstance(node.value, torch.Tensor) or node.value.numel() != n * d_model:
            continue
        found = fitting.affine(to(node), n, width)
        if found is not None:
            norm = fitting.norm(function(p, node, out), n, d_model, node.value.reshape(n, -1))
            if norm is not None:
                return found, norm, None
            name = fitting.activation(grid, function(p, node, out)(grid))
            if name is not None:
                return found, None, name
    raise Unnamed("what follows the second map of a feed-forward layer is neither a norm nor an activation",
                  [x for x in p.between([hidden], out) if p.op(x) not in VIEWS][1:4])


def _but_gathered(p, nodes, out):
    """Nodes that lead to `out` otherwise than by choosing rows of parameters."""
    inside, found, stack = set(nodes), set(), [out]
    while stack:
        node = stack.pop()
        if node not in found and node in inside and node not in p.gathered:
            found.add(node)
            stack += node.inputs
    return [node for node in nodes if node in found]


def _behind(p, source, ups, hidden, n):
    """The elements of the hidden values by position, where all of the first maps' outputs are above 0."""
    places = {up: elements(p, source, up, n) for up in ups}
    base = {up: at.filled(up, 0.5 + fitting.random(n, at.at.shape[1], seed=43).abs()) for up, at in places.items()}
    plain = p.run(base, [hidden])[0]

    def changed(rows):
        moved = {up: value.clone() for up, value in base.items()}
        for up, value in moved.items():
            flat = value.reshape(-1)
            flat[places[up].at[rows].reshape(-1)] *= 2
            moved[up] = like(up, flat)
        return (p.run(moved, [hidden])[0] != plain).reshape(-1)

    order, at = torch.arange(n), torch.zeros(hidden.value.numel(), dtype=torch.int64)
    for bit in range(max(1, (n - 1).bit_length())):
        at += changed((order >> bit) & 1 == 1).long() << bit
    is_even = bool(changed(order >= 0).all()) and len(set(torch.bincount(at, minlength=n).tolist())) == 1
    return Elements(torch.argsort(at, stable=True).reshape(n, -1)) if is_even else None


def whole(at):
    """All values of each position, where one branch alone makes them."""
    return at


def _read_down_of(p, source, hidden, hidden_at, out, n, block):
    """The second map of one of several feed-forward layers that run side by side."""
    out_at = block(elements(p, source, out, n))
    found = None if out_at is None else fitting.affine(
        lambda rows: out_at.rows(p.run({hidden: hidden_at.filled(hidden, rows)}, [out])[0]), n, hidden_at.at.shape[1])
    if found is None:
        raise Unnamed("the second map of an expert is not affine", [out])
    return found


def _check(reading):
    """Branches that do not have the same parts in each layer have no common description."""
    attending = [(idx, layer) for idx, layer in enumerate(reading.layers) if layer.attention is not None]
    feeding = [(idx, layer) for idx, layer in enumerate(reading.layers) if layer.mlp is not None]
    if not attending:
        raise Unnamed("no layer with attention was found")
    is_uneven = len(attending) < len(reading.layers) or 0 < len(feeding) < len(reading.layers)
    if is_uneven and (reading.is_parallel or any(layer.cross is not None for _, layer in attending)):
        raise Unnamed("some layers have no attention or no feed-forward layer, in a model of parallel branches or of two texts")
    first = attending[0][1]
    for idx, layer in attending:
        if (layer.cross is None) != (first.cross is None):
            which = idx if layer.cross is None else attending[0][0]
            raise Unnamed(f"layer {which} of the decoder does not attend to the encoder, and others do", [layer.attention.node])
        if layer.attention.q.weight.shape != first.attention.q.weight.shape:
            raise Unnamed(f"layer {idx} has heads of another number or width than layer {attending[0][0]}", [layer.attention.node])
    for of_mlp, layers in ((False, attending), (True, feeding)):
        for idx, layer in layers:
            own, others = ({place for place in one.norms if place.startswith("mlp") == of_mlp} for one in (layer, layers[0][1]))
            if own != others:
                raise Unnamed(f"layer {idx} has norms at {sorted(own)}, layer {layers[0][0]} at {sorted(others)}",
                              [(layer.attention or first.attention).node])
    for idx, layer in feeding:
        alike = next(other.mlp for _, other in feeding if isinstance(other.mlp, Experts) == isinstance(layer.mlp, Experts))
        if layer.mlp.activation != feeding[0][1].mlp.activation or _kind(layer.mlp) != _kind(alike):
            raise Unnamed(f"the feed-forward layer of layer {idx} differs from that of layers before",
                          [(layer.attention or first.attention).node])


def _kind(mlp):
    """What feed-forward layers of one description have in common."""
    return mlp.key() if isinstance(mlp, Experts) else (mlp.gate is None, mlp.up[0].shape, mlp.hidden_norm is None, mlp.after)
