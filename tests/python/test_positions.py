"""How positions enter attention: rotations of one side, before a learned map or of values, and slopes that favour far keys."""

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

D, N, N_HEADS = 64, 16, 4
CHECK = "misplaced-positions"


def rotated(x):
    n, width = x.shape[-2:]
    angles = torch.arange(n)[:, None] * 10000 ** (-torch.arange(0, width, 2) / width)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def partly_rotated(x):
    half = x.shape[-1] // 2
    return torch.cat([rotated(x[..., :half]), x[..., half:]], -1)


def wrongly_paired(x):
    """Angles repeated for halves, features paired with their neighbours."""
    n, width = x.shape[-2:]
    angles = torch.arange(n)[:, None] * 10000 ** (-torch.arange(0, width, 2) / width)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    return x * cos + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) * sin


def stretched(x):
    """A rotation and a scale by position, as xPos has, and a factor for each feature."""
    places = torch.arange(x.shape[-2])[:, None]
    return rotated(x) * 1.01 ** places


def weighed(x):
    return x * (1 + torch.arange(x.shape[-2])[:, None] * torch.linspace(0, 0.1, x.shape[-1]))


def split(x):
    return x.unflatten(-1, (N_HEADS, -1)).transpose(1, 2)


class Attention(nn.Module):
    """`turns`: what is rotated, of q, k, v, x (the input of W_Q and W_K) and z (back); `bias`: what is added to scores."""

    def __init__(self, turns, bias, fused, turn):
        super().__init__()
        self.turns, self.bias, self.fused, self.turn = turns, bias, fused, turn
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def added(self):
        slopes, places = 2.0 ** -torch.arange(1, N_HEADS + 1)[:, None, None], torch.arange(N)
        distance = (places[:, None] - places).abs()
        generator = torch.Generator().manual_seed(2)
        biases = {
            "none": torch.zeros(N_HEADS, N, N), "near": -slopes * distance, "far": slopes * distance, "keys": (slopes * places).expand(-1, N, -1),
            "keys wrong": (-slopes * places).expand(-1, N, -1), "turned order": (-slopes * distance).flip(0),
            "mixed": -slopes * distance * torch.tensor([1, -1, 1, 1])[:, None, None],
            "learned": torch.randn(N_HEADS, 2 * N, generator=generator)[:, places[:, None] - places + N]}
        return biases[self.bias].masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), -torch.inf)

    def forward(self, x):
        taken = rotated(x) if "x" in self.turns else x
        q, k, v = split(self.q(taken)), split(self.k(taken)), split(self.v(x))
        q, k, v = (self.turn(part) if name in self.turns else part for name, part in (("q", q), ("k", k), ("v", v)))
        if self.fused:
            z = F.scaled_dot_product_attention(q, k, v, attn_mask=self.added())
        else:
            z = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + self.added()).softmax(-1) @ v
        z = self.turn(z) if "z" in self.turns else z
        return self.out(z.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, turns="", bias="none", fused=False, turn=rotated):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.norm, self.head = nn.Embedding(50, D), nn.LayerNorm(D), nn.Linear(D, 50)
        self.layers = nn.ModuleList(Attention(turns, bias, fused, turn) for _ in range(2))
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)  # as training leaves it

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = x + layer(self.norm(x))
        return self.head(x)


@needs_program()
class Positions(unittest.TestCase):
    def told(self, *args, **options):
        model = Model(*args, **options).eval()
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "trace.safetensors")
            with torch.no_grad(), capture(model, path, values=True):
                model(torch.randint(0, 50, (2, N), generator=torch.Generator().manual_seed(1)))
            return findings(path).get(CHECK, [])

    def test_a_rotation_of_one_side_is_told(self):
        for turns, who in (("q", "queries are rotated"), ("k", "keys are rotated")):
            for fused in (False, True):
                for turn in (rotated, partly_rotated):
                    with self.subTest(turns=turns, fused=fused, turn=turn.__name__):
                        (severity, seen), = self.told(turns, fused=fused, turn=turn)
                        self.assertEqual(severity, "warning")
                        self.assertIn(who, seen)

    def test_pairs_whose_features_are_turned_by_two_angles_are_told(self):
        for fused in (False, True):
            (severity, seen), = self.told("qk", fused=fused, turn=wrongly_paired)
            self.assertEqual(severity, "warning")
            self.assertIn("by two angles", seen)
        for turn in (stretched, weighed):
            self.assertEqual(self.told("qk", turn=turn), [], turn.__name__)

    def test_a_rotation_before_a_learned_map_is_told(self):
        (severity, seen), = self.told("x")
        self.assertEqual(severity, "warning")
        self.assertIn("what W_Q takes is rotated", seen)

    def test_rotated_values_are_information_and_none_where_they_are_turned_back(self):
        (severity, seen), = self.told("qkv")
        self.assertEqual(severity, "info")
        self.assertIn("values are rotated", seen)
        self.assertEqual(self.told("qkvz"), [])

    def test_slopes_that_favour_far_keys_are_told(self):
        for bias in ("far", "keys wrong"):
            for fused in (False, True):
                with self.subTest(bias=bias, fused=fused):
                    (severity, seen), = self.told(bias=bias, fused=fused)
                    self.assertEqual(severity, "warning")
                    self.assertIn("0.0625 to 0.5000", seen)

    def test_designs_are_not_accused(self):
        for turns, bias in (("", "none"), ("qk", "none"), ("", "near"), ("", "keys"), ("", "turned order"), ("", "mixed"), ("", "learned"),
                            ("qk", "near")):
            for fused in (False, True):
                with self.subTest(turns=turns, bias=bias, fused=fused):
                    self.assertEqual(self.told(turns, bias, fused), [])
        self.assertEqual(self.told("qk", turn=partly_rotated), [])


if __name__ == "__main__":
    unittest.main()
