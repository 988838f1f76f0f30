"""Values weighed by scores that no softmax saw: forgotten, in whatever layout, or meant."""

import math
import os
import tempfile
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from places import needs_program
from test_added import findings
from torch import nn
from torch.nn import functional as F

from attnscope import capture

D, N, N_HEADS = 64, 12, 4


class Attention(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way = way
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (N_HEADS, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.out(getattr(self, self.way)(q, k, v).transpose(1, 2).flatten(2))

    def turned(self, q, k, v):
        return (k @ q.transpose(-1, -2) / math.sqrt(q.shape[-1])).transpose(-1, -2) @ v

    def turned_masked(self, q, k, v):
        return (k @ q.transpose(-1, -2) * torch.ones(N, N).triu()).transpose(-1, -2) @ v

    def turned_einsum(self, q, k, v):
        return torch.einsum("bhkq,bhkd->bhqd", torch.einsum("bhkd,bhqd->bhkq", k, q), v)

    def context(self, q, k, v):
        return q @ (k.transpose(-1, -2) @ v) / N

    def features(self, q, k, v):
        scores = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-1, -2) * torch.ones(N, N).tril()
        return (scores / scores.sum(-1, keepdim=True)) @ v

    def even_features(self, q, k, v):
        return self.features(0.02 * q, 0.02 * k, v)

    def non_local(self, q, k, v):
        return q @ k.transpose(-1, -2) / N @ v

    def scaled_non_local(self, q, k, v):
        return q @ k.transpose(-1, -2) / (N * math.sqrt(q.shape[-1])) @ v

    def turned_softmax(self, q, k, v):
        return (k @ q.transpose(-1, -2) / math.sqrt(q.shape[-1])).transpose(-1, -2).softmax(-1) @ v


class Model(nn.Module):
    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(50, D), nn.Embedding(N, D)
        self.layers, self.norm, self.head = nn.ModuleList(Attention(way) for _ in range(2)), nn.LayerNorm(D), nn.Linear(D, 50)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = x + layer(self.norm(x))
        return self.head(x)


@needs_program()
class Unnormalised(unittest.TestCase):
    def judged(self, way):
        model = Model(way).eval()
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "trace.safetensors")
            with torch.no_grad(), capture(model, path, values=True):
                model(torch.arange(N)[None] % 50)
            return findings(path)

    def accused(self, way):
        return {check: found for check, found in self.judged(way).items() if {"error", "warning"} & {severity for severity, _ in found}}

    def test_a_softmax_forgotten_over_turned_scores_is_told_with_its_place(self):
        for way in ("turned", "turned_masked", "turned_einsum"):
            with self.subTest(way=way):
                told = " ".join(seen for found in self.accused(way).values() for _, seen in found)
                self.assertIn("softmax", told)
                self.assertIn("test_unnormalised.py:", told)

    def test_attention_without_a_softmax_by_design_is_not_accused(self):
        for way in ("features", "even_features", "non_local", "scaled_non_local", "turned_softmax"):
            with self.subTest(way=way):
                self.assertEqual(self.accused(way), {})

    def test_a_product_of_keys_and_values_is_no_matrix_of_scores(self):
        with tempfile.TemporaryDirectory() as place, self.assertWarnsRegex(UserWarning, "linear attention"):
            with torch.no_grad(), capture(Model("context").eval(), os.path.join(place, "trace.safetensors")) as running:
                running.model(torch.arange(N)[None])
        self.assertEqual(running.records, [])


if __name__ == "__main__":
    unittest.main()
