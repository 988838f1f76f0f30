"""discarded: layers with weights that run as statements of their own, so that nothing takes what they give."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from places import needs_program, program
from safetensors import safe_open
from torch import nn

from attnscope import capture

D_MODEL = 8


class InPlace(nn.Module):
    """A layer that changes what it is given."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.full((D_MODEL,), 1.1))

    def forward(self, x):
        return x.mul_(self.gain)


class Keeper(nn.Linear):
    """A layer that is called for what it keeps."""

    def forward(self, x):
        self.kept = super().forward(x)
        return self.kept


def split(x):
    return x.unflatten(-1, (2, -1))


class Block(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.q, self.k, self.v, self.out = (nn.Linear(D_MODEL, D_MODEL) for _ in range(4))
        self.norm, self.drop, self.in_place, self.keeper = nn.LayerNorm(D_MODEL), nn.Dropout(0.1), InPlace(), Keeper(D_MODEL, D_MODEL)
        self.fused = nn.Linear(D_MODEL, 3 * D_MODEL)
        self.part = nn.Sequential(nn.Linear(D_MODEL, D_MODEL), nn.ReLU())

    def weighs_keys(self, x):
        """Values are computed, and never looked at."""
        q, k = self.q(x), self.k(x)
        if self.kind == "keys":
            v = self.v(x).view(len(x), -1, D_MODEL)
        else:
            v = split(self.v(x))
        return (q @ k.transpose(-2, -1) / D_MODEL**0.5).softmax(-1) @ k

    def takes_apart(self, x):
        """Parts of what a layer gives, of which one is read twice in the place of another, or each by somebody."""
        if self.kind == "half":
            narrow, wide = self.fused(x).reshape(*x.shape[:-1], 3 * D_MODEL).split((D_MODEL, 2 * D_MODEL), -1)
            return wide[..., :D_MODEL] * torch.sigmoid(wide[..., D_MODEL:])
        if self.kind == "values":
            query, key, value = self.fused(x).unflatten(-1, (3, D_MODEL)).unbind(-2)
            value = value.reshape(*x.shape)
            return (query @ key.transpose(-2, -1) / D_MODEL**0.5).softmax(-1) @ key
        q, k, v = self.fused(x).chunk(3, -1)
        first, _ = self.fused(x).split((D_MODEL, 2 * D_MODEL), -1)
        return first + (q @ k.transpose(-2, -1) / D_MODEL**0.5).softmax(-1) @ v

    def looks_later(self, x):
        """Values that are read in another place than where they are made."""
        v, unused = self.v(x), 0
        first = self.k(x).mean(-1)
        second = self.out(x)
        second += first[..., None]

        def weighed():
            return v + second

        return weighed()

    def forward(self, x):
        if self.kind in ("keys", "keys of heads"):
            return x + self.weighs_keys(x)
        if self.kind in ("half", "values", "taken apart"):
            x = x + self.takes_apart(x)
        if self.kind == "later":
            x = x + self.looks_later(x)
        scores = (self.q(x) @ self.k(x).transpose(-2, -1) / D_MODEL**0.5).softmax(-1)
        x = x + self.out(scores @ self.v(x))
        if self.kind == "statement":
            self.norm(x)
        elif self.kind == "last":
            x = x + 1
            self.norm(input=x)
        elif self.kind == "assigned":
            x = self.norm(x)
        elif self.kind == "nameless":
            _ = self.norm(x)
        elif self.kind == "argument":
            x = torch.add(self.norm(x), 1)
        elif self.kind == "others":  # nothing of this is a layer whose weights do nothing
            self.drop(x)
            self.in_place(x)
            self.keeper(x)
            self.part(x)
            x = x + self.keeper.kept
        return x


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, D_MODEL)
        self.blocks = nn.ModuleList([Block(kind) for _ in range(2)])

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return x


IDS = torch.tensor([[3, 1, 4, 1, 5, 9]])


def discarded(kind):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.safetensors")
        with torch.no_grad(), capture(model := Model(kind).eval(), path):
            model(IDS)
        with safe_open(path, "pt") as file:
            return json.loads(file.metadata()["attnscope.discarded"])


class Discards(unittest.TestCase):
    def test_a_layer_that_is_a_statement_of_its_own_is_told_with_its_line(self):
        for kind in ("statement", "last"):
            with self.subTest(kind):
                found = discarded(kind)
                self.assertEqual([one["module"] for one in found], ["blocks.0.norm", "blocks.1.norm"])
                self.assertEqual({one["class"] for one in found}, {"LayerNorm"})
                with open(__file__, encoding="utf-8") as source:
                    lines = source.read().splitlines()
                for one in found:
                    name, number = one["where"].split(":")
                    self.assertEqual(name, os.path.basename(__file__))
                    self.assertIn("self.norm(", lines[int(number) - 1])

    @unittest.skipIf(sys.version_info < (3, 11), "code has no positions before Python 3.11")
    def test_a_variable_that_nothing_reads_is_told(self):
        for kind in ("keys", "keys of heads"):
            self.assertEqual([one["module"] for one in discarded(kind)], ["blocks.0.v", "blocks.1.v"], kind)

    @unittest.skipIf(sys.version_info < (3, 11), "code has no positions before Python 3.11")
    def test_a_part_that_nothing_reads_is_told(self):
        for kind, part in (("half", "part 1 of 2"), ("values", "part 3 of 3")):
            found = [(one["module"], one["class"], one["part"]) for one in discarded(kind)]
            self.assertEqual(found, [(f"blocks.{i}.fused", "Linear", part) for i in range(2)])

    def test_results_that_something_takes_are_not(self):
        for kind in ("assigned", "nameless", "argument", "others", "later", "taken apart"):
            with self.subTest(kind):
                self.assertEqual(discarded(kind), [])

    @needs_program()
    def test_check_names_the_line_and_accuses_no_other(self):
        for kind, severity in (("statement", "warning"), ("half", "warning"), ("assigned", None), ("later", None)):
            with self.subTest(kind), tempfile.TemporaryDirectory() as directory:
                path = os.path.join(directory, "trace.safetensors")
                with torch.no_grad(), capture(model := Model(kind).eval(), path):
                    model(IDS)
                said = subprocess.run([program(), "check", path, "--json", "--select", "unread-weights"], capture_output=True, text=True)
                findings = json.loads(said.stdout)["targets"][0]["findings"]
                self.assertEqual([one["severity"] for one in findings], [severity] if severity else [], said.stdout)
                if severity:
                    self.assertIn("test_discards.py:", findings[0]["evidence"])
                    layers = "fused" if kind == "half" else "norm"
                    self.assertIn(f"blocks.0.{layers}, blocks.1.{layers}", findings[0]["evidence"])
                    self.assertEqual("part 1 of 2" in findings[0]["evidence"], kind == "half")


if __name__ == "__main__":
    unittest.main()
