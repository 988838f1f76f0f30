"""What the activations and inputs of a model are read as: linear attention, steps of a decoder, positions before the batch, rows beside others."""

import contextlib
import os
import tempfile
import unittest
import warnings

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from places import needs_program
from safetensors import safe_open
from test_added import findings
from test_sources import Request
from torch import nn

from attnscope import capture
from attnscope._live.faults import Unusable
from attnscope._live.inputs import Inputs
from attnscope._live.pytorch import Subject

D, N, N_HEADS = 32, 16, 4


def heads(x):
    return x.unflatten(-1, (N_HEADS, -1)).transpose(1, 2)


class LinearAttention(nn.Module):
    """Keys and values are multiplied first, behind a softmax or a feature of queries and of keys."""

    def __init__(self, way):
        super().__init__()
        self.way, self.qkv, self.out = way, nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.norm = nn.LayerNorm(D // N_HEADS)

    def forward(self, x):
        q, k, v = map(heads, self.qkv(x).chunk(3, -1))
        if self.way == "normed":  # nothing of a layer with weights is known of them any more
            q, k = self.norm(q), self.norm(k)
        q, k = (q.relu() + 0.1, k.relu() + 0.1) if self.way == "features" else (q.softmax(-1), k.softmax(-2))
        out = q @ (k.transpose(-1, -2) @ v)
        return self.out(out.transpose(1, 2).flatten(2))


class Picture(nn.Module):
    """Linear attention and attention over the places of a picture, with convolutions around them."""

    class Layer(nn.Module):
        def __init__(self, is_linear):
            super().__init__()
            self.is_linear, self.to_qkv, self.out = is_linear, nn.Conv2d(D, 3 * D, 1), nn.Conv2d(D, D, 1)

        def forward(self, x):
            q, k, v = (part.unflatten(1, (N_HEADS, -1)).flatten(3) for part in self.to_qkv(x).chunk(3, 1))  # [batch, head, width, place]
            if self.is_linear:
                context = torch.einsum("bhdn,bhen->bhde", k.softmax(-1), v)
                out = torch.einsum("bhde,bhdn->bhen", context, q.softmax(-2))
            else:
                scores = torch.einsum("bhdi,bhdj->bhij", q, k) / q.shape[-2] ** 0.5
                out = torch.einsum("bhij,bhdj->bhdi", scores.softmax(-1), v)
            out = out.reshape(*out.shape[:3], *x.shape[-2:]).flatten(1, 2)
            return x + self.out(out)

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.linear, self.between, self.also_linear, self.attention = (
            nn.Conv2d(3, D, 3, padding=1), self.Layer(True), nn.Conv2d(D, D, 3, padding=1), self.Layer(True), self.Layer(False))

    def forward(self, x, step):
        x = self.first(x) + step[:, None, None, None]
        return self.attention(self.also_linear(self.between(self.linear(x))))


class Stack(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.positions, self.layers = nn.Embedding(20, D), nn.Embedding(N, D), nn.ModuleList(layers)
        for p in self.parameters():
            nn.init.normal_(p, 0, 0.3)

    def forward(self, ids):
        x = self.embed(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = x + layer(x)
        return x


class Mixed(nn.Module):
    """A norm over a map of weights behind the softmax."""

    def __init__(self):
        super().__init__()
        self.qkv, self.norm = nn.Linear(D, 3 * D), nn.InstanceNorm2d(N_HEADS)

    def forward(self, x):
        q, k, v = map(heads, self.qkv(x).chunk(3, -1))
        return (self.norm((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)) @ v).transpose(1, 2).flatten(2)


class Pointer(nn.Module):
    """A decoder that chooses one key after the other, in order, and hides what it has chosen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.cell = nn.Linear(D, D), nn.Linear(D, D), nn.GRUCell(D, D)

    def forward(self, x):
        state, hidden, chosen = x.mean(1), torch.zeros(x.shape[:2], dtype=torch.bool), []
        for step in range(x.shape[1]):
            scores = (self.key(x) @ self.query(state)[..., None]).squeeze(-1) / D ** 0.5
            p = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            chosen.append(p)
            state = self.cell((p[:, None] @ x).squeeze(1), state)
            hidden = hidden | (torch.arange(x.shape[1]) == step)
        return torch.stack(chosen, 1)


class PositionFirst(nn.Module):
    """Takes ids as [position, batch], which its table of positions says; attends along the second axis where told to."""

    def __init__(self, table="embedding", is_right=True, batch_first=False):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.is_right = table, is_right
        self.embed, self.positions = nn.Embedding(20, D), nn.Embedding(64, D)
        self.register_buffer("rows", torch.randn(64, 1, D))
        layer = nn.TransformerEncoderLayer(D, N_HEADS, D, dropout=0.0, batch_first=batch_first)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.unrolled = nn.GRU(D, D)

    def forward(self, ids):
        x = self.embed(ids)
        n = ids.shape[0 if self.is_right else 1]
        if self.table == "embedding":
            rows = self.positions(torch.arange(n))
            x = x + (rows[:, None] if self.is_right else rows[None])
        elif self.table == "buffer":
            x = x + (self.rows[:n] if self.is_right else self.rows[:n].transpose(0, 1))
        elif self.table == "recurrent":
            x = self.unrolled(x)[0]
        return self.body(x)


class Series(nn.Module):
    """Reads vectors [batch, position, feature], as what is `told` says of them; attends along the first axis unless `batch_first`."""

    def __init__(self, told, batch_first=False):
        super().__init__()
        torch.manual_seed(0)
        self.told, self.into, self.rows = told, nn.Linear(5, D), nn.Embedding(64, D)
        self.at, self.agents, self.times = (nn.Parameter(torch.randn(*shape, D)) for shape in ((1, 64), (1, 9), (64, 1)))
        layer = nn.TransformerEncoderLayer(D, N_HEADS, D, dropout=0.0, batch_first=batch_first)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        x, (a, b, _) = self.into(x), x.shape
        tables = {"positions": lambda: self.at[:, :b], "agents": lambda: self.agents, "times": lambda: self.times[:a],
                  "row numbers": lambda: self.rows(torch.arange(b).expand(a, -1))}
        for name, rows in tables.items():
            x = x + rows() if name in self.told else x
        x = self.body(x)
        chosen = {"last": lambda: x[:, -1, :], "mean": lambda: x.mean(dim=1), "last of rows": lambda: x[-1], "mean of rows": lambda: x.mean(0, True),
                  "each": lambda: torch.stack([x[:, idx] for idx in range(b)]), "odd": lambda: (
                      x[None], x[..., -1], x[torch.ones(a, b, dtype=torch.bool), -1], x[:, -1, [0, 1]], torch.select(x, index=3, dim=2), x.mean())[0]}
        for name, choose in chosen.items():
            if name in self.told:
                return choose()
        return x


class Spoken(nn.Module):
    """Adds what language each token is of, which all tokens of a row share, and no positions."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.kinds, self.body = nn.Embedding(20, D), nn.Embedding(20, D), Joined()

    def forward(self, ids, lang_type=None):
        x = self.embed(ids)
        return self.body(x if lang_type is None else x + self.kinds(lang_type))


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)

    def forward(self, x):
        q, k, v = map(heads, self.qkv(x).chunk(3, -1))
        return x + ((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)


class Pooled(nn.Module):
    """A classifier whose one query reads all tokens, from which it may take the mean of the batch before."""

    def __init__(self, mixes_rows):
        super().__init__()
        torch.manual_seed(0)
        self.mixes_rows, self.embed, self.positions = mixes_rows, nn.Embedding(20, D), nn.Embedding(64, D)
        self.query, self.kv, self.out = nn.Parameter(torch.randn(1, 1, D)), nn.Linear(D, 2 * D), nn.Linear(D, 2)

    def forward(self, ids):
        x = self.embed(ids) + self.positions(torch.arange(ids.shape[1]))
        x = x - x.mean(0) / 2 if self.mixes_rows else x
        k, v = self.kv(x).chunk(2, -1)
        return self.out(((self.query @ k.transpose(1, 2) / D ** 0.5).softmax(-1) @ v)[:, 0])


class Crossed(nn.Module):
    """A causal decoder beside a source, given without names; all layers read the source."""

    class Layer(nn.Module):
        def __init__(self, hides):
            super().__init__()
            self.hides = hides
            self.own, self.kv, self.q, self.out, self.last = nn.Linear(D, 3 * D), nn.Linear(D, 2 * D), nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)

        def forward(self, x, y, mask):
            q, k, v = map(heads, self.own(y).chunk(3, -1))
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            y = y + self.out(((scores + mask if self.hides else scores).softmax(-1) @ v).transpose(1, 2).flatten(2))
            k, v = map(heads, self.kv(x).chunk(2, -1))
            q = heads(self.q(y))
            return y + self.last(((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))

    def __init__(self, hides=True):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(self.Layer(hides) for _ in range(2))

    def forward(self, *given):
        mask, x, y = given
        for layer in self.layers:
            y = layer(x, y, mask)
        return y


class Interleaved(nn.Module):
    """Rows and ids that stand side by side: one position for each of both."""

    def __init__(self, n_out):
        super().__init__()
        torch.manual_seed(0)
        self.rows, self.ids, self.head = nn.Linear(3, D), nn.Embedding(20, D), nn.Linear(D, n_out)
        self.qkv, self.positions = nn.Linear(D, 3 * D), nn.Embedding(2 * N, D)

    def forward(self, states, actions):
        n = states.shape[1]
        x = torch.zeros(len(states), 2 * n, D)
        x[:, ::2], x[:, 1::2] = self.rows(states), self.ids(actions[:, -n:])
        x = x + self.positions(torch.arange(2 * n))
        q, k, v = map(heads, self.qkv(x).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2)).masked_fill(torch.ones(2 * n, 2 * n, dtype=torch.bool).triu(1), -torch.inf)
        return self.head((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))[:, 1::2]


class Frames(nn.Module):
    """Attention over the frames of a video, which see a class token beside them, with keys that are trained or zero."""

    class Layer(nn.Module):
        def __init__(self, is_dead):
            super().__init__()
            self.qkv, self.norm = nn.Linear(D, 3 * D, bias=False), nn.LayerNorm(D)
            if is_dead:
                nn.init.zeros_(self.qkv.weight[D:2 * D])

        def forward(self, x):
            q, k, v = map(heads, self.qkv(self.norm(x)).chunk(3, -1))
            return x + ((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)

    def __init__(self, is_dead=False):
        super().__init__()
        torch.manual_seed(0)
        with torch.no_grad():
            self.layers = nn.ModuleList(self.Layer(is_dead) for _ in range(3))
            for layer in self.layers:
                layer.norm.weight.normal_(1, 0.1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Padded(nn.Module):
    """An encoder and a decoder whose texts end before their rows do, with masks that leave rows of padding nothing to see."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv, self.out = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)

        def forward(self, x, y, hidden):
            q, (k, v) = heads(self.q(y)), map(heads, self.kv(x).chunk(2, -1))
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + torch.where(hidden, -1e9, 0.0)
            return y + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def __init__(self, n_source, n_target, hides=True):
        super().__init__()
        torch.manual_seed(0)
        self.n_source, self.n_target, self.hides = n_source, n_target, hides
        self.encoder = nn.ModuleList(nn.ModuleDict({"attention": self.Attention()}) for _ in range(2))
        parts = ("self_attention", "encoder_decoder_attention")
        self.decoder = nn.ModuleList(nn.ModuleDict({part: self.Attention() for part in parts}) for _ in range(2))

    def forward(self, source, target):
        of_source, of_target = (torch.arange(N) >= n for n in (self.n_source, self.n_target))
        later = torch.ones(N, N, dtype=torch.bool).triu(1) if self.hides else torch.zeros(N, N, dtype=torch.bool)
        for layer in self.encoder:
            source = layer["attention"](source, source, of_source[:, None] | of_source)
        for layer in self.decoder:
            target = layer["self_attention"](target, target, of_target[:, None] | of_target | later)
            target = layer["encoder_decoder_attention"](source, target, of_target[:, None] | of_source)
        return target


class Case(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.path = os.path.join(self.place.name, "trace.safetensors")

    def recorded(self, model, *args):
        with capture(model.eval(), self.path, values=True), torch.no_grad():
            model(*args)
        with safe_open(self.path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()

    def ids(self, *shape):
        return torch.randint(1, 20, shape, generator=torch.Generator().manual_seed(2))

    def live(self, model, inputs, **asked):
        """The path of what a live subject gives."""
        subject = Subject(model.eval(), None, inputs)
        _, path = subject.run(Request(**asked))
        self.addCleanup(lambda: os.path.exists(path) and os.remove(path))
        return path

    def both(self, model, inputs, mask="bidirectional"):
        """The paths of a trace and of a probe of one subject."""
        subject, paths = Subject(model.eval(), None, inputs), []
        for asked in ({}, {"probes": True, "mask": mask}):
            paths.append(subject.run(Request(**asked))[1])
            self.addCleanup(os.remove, paths[-1])
        return paths


class Read(Case):
    def test_a_softmax_of_keys_that_weigh_values_before_queries_is_no_attention(self):
        arrays, metadata = self.recorded(Picture(), torch.randn(1, 3, 4, 8), torch.tensor([3.0]))
        self.assertEqual([name for name in arrays if name.endswith("pattern")], ["attention#0.pattern"])
        self.assertEqual(metadata["attnscope.linear"], '["linear", "also_linear"]')
        self.assertEqual(arrays["attention#0.pattern"].shape, (N_HEADS, 32, 32))

    def test_linear_attention_is_told_once_whatever_its_features_are(self):
        for way in ("softmax", "features", "normed"):
            # as wide a head as there are positions: shapes tell nothing
            model, ids = Stack(*(LinearAttention(way) for _ in range(5))), self.ids(1, D // N_HEADS)
            with self.assertWarns(UserWarning) as told, capture(model.eval(), self.path, values=True), torch.no_grad():
                model(ids)
            (said,) = [str(one.message) for one in told.warnings if "attnscope" in str(one.message)]
            self.assertEqual(said.count("linear attention"), 1, (way, said))
            self.assertIn("layers.3 and 1 more", said, way)
            with safe_open(self.path, "pt") as file:
                self.assertFalse([name for name in file.keys() if name.endswith("pattern")], way)

    def test_a_softmax_over_scores_is_kept_beside_linear_attention(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays, _ = self.recorded(Stack(LinearAttention("softmax"), Mixed()), self.ids(1, 9))
        self.assertEqual([arrays[name].shape for name in arrays if name.endswith("pattern")], [(N_HEADS, 9, 9)])

    def test_positions_that_a_model_adds_say_which_axis_they_are(self):
        for table in ("embedding", "buffer", "recurrent"):
            ids = self.ids(12, 3)
            arrays, metadata = self.recorded(PositionFirst(table), ids)
            self.assertEqual(arrays["tokens"].tolist(), ids[:, 0].tolist(), table)
            self.assertEqual(metadata["attnscope.tokens_shape"], "3,12", table)
        _, metadata = self.recorded(PositionFirst("none"), ids)
        self.assertEqual(metadata["attnscope.tokens_shape"], "12,3")

    def test_positions_along_one_axis_and_attention_along_the_other_turn_nothing(self):
        for table in ("embedding", "buffer", "recurrent"):
            for n in (3, 12):  # as many rows as positions: sizes do not say along which axis attention runs
                model, ids = PositionFirst(table, batch_first=True), self.ids(n, 12)
                subject = Subject(model.eval(), None, ids)
                os.remove(subject.run(Request())[1])
                self.assertEqual(subject.inputs.batch_axis, 0, (table, n))
            ids = self.ids(3, 12)
            arrays, metadata = self.recorded(model, ids)
            self.assertEqual((arrays["tokens"].tolist(), metadata["attnscope.tokens_shape"]), (ids[0].tolist(), "3,12"), table)
            # as many positions as rows
            subject = Subject(PositionFirst(table).eval(), None, self.ids(12, 12))
            os.remove(subject.run(Request())[1])
            self.assertEqual(subject.inputs.batch_axis, 1, table)

    def test_one_row_is_never_taken_for_one_position(self):
        _, metadata = self.recorded(PositionFirst("recurrent"), self.ids(1, 12))
        self.assertEqual(metadata["attnscope.tokens_shape"], "1,12")

    def test_rows_of_one_token_each_are_rows(self):
        for batch_first in (True, False):
            subject = Subject(PositionFirst("none", batch_first=batch_first).eval(), None, self.ids(12, 1))
            os.remove(subject.run(Request())[1])
            self.assertEqual(subject.inputs.batch_axis, int(not batch_first))

    def test_numbers_of_rows_are_no_positions(self):
        for n in (2, 3, 12):
            numbers = torch.arange(n)[:, None].expand(n, 12)
            for given in ({"ids": self.ids(n, 12), "lang_type": numbers}, {"ids": numbers + 1}):
                _, metadata = self.recorded(Spoken(), *given.values())
                self.assertEqual(metadata["attnscope.tokens_shape"], f"{n},12")
                self.live(Spoken(), given, probes=True, mask="bidirectional")
        # positions first, and a language for each of two rows
        _, metadata = self.recorded(PositionFirst(), torch.arange(1, 3).expand(12, 2))
        self.assertEqual(metadata["attnscope.tokens_shape"], "2,12")

    def test_vectors_whose_batch_is_attended_along(self):
        vectors = torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(1))
        wrong = (("positions", "last"), ("positions", "mean"), ("row numbers", "last"))
        open_ones = (("positions",), ("last",), ("mean",), ("agents", "mean"), ("each",), ("odd",), ())
        told_first = (("last of rows",), ("mean of rows",), ("times", "mean"), ("times", "agents"))
        cases = [(told, False) for told in (*wrong, *open_ones, *told_first)] + [(told, True) for told in (*wrong, ("last",))]
        for told, batch_first in cases:
            is_wrong = told in wrong and not batch_first
            with self.subTest(told=told, batch_first=batch_first), tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
                warnings.simplefilter("error")  # what could not be recorded is warned of
                path = os.path.join(place, "trace.safetensors")
                model = Series(told, batch_first).eval()
                with torch.no_grad(), capture(model, path):
                    model(vectors)
                self.assertEqual("wrong-axis" in findings(path), is_wrong)
                with safe_open(path, "pt") as file:  # what cannot be told is said
                    is_open = told in open_ones and not batch_first
                    self.assertEqual(file.metadata().get("attnscope.first_axis"), "4,9" if is_open else None)
                subject = Subject(model, None, (vectors,))
                os.remove(subject.run(Request())[1])
                self.assertEqual(subject.given_axis, 1 if is_wrong or batch_first else 0)

    def test_sizes_that_are_equal_by_chance_are_no_batch(self):
        class Inverted(nn.Module):
            """Attends to variates, each a series that is normed by its mean."""

            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.into = nn.Linear(16, D)
                self.body = nn.TransformerEncoderLayer(D, N_HEADS, D, dropout=0.0, batch_first=True)

            def forward(self, x):  # [batch, position, variate]
                return self.body(self.into((x - x.mean(1, keepdim=True)).transpose(1, 2)))

        _, metadata = self.recorded(Inverted(), torch.randn(7, 16, 7))
        self.assertFalse({"attnscope.first_axis", "attnscope.tokens_shape"} & set(metadata))

    def test_one_integer_for_each_row_is_no_text(self):
        rows, ids = torch.randn(2, 5, D), self.ids(2, 7)

        def places(**given):
            model = nn.Module()
            model.forward = lambda **_: None
            return Inputs(model, given).places

        self.assertEqual(places(x=rows, t=torch.tensor([3, 4])), [])
        self.assertEqual(places(x=rows[:1], t=torch.tensor([3])), [])
        self.assertEqual(places(kind=torch.tensor([1]), ids=ids), ["ids"])
        self.assertEqual(places(x=rows, ids=ids), ["ids"])
        self.assertEqual(places(ids=ids[0]), ["ids"])

    def test_drawn_ids_hold_no_padding(self):
        model = Stack(Mixed())
        model.src_pad_idx = 3
        model.embed.padding_idx = 0
        drawn = Inputs(model, None).drawn(200)
        self.assertEqual(set(drawn), set(range(min(20, N))) - {0, 3})

    def test_what_stands_in_for_no_row_is_a_mask(self):
        mask = torch.full((1, N, N), -torch.inf).triu(1)
        x, y = torch.randn(1, N, D), torch.randn(1, N, D)
        subject = Subject(Crossed().eval(), None, (mask, x, y))
        self.assertEqual(subject.inputs.rows, 1)
        _, path = subject.run(Request())
        os.remove(path)
        self.assertEqual(subject.inputs.rows, 2)  # cross-attention read the other one

    def test_masks_are_told_from_rows_by_values_and_form(self):
        def rows(mask):
            model = nn.Module()
            model.forward = lambda **_: None
            return Inputs(model, {"a": mask, "x": torch.randn(1, 12, D)}).rows

        later, places = torch.ones(12, 12).triu(1), torch.arange(12)
        blocks = (places[:, None] // 4 != places // 4).float()
        random = torch.Generator().manual_seed(0)
        forms = {"later": later, "earlier": later.T, "itself too": torch.ones(12, 12).triu(), "blocks": blocks, "later, blocks": later.maximum(blocks),
                 "far": ((places[:, None] - places).abs() > 2).float(), "padding": (places >= 9).float().expand(12, 12),
                 "later, padding": later.maximum((places >= 9).float().expand(12, 12)), "left": later.maximum((places < 3).float().expand(12, 12)),
                 "of windows": torch.stack([torch.zeros(12, 12), blocks, blocks.roll((2, 2), (0, 1))])}
        for name, hidden in forms.items():
            hidden = hidden if hidden.dim() == 3 else hidden[None]
            for value in (-torch.inf, -1e9, -1000.0, -100.0):
                self.assertEqual(rows(torch.zeros(hidden.shape).masked_fill(hidden == 1, value)), "x", (name, value))
            self.assertEqual(rows(hidden), "x", name)
            self.assertEqual(rows(1 - hidden), "x", name)
        one_hot = torch.eye(12)[torch.randint(12, (1, 12), generator=random)]
        few_kinds = torch.eye(12)[torch.randint(2, (1, 12), generator=random) * 5 + 3]
        binary = torch.randint(2, (1, 12, 12), generator=random).float()
        for data in (one_hot, few_kinds, torch.eye(12)[None], binary, -100 * binary, torch.randn(1, 12, 12, generator=random)):
            self.assertEqual(rows(data), "a")

    def test_a_model_without_attention_is_told_by_what_it_lacks(self):
        class External(nn.Module):
            def __init__(self):
                super().__init__()
                self.keys, self.values = nn.Linear(D, 8, bias=False), nn.Linear(8, D, bias=False)

            def forward(self, x):
                return self.values(self.keys(x).softmax(1))

        for name in ("External", "ExternalAttention"):
            model = type(name, (External,), {})()
            with self.assertRaisesRegex(Unusable, f"no attention was captured in {name}; .*what is looked for is a softmax of a product"):
                self.live(model, torch.randn(2, 12, D))

    def test_too_few_tokens_for_a_probe_are_told(self):
        with self.assertRaisesRegex(Unusable, "need at least 3 tokens, and this run has 2"):
            self.live(Stack(Mixed()), self.ids(1, 2), probes=True)


@needs_program()
class Judged(Case):
    def errors(self, path):
        return {name for name, said in findings(path).items() if any(severity == "error" for severity, _ in said)}

    def test_a_norm_behind_the_softmax_is_no_difference_of_two(self):
        self.recorded(Stack(Mixed()), self.ids(1, 9))
        found = findings(self.path)
        self.assertNotIn("differential", str(found))
        self.assertEqual(self.errors(self.path), set())

    def test_choices_that_are_hidden_step_by_step_are_no_mask_the_wrong_way_round(self):
        arrays, _ = self.recorded(Pointer(), torch.randn(1, N, D))
        (pattern,) = [value for name, value in arrays.items() if name.endswith("pattern")]
        self.assertEqual(int((pattern.tril(-1) != 0).sum()), 0)
        self.assertNotIn("mask-shape", findings(self.path))

    def test_ids_of_position_by_batch_leak_nothing(self):
        for table in ("embedding", "buffer", "recurrent"):
            for inputs in (self.ids(12, 3), None):
                paths = self.both(PositionFirst(table), inputs)
                self.assertEqual([self.errors(path) for path in paths], [set(), set()], (table, inputs is None))
        # positions along the second axis, and attention along the first
        trace, probe = self.both(PositionFirst("embedding", is_right=False), self.ids(3, 12))
        self.assertIn("wrong-axis", self.errors(trace))
        self.assertIn("batch-leak", self.errors(probe))

    def test_positions_that_are_added_along_the_batch_are_told(self):
        for table in ("embedding", "buffer", "recurrent"):
            for inputs in (self.ids(3, 12), None):
                trace, probe = self.both(PositionFirst(table, batch_first=True), inputs)
                self.assertEqual((self.errors(trace), self.errors(probe)), (set(), {"batch-leak", "order-blind"}), (table, inputs is None))

    def test_rows_that_meet_where_no_tokens_do_are_told(self):
        for mixes_rows in (True, False):
            for inputs in (self.ids(3, 12), None):
                _, probe = self.both(Pooled(mixes_rows), inputs)
                self.assertEqual(self.errors(probe), {"batch-leak"} if mixes_rows else set())

    def test_a_source_without_a_name_is_not_what_a_probe_changes(self):
        mask = torch.full((N, N), -torch.inf).triu(1)
        given = mask, torch.randn(1, N, D), torch.randn(1, N, D)
        _, probe = self.both(Crossed(), given, "causal")
        self.assertEqual(self.errors(probe), set())
        _, probe = self.both(Crossed(hides=False), given, "causal")
        self.assertIn("future-leak", self.errors(probe))

    def test_what_stands_beside_each_row_is_shortened_with_it(self):
        for n_out in (5, N):  # as many outputs as positions
            _, probe = self.both(Interleaved(n_out), {"states": torch.randn(1, N, 3), "actions": self.ids(1, N)}, "causal")
            self.assertEqual(self.errors(probe), set(), n_out)
            _, probe = self.both(Interleaved(n_out), {"states": torch.randn(2, N, 3), "actions": self.ids(2, N)}, "causal")
            self.assertEqual(self.errors(probe), set(), n_out)

    def test_padding_of_a_decoder_is_its_own(self):
        for n_source, n_target in ((12, 9), (9, 12), (N, 9)):
            arrays, _ = self.recorded(Padded(n_source, n_target), torch.randn(1, N, D), torch.randn(1, N, D))
            self.assertIn("decoder.blocks.1.cross_attn.pattern", arrays)
            self.assertEqual(self.errors(self.path), set(), (n_source, n_target))

    def test_even_attention_to_frames_that_are_alike_is_no_finding(self):
        still = torch.randn(1, 1, D).expand(1, N, D)
        self.recorded(Frames(), torch.cat([torch.randn(1, 1, D), still], 1))
        self.assertNotIn("entropy-uniform", findings(self.path))
        self.recorded(Frames(is_dead=True), torch.randn(1, N, D))
        self.assertIn("entropy-uniform", findings(self.path))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        unittest.main()
