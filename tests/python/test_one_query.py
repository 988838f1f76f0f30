"""capture: attention of one query, steps of a decoder, windows, and which attention looks at another sequence."""

import json
import os
import struct
import tempfile
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from torch import nn
from torch.nn import functional as F

from attnscope import capture

N_KEYS, D_MODEL = 9, 16


def recorded(model, *args, **options):
    """{name: shape}, metadata and {name: tensor} of a capture of one call."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.safetensors")
        with torch.no_grad(), capture(model.eval(), path, **options):
            model(*args)
        with open(path, "rb") as file:
            data = file.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if entry["dtype"] == "F32":
            tensors[name] = torch.frombuffer(bytearray(data[8 + n + begin:8 + n + end]), dtype=torch.float32).reshape(entry["shape"])
    return tensors, metadata


class Pooled(nn.Module):
    """A softmax over positions, in one of the ways in which people weigh a sequence with it."""

    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.way, self.score, self.out = way, nn.Linear(D_MODEL, 1), nn.Linear(D_MODEL, 3)

    def forward(self, x):
        if self.way == "column":
            weights = torch.softmax(self.score(torch.tanh(x)), dim=1)
            return self.out((weights * x).sum(1))
        weights = F.softmax(self.score(torch.tanh(x)).squeeze(-1), dim=-1)
        if self.way == "bmm":
            return self.out(torch.bmm(weights.unsqueeze(1), x).squeeze(1))
        if self.way == "einsum":
            return self.out(torch.einsum("bt,btd->bd", weights, x))
        return self.out((weights[:, None, :] @ x).squeeze(1))

    def pattern(self, x):
        return torch.softmax(self.score(torch.tanh(x)).squeeze(-1), -1)


class Graph(nn.Module):
    """Additive attention over the nodes of a graph without a batch, or of several hops over a sequence."""

    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.way, self.one, self.other, self.hops = way, nn.Linear(D_MODEL, 1), nn.Linear(D_MODEL, 1), nn.Linear(D_MODEL, 5)

    def pattern(self, x):
        if self.way == "hops":
            return torch.softmax(self.hops(x).transpose(1, 2), 2)
        return torch.softmax(F.leaky_relu(self.one(x) + self.other(x).T), 0 if self.way == "wrong" else 1)

    def forward(self, x):
        return self.pattern(x) @ x


class Steps(nn.Module):
    """A decoder that attends to the same keys once a step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.GRUCell(D_MODEL, D_MODEL)

    def forward(self, keys):
        state, patterns = torch.zeros(keys.shape[0], D_MODEL), []
        for _ in range(5):
            weights = F.softmax((keys @ state[:, :, None]).squeeze(-1), dim=-1)
            patterns.append(weights)
            state = self.cell((weights[:, None, :] @ keys).squeeze(1), state)
        return torch.stack(patterns, 1)


class SlidingLoop(nn.Module):
    """A loop over queries, each of which sees the last keys alone."""

    def __init__(self, width):
        super().__init__()
        torch.manual_seed(0)
        self.width, self.q, self.k, self.v = width, *(nn.Linear(D_MODEL, D_MODEL) for _ in range(3))

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        rows = []
        for i in range(x.shape[1]):
            seen = slice(max(0, i - self.width + 1), i + 1)
            rows.append(torch.softmax(q[:, :, i:i + 1] @ k[:, :, seen].mT / 8 ** 0.5, -1) @ v[:, :, seen])
        return torch.cat(rows, 2)


class MeanScores(nn.Module):
    """Positions weighed by the mean of their products with all of them: one number for each, and no keys."""

    def forward(self, x):
        return (x * torch.softmax((x @ x.mT).mean(-1, keepdim=True), dim=1)).sum(1)


class Classifier(nn.Module):
    """A softmax over classes, as many as positions: nothing is weighed with it."""

    def __init__(self):
        super().__init__()
        self.pool, self.out = Pooled("bmm"), nn.Linear(3, N_KEYS)

    def forward(self, x):
        return torch.softmax(self.out(self.pool(x)), -1)


class Windows(nn.Module):
    """Attention within windows of three positions."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D_MODEL, 3 * D_MODEL)

    def forward(self, x):
        q, k, v = self.qkv(x.reshape(-1, 3, D_MODEL)).chunk(3, -1)
        return (torch.softmax(q @ k.mT / D_MODEL ** 0.5, -1) @ v).reshape(x.shape)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D_MODEL, D_MODEL) for _ in range(3))

    def forward(self, x, other, causal):
        scores = self.q(x) @ self.k(other).mT / D_MODEL ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
        return torch.softmax(scores, -1) @ self.v(other)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Attention(), Attention()

    def forward(self, x, memory):
        x = x + self.first(x, x, True)
        return x + self.second(x, memory, False)


class Decoder(nn.Module):
    """Layers whose two attentions have names that say nothing."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.source, self.target = nn.Embedding(20, D_MODEL), nn.Embedding(20, D_MODEL)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])

    def forward(self, source, target):
        memory, x = self.source(source), self.target(target)
        for layer in self.layers:
            x = layer(x, memory)
        return x


class NormedQueries(nn.Module):
    """Layers that norm their queries and not their keys: one sequence all the same."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.norm = nn.Embedding(20, D_MODEL), nn.LayerNorm(D_MODEL)
        self.layers = nn.ModuleList([Attention() for _ in range(2)])

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = x + layer(self.norm(x), x, True)
        return x


class PaddedQueries(nn.Module):
    """Layers whose keys are of another activation than their queries, and whose first queries are padding that sees nothing."""

    def __init__(self, n_pads):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm, self.n_pads = nn.Embedding(20, D_MODEL), nn.LayerNorm(D_MODEL), n_pads
        self.layers = nn.ModuleList([PaddedAttention() for _ in range(2)])

    def forward(self, ids):
        x = self.embed(ids)
        n = x.shape[-2]
        seen = torch.ones(n, n, dtype=torch.bool).tril() & (torch.arange(n) >= self.n_pads)
        for layer in self.layers:
            x = x + layer(self.norm(x), x, seen)
        return x


class PaddedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D_MODEL, D_MODEL) for _ in range(3))

    def forward(self, x, residual, seen):
        scores = (self.q(x) @ self.k(residual).mT).masked_fill(~seen, torch.finfo(torch.float32).min)
        return torch.softmax(scores, -1) @ self.v(residual)


class OneQuery(unittest.TestCase):
    def test_pooling_is_a_pattern_of_one_query_however_it_is_used(self):
        x = torch.randn(2, N_KEYS, D_MODEL)
        for way in ("column", "bmm", "einsum", "matmul"):
            model = Pooled(way)
            tensors, _ = recorded(model, x)
            (pattern,) = [value for name, value in tensors.items() if name.endswith("pattern")]
            self.assertEqual(pattern.shape, (1, 1, N_KEYS), way)
            with torch.no_grad():
                self.assertLess((pattern[0, 0] - model.pattern(x)[0]).abs().max(), 1e-6, way)

    def test_rows_that_a_product_keeps_are_queries_and_no_batch(self):
        for way, x, axis in (("graph", torch.randn(N_KEYS, D_MODEL), "keys"), ("wrong", torch.randn(N_KEYS, D_MODEL), "queries"),
                             ("hops", torch.randn(1, N_KEYS, D_MODEL), "keys")):
            model = Graph(way)
            tensors, metadata = recorded(model, x)
            (pattern,) = [value for name, value in tensors.items() if name.endswith("pattern")]
            with torch.no_grad():
                torch.testing.assert_close(pattern, model.pattern(x).reshape(1, -1, N_KEYS), msg=way)
            (scores,) = [value for name, value in tensors.items() if name.endswith("scores")]
            self.assertEqual(scores.shape, pattern.shape, way)
            self.assertEqual(json.loads(metadata["attnscope.calls"])[0]["axis"], axis)

    def test_a_softmax_that_weighs_nothing_is_no_attention(self):
        tensors, metadata = recorded(Classifier(), torch.randn(1, N_KEYS, D_MODEL))
        self.assertEqual([name for name in tensors if name.endswith("pattern")], ["pool#0.pattern"])

    def test_steps_over_the_same_keys_are_the_rows_of_one_layer(self):
        keys, model = torch.randn(2, N_KEYS, D_MODEL), Steps()
        tensors, metadata = recorded(model, keys)
        (pattern,) = [value for name, value in tensors.items() if name.endswith("pattern")]
        with torch.no_grad():
            self.assertLess((pattern[0] - model(keys)[0]).abs().max(), 1e-6)
        self.assertEqual(json.loads(metadata["attnscope.calls"])[0]["steps_of_one"], 5)

    def test_a_window_that_moves_on_gives_the_rows_of_one_layer_over_all_keys(self):
        x, model = torch.randn(1, N_KEYS, D_MODEL), SlidingLoop(4)
        tensors, _ = recorded(model, x, values=True)
        of = {name.rpartition(".")[2]: value for name, value in tensors.items() if ".attn." in name or "#" in name}
        places = torch.arange(N_KEYS)
        hidden = (places > places[:, None]) | (places <= places[:, None] - 4)
        scores = (of["rot_q"] @ of["rot_k"].mT / 8 ** 0.5).masked_fill(hidden, -torch.inf)
        self.assertEqual(of["pattern"].shape, (2, N_KEYS, N_KEYS))
        self.assertLess((of["pattern"] - scores.softmax(-1)).abs().max(), 1e-6)
        self.assertTrue(torch.equal(of["scores"] == -torch.inf, hidden.expand(2, -1, -1)))
        self.assertLess((of["pattern"] @ of["v"] - of["z"]).abs().max(), 1e-6)

    def test_weights_of_means_of_scores_are_one_query_and_no_softmax_over_queries(self):
        x = torch.randn(2, N_KEYS, D_MODEL)
        tensors, metadata = recorded(MeanScores(), x)
        (pattern,) = [value for name, value in tensors.items() if name.endswith("pattern")]
        self.assertEqual((pattern.shape, metadata["attnscope.softmax_axis"]), ((1, 1, N_KEYS), "keys"))
        self.assertLess((pattern[0, 0] - (x[0] @ x[0].mT).mean(-1).softmax(-1)).abs().max(), 1e-6)

    def test_windows_are_seen_although_no_input_is_as_long(self):
        tensors, _ = recorded(Windows(), torch.randn(1, 12, D_MODEL))
        (pattern,) = [value for name, value in tensors.items() if name.endswith("pattern")]
        self.assertEqual(pattern.shape[-2:], (3, 3))


class Sequences(unittest.TestCase):
    def names(self, model, *args):
        return sorted(name for name in recorded(model, *args)[0] if name.endswith("pattern"))

    def test_cross_attention_is_known_by_its_inputs_at_any_length(self):
        for n_source in (6, 8):
            source, target = torch.arange(n_source)[None], torch.arange(8)[None] + 3
            self.assertEqual(self.names(Decoder(), source, target), [
                "decoder.blocks.0.attn.pattern", "decoder.blocks.0.cross_attn.pattern",
                "decoder.blocks.1.attn.pattern", "decoder.blocks.1.cross_attn.pattern"], n_source)

    def test_even_rows_of_padding_make_no_other_sequence(self):
        for n_pads in (0, 4):
            self.assertEqual(self.names(PaddedQueries(n_pads), torch.arange(9)[None]),
                             ["blocks.0.attn.pattern", "blocks.1.attn.pattern"], n_pads)

    def test_a_norm_of_queries_alone_makes_no_other_sequence(self):
        self.assertEqual(self.names(NormedQueries(), torch.arange(8)[None]), ["blocks.0.attn.pattern", "blocks.1.attn.pattern"])


if __name__ == "__main__":
    unittest.main()
