"""What the tests of the Python module share."""

import contextlib
import json
import os
import subprocess
import tempfile
import unittest
import warnings

from places import ROOT, needs, program  # noqa: F401

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

try:
    import numpy  # noqa: F401  torch itself does without it, and these tests do not
    import torch
    from torch import nn
except ImportError as error:
    raise unittest.SkipTest(f"not installed: {error.name}") from None

torch.set_num_threads(1)


class Case(unittest.TestCase):
    """A test with a directory of its own, in which no warning passes unseen."""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.path = os.path.join(self.directory, "run.jsonl")
        torch.manual_seed(0)

    def records(self, path=None):
        with open(path or self.path, encoding="utf-8") as file:
            return [line for line in map(json.loads, file) if "step" in line]

    def lines(self, path=None):
        with open(path or self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    @contextlib.contextmanager
    def quiet(self):
        """No warning of ours may be told inside."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            yield
        ours = [str(w.message) for w in told if "attnscope" in str(w.message)]
        self.assertEqual(ours, [])


def report(checkpoint, *arguments):
    """The first prompt of `attnscope report --format json`."""
    command = [program(), "report", checkpoint, "--format", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)["prompts"][0]


class Attention(nn.Module):
    """Written by hand: a softmax over a product of queries and keys."""

    def __init__(self, width=32, n_heads=4, causal=True):
        super().__init__()
        self.n_heads, self.causal = n_heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.n_heads, -1).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        scores = (q @ k.transpose(-2, -1)) / (c // self.n_heads) ** 0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(t, t).tril() == 0, float("-inf"))
        return self.out((self.drop(scores.softmax(-1)) @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width=32, n_heads=4, attention=Attention):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(width), attention(width, n_heads)
        self.norm2, self.mlp = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """A small decoder; `attention` makes the attention of a block."""

    def __init__(self, n_layers=2, width=32, n_heads=4, attention=Attention, vocabulary=50):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, n_heads, attention) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(n=3, length=12, vocabulary=50):
    return torch.randint(0, vocabulary, (n, length), generator=torch.Generator().manual_seed(7))


def loss_of(model, ids):
    logits = model(ids)
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
