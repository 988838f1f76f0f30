"""Encoder–decoders as people write them, for the tests of attnscope.describe."""

import math

import support  # noqa: F401 first: where torch is not installed, it skips the tests that import this
import torch
from torch import nn

SOURCES, TARGETS, WIDTH, HEADS = 30, 25, 16, 4


def sines(n, width):
    angles = torch.arange(n)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class Torch(nn.Module):
    """nn.Transformer between two tables of tokens, a table of positions and a head."""

    def __init__(self, n_layers=(2, 2), batch_first=True, **options):
        super().__init__()
        self.source, self.target = nn.Embedding(SOURCES, WIDTH), nn.Embedding(TARGETS, WIDTH)
        self.places = nn.Embedding(40, WIDTH)
        self.both = nn.Transformer(WIDTH, HEADS, *n_layers, 32, batch_first=batch_first, **options)
        self.head = nn.Linear(WIDTH, TARGETS)
        self.axis = 1 if batch_first else 0

    def embed(self, table, ids):
        places = self.places(torch.arange(ids.shape[self.axis]))
        return table(ids) * math.sqrt(WIDTH) + (places if self.axis else places[:, None])

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[self.axis])
        return self.head(self.both(self.embed(self.source, source), self.embed(self.target, target), tgt_mask=mask))


class Heads(nn.Module):
    """Attention of one text to itself or to another."""

    def __init__(self, joined=False, bias=True, scale=None, n_kv=HEADS):
        super().__init__()
        d = WIDTH // HEADS
        self.query = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.scale, self.shape, self.n_kv = scale or 1 / math.sqrt(d), (HEADS, d), n_kv
        if joined:
            self.to_kv = nn.Linear(WIDTH, 2 * n_kv * d, bias=bias)
        else:
            self.key, self.value = nn.Linear(WIDTH, n_kv * d, bias=bias), nn.Linear(WIDTH, n_kv * d, bias=bias)
        self.joined, self.out = joined, nn.Linear(WIDTH, WIDTH, bias=bias)
        self.drop = nn.Dropout(0.1)

    def cut(self, x, n_heads):
        return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2).repeat_interleave(HEADS // n_heads, 1)

    def added_to(self, scores):
        return scores

    def forward(self, x, memory, mask):
        k, v = self.to_kv(memory).chunk(2, -1) if self.joined else (self.key(memory), self.value(memory))
        q, k, v = self.cut(self.query(x), HEADS), self.cut(k, self.n_kv), self.cut(v, self.n_kv)
        scores = self.added_to(q @ k.transpose(-1, -2) * self.scale).masked_fill(~mask, float("-inf"))
        return self.out((self.drop(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, crosses, pre, norm, **options):
        super().__init__()
        self.own = Heads(**options)
        self.crosses, self.pre = crosses, pre
        if crosses:
            self.other = Heads(**options)
        self.wide, self.narrow = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)
        self.norms = nn.ModuleList(norm(WIDTH) for _ in range(3 if crosses else 2))

    def forward(self, x, memory, mask, open_mask):
        branches = [lambda x: self.own(x, x, mask), lambda x: self.narrow(torch.relu(self.wide(x)))]
        if self.crosses:
            branches.insert(1, lambda x: self.other(x, memory, open_mask))
        for branch, norm in zip(branches, self.norms):
            x = x + branch(norm(x)) if self.pre else norm(x + branch(x))
        return x


class Hand(nn.Module):
    """Written by hand. `shared`: one table; `tied`: the target's table unembeds; `padding`: an id that nothing attends to."""

    def __init__(self, n_layers=(2, 2), pre=True, norm=nn.LayerNorm, shared=False, tied=False, padding=None, learned=False,
                 scaled=False, causal=True, final=True, **options):
        super().__init__()
        self.source = nn.Embedding(TARGETS if shared else SOURCES, WIDTH)
        self.target = self.source if shared else nn.Embedding(TARGETS, WIDTH)
        if learned:
            self.places = nn.ParameterList(nn.Parameter(torch.randn(n, WIDTH)) for n in (32, 48))
        else:
            self.places = [sines(64, WIDTH)] * 2
        self.encoder = nn.ModuleList(Layer(False, pre, norm, **options) for _ in range(n_layers[0]))
        self.decoder = nn.ModuleList(Layer(True, pre, norm, **options) for _ in range(n_layers[1]))
        self.ends = nn.ModuleList(norm(WIDTH) if final else nn.Identity() for _ in range(2))
        self.head = nn.Linear(WIDTH, TARGETS, bias=not tied)
        if tied:
            self.head.weight = self.target.weight
        self.padding, self.scaled, self.causal = padding, scaled, causal

    def embed(self, table, places, ids):
        x = table(ids)
        return (x * math.sqrt(WIDTH) if self.scaled else x) + places[:ids.shape[1]]

    def seen(self, ids):
        shown = torch.ones_like(ids, dtype=torch.bool) if self.padding is None else ids != self.padding
        return shown[:, None, None]

    def forward(self, source, target):
        shown, n = self.seen(source), target.shape[1]
        past = self.seen(target) & (torch.ones(n, n, dtype=torch.bool).tril() if self.causal else torch.ones(n, n, dtype=torch.bool))
        memory = self.embed(self.source, self.places[0], source)
        for layer in self.encoder:
            memory = layer(memory, None, shown, None)
        memory = self.ends[0](memory)
        x = self.embed(self.target, self.places[1], target)
        for layer in self.decoder:
            x = layer(x, memory, past, shown)
        return self.head(self.ends[1](x))
