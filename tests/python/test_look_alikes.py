"""Mistakes that look like a design which is not judged, and designs that look like a mistake."""

import os
import tempfile
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from places import needs_program
from safetensors import safe_open
from test_added import findings
from torch import nn

from attnscope import capture

D, N, N_HEADS = 32, 12, 4
KEPT = {}


def split(x):
    return x.unflatten(-1, (N_HEADS, -1)).transpose(1, 2)


def hidden(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def remember(x):
    KEPT["values"] = x
    return len(KEPT)


class Layer(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way, self.norm = way, nn.LayerNorm(D)
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))
        self.of_query, self.of_key = nn.Linear(D, 1), nn.Linear(D, 1)
        for layer in (self.q, self.k, self.of_query, self.of_key):
            nn.init.normal_(layer.weight, std=0.4)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)  # as training leaves it

    def forward(self, x):
        return x + self.attend(self.norm(x))

    def attend(self, x):
        if self.way.startswith("hops"):
            scores = nn.functional.leaky_relu(self.of_query(x) + self.of_key(x).transpose(1, 2)).masked_fill(hidden(N), -1e9)
            pattern = scores.softmax(-2 if self.way == "hops over queries" else -1)
            return self.out(pattern @ (pattern @ self.v(x)))
        source = x[:, :1].expand_as(x) if self.way == "alike" else x
        q, k, v = split(self.q(x)), split(self.k(source)), split(self.v(source))
        if self.way.startswith("steps"):
            ahead = int(self.way.endswith("one too many"))
            steps = [(q[:, :, t:t + 1] @ k.transpose(-1, -2) / 8**0.5).masked_fill(torch.arange(N) > t + ahead, -1e9) for t in range(N)]
            return self.out(torch.cat([step.softmax(-1) @ v for step in steps], 2).transpose(1, 2).flatten(2))
        pattern = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(hidden(N), -1e9).softmax(-1)
        if self.way == "normed pattern":
            pattern = nn.functional.layer_norm(pattern, (N,))
        z = pattern @ v
        if self.way == "features behind":
            z = z @ (k.transpose(-1, -2) @ k / N)
        return self.out(z.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(50, D), nn.Embedding(N, D)
        self.layers, self.head = nn.ModuleList(Layer(way) for _ in range(2)), nn.Linear(D, 50)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class BothSides(nn.Module):
    """Attention from a context to a question and back (BiDAF): one pattern is weighed by another."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.score, self.out = nn.Embedding(50, D), nn.Linear(3 * D, 1), nn.Linear(4 * D, 50)
        nn.init.normal_(self.score.weight, std=0.5)

    def forward(self, context, question):
        c, q = self.words(context), self.words(question)
        ours, theirs = c[:, :, None].expand(-1, -1, q.shape[1], -1), q[:, None].expand(-1, c.shape[1], -1, -1)
        scores = self.score(torch.cat([ours, theirs, ours * theirs], -1)).squeeze(-1)
        over_question, over_context = scores.softmax(2), scores.softmax(1)
        a = over_question @ q
        b = over_question @ over_context.transpose(1, 2) @ c
        return self.out(torch.cat([c, a, c * a, c * b], -1))


class Dead(Layer):
    """Values are computed, and keys weighed."""

    def attend(self, x):
        q, k = split(self.q(x)), split(self.k(x))
        pattern = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(hidden(N), -1e9).softmax(-1)
        return self.out((pattern @ self.values(x, k)).transpose(1, 2).flatten(2))

    def values(self, x, k):
        if self.way == "two statements":
            v = self.v(x)
            v = v.unflatten(-1, (N_HEADS, -1)).transpose(1, 2)
            return k
        if self.way == "annotated":
            w: torch.Tensor = split(self.v(x))
            assert w.shape == k.shape
            return k
        n = remember(self.v(x))
        return split(KEPT["values"])


@needs_program()
class LookAlikes(unittest.TestCase):
    def found(self, model, *inputs):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "trace.safetensors")
            with torch.no_grad(), capture(model.eval(), path):
                model(*(inputs or (torch.arange(N)[None] % 50,)))
            return findings(path)

    def severities(self, model, *inputs):
        return {check: {severity for severity, _ in found} for check, found in self.found(model, *inputs).items()}

    def test_additive_attention_of_two_hops_is_no_linear_attention(self):
        self.assertIn("error", self.severities(Model("hops over queries")).get("wrong-axis", ()))
        self.assertNotIn("error", set().union(*self.severities(Model("hops")).values()))

    def test_a_pattern_that_another_one_weighs_is_not_judged(self):
        self.assertNotIn("wrong-axis", self.found(BothSides(), torch.arange(14)[None], torch.arange(6)[None]))

    def test_a_norm_behind_a_masked_softmax_gives_hidden_keys_a_weight(self):
        self.assertIn("error", self.severities(Model("normed pattern")).get("pattern-mismatch", ()))

    def test_steps_that_see_one_too_many_are_told_and_rows_of_a_loop_are_no_collapse(self):
        self.assertIn("error", self.severities(Model("steps, one too many")).get("mask-shape", ()))
        found = self.severities(Model("steps"))
        self.assertNotIn("mask-shape", found)
        self.assertNotIn("rank-collapse", found)

    def test_values_that_are_alike_although_their_rows_are_not_are_told(self):
        self.assertIn("entropy-uniform", self.found(Model("alike")))

    def test_a_product_of_features_behind_attention_is_no_linear_attention(self):
        model = Model("features behind")
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "trace.safetensors")
            with torch.no_grad(), capture(model.eval(), path):
                model(torch.arange(N)[None])
            with safe_open(path, "pt") as file:
                self.assertNotIn("attnscope.linear", file.metadata())

    def test_values_that_nothing_reads_are_told_however_they_are_written(self):
        for way in ("two statements", "annotated"):
            with self.subTest(way):
                self.assertIn("unread-weights", self.found(with_dead_values(way)))
        self.assertNotIn("unread-weights", self.found(with_dead_values("kept elsewhere")))


def with_dead_values(way):
    model = Model(way)
    torch.manual_seed(0)
    model.layers = nn.ModuleList(Dead(way) for _ in range(2))
    return model


if __name__ == "__main__":
    unittest.main()
