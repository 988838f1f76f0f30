"""Padding masks the wrong way round where only the tokens tell padding, and healthy decoders that step through keys of a source."""

import os
import tempfile
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from places import needs_program
from test_added import findings
from torch import nn

from attnscope import capture

D, N, N_PADS = 32, 12, 4


class Steps(nn.Module):
    """A recurrent translator that looks at its source once a step."""

    def __init__(self, way, is_inverted):
        super().__init__()
        torch.manual_seed(0)
        self.way, self.is_inverted = way, is_inverted
        self.words, self.reader, self.cell = nn.Embedding(50, D), nn.GRU(D, D, batch_first=True), nn.GRUCell(2 * D, D)
        self.q, self.k, self.v, self.score = (nn.Linear(D, n) for n in (D, D, D, 1))

    def looked_up(self, state, source, is_real):
        if self.way == "additive":
            scores = self.score(torch.tanh(self.q(state)[:, None] + self.k(source))).transpose(1, 2)
        else:
            scores = self.q(state)[:, None] @ self.k(source).transpose(1, 2) / D**0.5
        scores = scores.masked_fill(~is_real[:, None], -1e9)
        return (scores.softmax(-1) @ self.v(source)).squeeze(1)

    def forward(self, source, target):
        is_real = (source == 0) if self.is_inverted else (source != 0)
        read, _ = self.reader(self.words(source))
        state = found = read.mean(1)
        out = []
        for t in range(target.shape[1]):
            state = self.cell(torch.cat([self.words(target[:, t]), found], -1), state)
            found = self.looked_up(state, read, is_real)
            out.append(state + found)
        return torch.stack(out, 1)


class Encoder(nn.Module):
    def __init__(self, is_inverted):
        super().__init__()
        torch.manual_seed(0)
        self.is_inverted, self.words, self.places = is_inverted, nn.Embedding(50, D), nn.Embedding(N, D)
        layer = nn.TransformerEncoderLayer(D, 4, D, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        is_hidden = (ids != 0) if self.is_inverted else (ids == 0)
        return self.layers(self.words(ids) + self.places(torch.arange(N)), src_key_padding_mask=is_hidden)


def padded(n_rows):
    ids = torch.randint(1, 50, (n_rows, N), generator=torch.Generator().manual_seed(1))
    for row in range(n_rows):
        ids[row, N - N_PADS + row:] = 0
    return ids


@needs_program()
class PaddingSeen(unittest.TestCase):
    def accused(self, model, *inputs):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "trace.safetensors")
            with torch.no_grad(), capture(model.eval(), path):
                model(*inputs)
            return {check for check, found in findings(path).items() if {"error", "warning"} & {severity for severity, _ in found}}

    def test_steps_over_padding_alone_are_told_and_others_are_not(self):
        target = torch.randint(1, 50, (1, 7), generator=torch.Generator().manual_seed(2))
        for way in ("additive", "dot"):
            for n_rows in (1, 2, 3):
                with self.subTest(way=way, n_rows=n_rows):
                    inputs = padded(n_rows), target.expand(n_rows, -1)
                    self.assertIn("pad-mass", self.accused(Steps(way, True), *inputs))
                    self.assertEqual(self.accused(Steps(way, False), *inputs), set())

    def test_an_encoder_that_sees_padding_alone_is_told(self):
        self.assertIn("mask-shape", self.accused(Encoder(True), padded(2)))
        self.assertEqual(self.accused(Encoder(False), padded(2)), set())

    def test_text_that_ends_in_one_token_twice_is_no_padding(self):
        ids = torch.randint(1, 50, (1, N), generator=torch.Generator().manual_seed(3))
        ids[0, -2:] = 49
        self.assertEqual(self.accused(Encoder(False), ids), set())


if __name__ == "__main__":
    unittest.main()
