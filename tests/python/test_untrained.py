"""Attention that is even because training has not begun, and attention that training left even."""

import os
import tempfile
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from places import needs_program
from test_added import findings
from torch import nn
from torch.nn import functional as F

from attnscope import capture, probe
from attnscope._capture.untrained import _looks_untrained

D, N, N_HEADS = 64, 24, 4


class Block(nn.Module):
    """Attention from one set to another and a layer behind it, without a norm."""

    def __init__(self, bias=True):
        super().__init__()
        self.q, self.k, self.v, self.out, self.up = (nn.Linear(D, D, bias=bias) for _ in range(5))
        self.is_causal = False

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (N_HEADS, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1]**0.5
        if self.is_causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        pattern = scores.softmax(-1)
        x = x + self.out((pattern @ v).transpose(1, 2).flatten(2))
        return x + F.relu(self.up(x))


class Sets(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        torch.manual_seed(0)
        self.into = nn.Linear(3, D, bias=bias)
        self.blocks, self.out = nn.ModuleList(Block(bias) for _ in range(3)), nn.Linear(D, 3, bias=bias)

    def forward(self, x):
        x = self.into(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class Tied(nn.Module):
    """A language model without gains and biases, whose tokens are read from the table that they were looked up in, or from another."""

    def __init__(self, is_tied=True):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(32, D), nn.Linear(D, 32, bias=False)
        self.blocks = nn.ModuleList(Block(bias=False) for _ in range(2))
        for block in self.blocks:
            block.is_causal = True
        if is_tied:
            self.head.weight = self.embed.weight

    def forward(self, ids):
        x = F.layer_norm(self.embed(ids), (D,))
        for block in self.blocks:
            x = block(x)
        return self.head(F.layer_norm(x, (D,)))


def drawn(draw):
    model = Sets(bias=False)
    with torch.no_grad():
        for p in model.parameters():
            draw(p)
    return model


def trained(bias=True):
    """A few hundred steps towards the point of a set that is farthest from its middle."""
    model = Sets(bias)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        x = torch.randn(16, N, 3)
        farthest = x.gather(1, x.norm(dim=-1).argmax(1)[:, None, None].expand(-1, 1, 3))
        loss = F.mse_loss(model(x), farthest.expand(-1, N, -1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def collapsed(model):
    """The queries and keys of two layers became as good as nothing."""
    with torch.no_grad():
        for block in model.blocks[1:]:
            for layer in (block.q, block.k):
                for p in layer.parameters():
                    p *= 1e-2
    return model


@needs_program()
class Untrained(unittest.TestCase):
    def severities(self, model):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "trace.safetensors")
            torch.manual_seed(3)
            inputs = torch.randn(1, N, 3)
            with torch.no_grad(), capture(model.eval(), path, mask="bidirectional"):
                model(inputs)
            return {severity for severity, _ in findings(path).get("entropy-uniform", ())}

    def test_every_initialisation_is_known_whatever_its_scale(self):
        draws = (lambda p: p, lambda p: p.normal_(std=0.02), nn.init.xavier_uniform_, nn.init.xavier_normal_, nn.init.kaiming_normal_,
                 nn.init.orthogonal_, lambda p: nn.init.trunc_normal_(p, std=0.02))
        for idx, draw in enumerate(draws):
            with self.subTest(idx=idx):
                self.assertIn("random numbers", _looks_untrained(drawn(draw)) or "")
        model, state = Sets(), torch.random.get_rng_state()
        self.assertIsNotNone(_looks_untrained(model))
        self.assertTrue(torch.equal(state, torch.random.get_rng_state()))

    def test_weights_that_moved_are_no_initialisation(self):
        self.assertIsNone(_looks_untrained(trained()))
        model = Sets()
        with torch.no_grad():  # one direction in one matrix is enough
            model.blocks[2].up.weight += 0.02 * torch.randn(D, 1) @ torch.randn(1, D)
        self.assertIsNone(_looks_untrained(model))

    def test_gains_that_moved_are_believed(self):
        model = Sets()
        model.norm = nn.LayerNorm(D)
        self.assertIn("gains", _looks_untrained(model))
        nn.init.uniform_(model.norm.weight, 0.5, 1.5)
        self.assertIsNone(_looks_untrained(model))

    def test_even_attention_before_training_is_for_information(self):
        self.assertEqual(self.severities(Sets()), {"info"})
        self.assertEqual(self.severities(drawn(lambda p: p.normal_(std=0.02))), {"info"})

    def test_even_attention_of_a_trained_model_is_found(self):
        for bias in (True, False):
            with self.subTest(bias=bias):
                self.assertIn("warning", self.severities(collapsed(trained(bias))))

    def test_a_tied_table_makes_no_labels_before_training(self):
        def said(model):
            with tempfile.TemporaryDirectory() as place:
                path = os.path.join(place, "probe.safetensors")
                ids = torch.randint(32, (1, 64), generator=torch.Generator().manual_seed(2))
                probe(model.eval(), ids, path, mask="causal")
                return "label-shift" in findings(path)

        self.assertFalse(said(Tied()))
        model = Tied(is_tied=False)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for _ in range(60):  # towards the token itself
            ids = torch.randint(32, (8, N))
            F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
            optimizer.step(), optimizer.zero_grad()
        self.assertTrue(said(model))


if __name__ == "__main__":
    unittest.main()
