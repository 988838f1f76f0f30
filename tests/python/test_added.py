"""What is added to a pattern behind its softmax: a mixture by design is information, with negative cells a warning, a mask an error."""

import json
import os
import subprocess
import tempfile
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from places import needs_program, program
from safetensors import safe_open
from torch import nn

from attnscope import capture

N, D, N_HEADS = 12, 32, 4


class Layer(nn.Module):
    """Attention with something added to its pattern, or in place of its softmax."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.qkv, self.out = kind, nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.table = nn.Parameter(torch.randn(N_HEADS, N, N))

    def forward(self, x, near, far):
        q, k, v = (part.unflatten(-1, (N_HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        later = torch.ones(N, N, dtype=torch.bool).triu(1)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if self.kind == "features":
            scores = (q.relu() + 0.01) @ (k.relu() + 0.01).transpose(-1, -2)
        if self.kind in ("features", "forgotten"):
            pattern = scores * (~later).float()
        elif self.kind == "decay":
            pattern = scores * torch.tril(0.8 ** (torch.arange(N)[:, None] - torch.arange(N)).abs())
        else:
            pattern = scores.softmax(-1)
        if self.kind == "graph":
            pattern = 0.5 * pattern + 0.3 * near[:, None]
            pattern += 0.2 * torch.exp(-far)[:, None]
        elif self.kind == "gated":
            pattern = 0.25 * pattern + 0.75 * self.table.sigmoid() / N
        elif self.kind == "mask":
            pattern = pattern + (~later).float()
        elif self.kind == "bias":
            pattern = pattern + self.table
        elif self.kind == "signed graph":
            pattern = pattern + near[:, None] + self.table
        elif self.kind == "laplacian":
            pattern = pattern + torch.eye(N) - near[:, None]
        elif self.kind == "centred":
            pattern = pattern + torch.full((N, N), -1 / N)
        elif self.kind == "less its mean":
            pattern = pattern - pattern.mean(-1, keepdim=True)
        elif self.kind == "scores":
            pattern = pattern + 0.01 * scores  # depends on the scores: nothing is known
        elif self.kind == "halved":
            pattern = (pattern + near[:, None]) / 2
        return self.out((pattern @ v).transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Layer(kind) for _ in range(2))
        for p in self.parameters():
            nn.init.normal_(p, 0, 0.4)

    def forward(self, x, near, far):
        for layer in self.layers:
            x = x + layer(x, near, far)
        return x


def recorded(kind, path):
    random = torch.Generator().manual_seed(1)
    near = (torch.rand(1, N, N, generator=random) < 0.3).float()
    far = torch.rand(1, N, N, generator=random) * 4
    model = Model(kind).eval()
    with capture(model, path, values=True), torch.no_grad():
        model(torch.randn(1, N, D, generator=random), near, far)
    return near, far


def findings(path):
    """{check: [(severity, what was seen)]} of the program."""
    run = subprocess.run([program(), "check", path, "--format", "json"], capture_output=True, text=True, check=False)
    found = {}
    for finding in json.loads(run.stdout)["targets"][0]["findings"]:
        found.setdefault(finding["check"], []).append((finding["severity"], finding["evidence"]))
    return found


class Added(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.path = os.path.join(self.place.name, "trace.safetensors")

    def added(self):
        with safe_open(self.path, "pt") as file:
            name = "blocks.0.attn.added"
            return file.get_tensor(name) if name in file.keys() else None

    def test_the_sum_of_what_is_added_is_kept_with_its_factors(self):
        near, far = recorded("graph", self.path)
        expected = (0.3 * near + 0.2 * torch.exp(-far)).expand(N_HEADS, N, N)
        torch.testing.assert_close(self.added(), expected)
        near, _ = recorded("halved", self.path)
        torch.testing.assert_close(self.added(), near.expand(N_HEADS, N, N) / 2)
        near, _ = recorded("laplacian", self.path)
        torch.testing.assert_close(self.added(), (torch.eye(N) - near).expand(N_HEADS, N, N))
        recorded("scores", self.path)
        self.assertIsNone(self.added())
        recorded("plain", self.path)
        self.assertIsNone(self.added())


@needs_program()
class Judged(Added):
    test_the_sum_of_what_is_added_is_kept_with_its_factors = None

    def of(self, kind):
        recorded(kind, self.path)
        return findings(self.path)

    def test_a_mixture_is_information(self):
        for kind, weight in (("graph", "0.500"), ("gated", "0.250"), ("halved", "0.500")):
            found = self.of(kind)
            self.assertNotIn("row-sum", found, kind)
            self.assertNotIn("pattern-mismatch", found, kind)
            said = [evidence for severity, evidence in found["normaliser"] if severity == "info"]
            self.assertTrue(any(f"{weight} times the softmax" in evidence for evidence in said), (kind, said))

    def test_a_mask_behind_the_softmax_is_an_error(self):
        said = self.of("mask")["pattern-mismatch"]
        words = "the mask was added behind the softmax"
        self.assertTrue(all(severity == "error" and words in evidence for severity, evidence in said), said)
        self.assertIn("pattern-mismatch", self.of("scores"))

    def test_a_matrix_of_both_signs_is_one_warning_a_layer(self):
        for kind in ("bias", "signed graph", "laplacian", "centred", "less its mean"):
            found = self.of(kind)
            self.assertFalse({"row-sum", "pattern-mismatch"} & found.keys(), (kind, found))
            said = found["normaliser"]
            self.assertEqual([severity for severity, _ in said], ["warning"] * 2, (kind, said))
            words = "1.000 times the softmax, plus a matrix with negative cells"
            self.assertTrue(all(words in evidence for _, evidence in said), (kind, said))
            errors = {name for name, told in found.items() if any(severity == "error" for severity, _ in told)}
            self.assertFalse(errors, (kind, found))

    def test_a_softmax_that_was_forgotten_is_a_warning_and_linear_attention_information(self):
        for kind, severity in (("forgotten", "warning"), ("features", "info"), ("decay", "info")):
            found = self.of(kind)
            self.assertEqual({s for s, _ in found["normaliser"]}, {severity}, kind)
            self.assertNotIn("row-sum", found, kind)
        ((_, said),) = self.of("forgotten")["normaliser"]  # once for all layers
        self.assertIn("no softmax ran", said)
        self.assertIn("and so in 1 layer more", said)


if __name__ == "__main__":
    unittest.main()
