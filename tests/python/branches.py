"""Models as people write them whose branches stand in an unusual order, run side by side or read each other."""

import math

import support  # noqa: F401 first: where torch is not installed, it skips the tests that import this
import torch
from torch import nn
import torch.nn.functional as F

from styles import D, H, V


def heads_of(x):
    return x.unflatten(-1, (H, -1)).transpose(1, 2)


class Attends(nn.Module):
    """A causal attention with its norm; subclasses change its scores, its pattern or its keys."""

    causal = True

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)

    def scores(self, q, k):
        return q @ k.transpose(-1, -2) / math.sqrt(D // H)

    def pattern(self, scores):
        n = scores.shape[-1]
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        return (scores.masked_fill(hidden, -1e9) if self.causal else scores).softmax(-1)

    def heads(self, x):
        return (heads_of(part) for part in self.qkv(self.norm(x)).chunk(3, -1))

    def forward(self, x):
        q, k, v = self.heads(x)
        return self.out((self.pattern(self.scores(q, k)) @ v).transpose(1, 2).flatten(2))


class Talking(Attends):
    """Heads that read each other's scores, patterns or both."""

    def __init__(self, before, after, constant=False):
        super().__init__()
        self.before = nn.Parameter(torch.randn(H, H)) if before else None
        self.after = nn.Conv2d(H, H, 1, bias=constant) if after else None

    def scores(self, q, k):
        scores = super().scores(q, k)
        return scores if self.before is None else torch.einsum("hg,bgqk->bhqk", self.before, scores)

    def pattern(self, scores):
        pattern = super().pattern(scores)
        return pattern if self.after is None else self.after(pattern)


class TurnedTalking(Talking):
    """Heads that read each other's scores, of queries and keys that are normed."""

    def heads(self, x):
        q, k, v = super().heads(x)
        return F.normalize(q, dim=-1), F.normalize(k, dim=-1), v


class Largest(Attends):
    """Queries that see the keys of their three largest scores alone."""

    def pattern(self, scores):
        n = scores.shape[-1]
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -1e9)
        least = scores.topk(min(3, n), -1).values[..., -1:]
        return scores.masked_fill(scores < least, -torch.inf).softmax(-1)


class OnGrid(Attends):
    """Half of the pairs turn by the row of a picture's patch, half by its column; a first token does not turn."""

    causal = False

    def __init__(self, columns, interleaved):
        super().__init__()
        self.columns, self.interleaved = columns, interleaved

    def first(self, n):
        """The number that the first row and column have."""
        return 0

    def turned(self, x):
        at, half = torch.arange(x.shape[2] - 1) + self.first(x.shape[2]), D // H // 2
        rates = 1 / 10.0 ** (torch.arange(half // 2) / (half // 2))
        angles = torch.cat([(at // self.columns)[:, None] * rates, (at % self.columns)[:, None] * rates], 1)
        angles = torch.cat([torch.zeros(1, half), angles])
        a, b = (x[..., 0::2], x[..., 1::2]) if self.interleaved else x.chunk(2, -1)
        pairs = a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()
        return torch.stack(pairs, -1).flatten(-2) if self.interleaved else torch.cat(pairs, -1)

    def heads(self, x):
        q, k, v = super().heads(x)
        return self.turned(q), self.turned(k), v


class OfLength(OnGrid):
    """Angles that depend on the length of the text."""

    def first(self, n):
        return n


class WithKey(Attends):
    """One more key and value before those of the text: zeros, or learned."""

    def __init__(self, is_learned):
        super().__init__()
        self.more = nn.Parameter(torch.randn(2, H, 1, D // H)) if is_learned else None

    def heads(self, x):
        q, k, v = super().heads(x)
        more = torch.zeros(2, H, 1, D // H) if self.more is None else self.more
        return q, torch.cat([more[:1].expand(len(k), -1, -1, -1), k], 2), torch.cat([more[1:].expand(len(v), -1, -1, -1), v], 2)

    def pattern(self, scores):
        n = scores.shape[-2]
        hidden = torch.cat([torch.zeros(n, 1, dtype=torch.bool), torch.ones(n, n, dtype=torch.bool).triu(1)], 1)
        return scores.masked_fill(hidden, -1e9).softmax(-1)


class Flash(Attends):
    """Attention that asks for a fused kernel, whatever is set around it."""

    def forward(self, x):
        q, k, v = self.heads(x)
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.FLASH_ATTENTION]):
            z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(z.transpose(1, 2).flatten(2))


class Cached(Attends):
    """Llama's reference code: keys and values go through a cache that is a plain attribute."""

    def __init__(self):
        super().__init__()
        self.cache = torch.zeros(2, 1, H, 20, D // H)

    def heads(self, x):
        q, k, v = super().heads(x)
        n = k.shape[2]
        self.cache[0, :, :, :n], self.cache[1, :, :, :n] = k, v
        return q, self.cache[0, :, :, :n], self.cache[1, :, :, :n]


class Feeds(nn.Module):
    """A feed-forward layer with its norm; its output times a factor."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.norm, self.up, self.down, self.factor = nn.LayerNorm(D), nn.Linear(D, 2 * D), nn.Linear(2 * D, D), factor

    def forward(self, x):
        return self.factor * self.down(F.gelu(self.up(self.norm(x))))


class Together(nn.Module):
    """Several branches of the same input, added at once or stacked and summed."""

    def __init__(self, *branches, stacks=False):
        super().__init__()
        self.branches, self.stacks = nn.ModuleList(branches), stacks

    def forward(self, x):
        outs = [branch(x) for branch in self.branches]
        return torch.stack(outs).sum(0) if self.stacks else sum(outs)


class OneMap(nn.Module):
    """PaLM: queries, keys, values and both halves of a gated feed-forward layer in one map, and both branches at once."""

    def __init__(self):
        super().__init__()
        self.norm, self.all = nn.LayerNorm(D), nn.Linear(D, 3 * D + 4 * D, bias=False)
        self.out, self.down = nn.Linear(D, D, bias=False), nn.Linear(2 * D, D, bias=False)

    def forward(self, x):
        q, k, v, wide = self.all(self.norm(x)).split((D, D, D, 4 * D), -1)
        z = F.scaled_dot_product_attention(heads_of(q), heads_of(k), heads_of(v), is_causal=True)
        up, gate = wide.chunk(2, -1)
        return self.out(z.transpose(1, 2).flatten(2)) + self.down(F.silu(gate) * up)


class Branches(nn.Module):
    """A model of branches that add to the residual, one after the other. It gives logits, the normed mean of its rows, or such a mean
    that is mapped and has length 1."""

    def __init__(self, *branches, head="tokens"):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(20, D)
        self.layers, self.norm = nn.ModuleList(branches), nn.LayerNorm(D)
        self.lm, self.head = None if head == "mean" else nn.Linear(D, V), head

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = x + layer(x)
        if self.head == "tokens":
            return self.lm(self.norm(x))
        x = self.norm(x.mean(1))
        return x if self.lm is None else F.normalize(self.lm(x), dim=-1)


class Batched(Branches):
    """A residual that goes through a batch norm after each branch, and no other norms."""

    def __init__(self, *branches, norms=nn.Identity):
        super().__init__(*branches)
        self.norm, self.after = nn.Identity(), nn.ModuleList(nn.BatchNorm1d(D) for _ in branches)
        for branch, after in zip(branches, self.after):
            branch.norm = norms()
            after.running_mean.copy_(torch.linspace(-1, 1, D))
            after.running_var.copy_(torch.linspace(0.5, 3, D))

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for layer, after in zip(self.layers, self.after):
            x = after((x + layer(x)).transpose(1, 2)).transpose(1, 2)
        return self.lm(x)


class Blocks(nn.Module):
    """A model of blocks, each with both branches, of which the first has a feed-forward layer alone."""

    def __init__(self):
        super().__init__()
        self.tok, self.blocks, self.lm = nn.Embedding(V, D), nn.ModuleList(), nn.Linear(D, V)
        for idx in range(3):
            block = nn.Module()
            block.attention, block.ff = Attends() if idx else None, Feeds()
            self.blocks.append(block)

    def forward(self, ids):
        x = self.tok(ids)
        for block in self.blocks:
            x = x if block.attention is None else x + block.attention(x)
            x = x + block.ff(x)
        return self.lm(x)


class Differs(Attends):
    """The difference of two softmaxes of each head (differential attention)."""

    def __init__(self):
        super().__init__()
        self.second = nn.Linear(D, 2 * D)

    def forward(self, x):
        q, k, v = self.heads(x)
        other = self.scores(*(heads_of(part) for part in self.second(self.norm(x)).chunk(2, -1)))
        pattern = self.pattern(self.scores(q, k)) - 0.4 * self.pattern(other)
        return self.out((pattern @ v).transpose(1, 2).flatten(2))


class FirstValues(nn.Module):
    """Layers whose values are mixed with those of the first one (value residuals), in shares that are fixed, or learned by each layer or
    of each token."""

    def __init__(self, n_layers=3, shares="fixed"):
        super().__init__()
        self.tokens, self.head, self.shares = nn.Embedding(V, D), nn.Linear(D, V), shares
        self.layers, self.feeds = nn.ModuleList(Attends() for _ in range(n_layers)), nn.ModuleList(Feeds() for _ in range(n_layers))
        self.share = nn.ParameterList(nn.Parameter(torch.tensor(0.2 + 0.1 * idx)) for idx in range(n_layers))
        self.of_tokens = nn.Linear(D, H)

    def mixed(self, idx, x, v, first):
        if self.shares == "fixed":
            return 0.5 * (v + first)
        if self.shares == "learned":  # of the first layer too, where both are one
            return (1 - self.share[idx]) * v + self.share[idx] * first.view_as(v)
        return torch.lerp(v, first, self.of_tokens(x).sigmoid().transpose(1, 2)[..., None])

    def forward(self, ids):
        x, first = self.tokens(ids), None
        for idx, (layer, feed) in enumerate(zip(self.layers, self.feeds)):
            q, k, v = layer.heads(x)
            first = v if first is None else first
            out = layer.pattern(layer.scores(q, k)) @ self.mixed(idx, x, v, first)
            x = x + layer.out(out.transpose(1, 2).flatten(2))
            x = x + feed(x)
        return self.head(x)


class RootMean(nn.Module):
    """A norm by the root of the mean square, with a gain."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain


class OfLatents(nn.Module):
    """DeepSeek: keys and values of a narrow vector with a norm, queries perhaps of another one; the last dimensions of a key are those of
    all heads, and alone turn."""

    own, turning, d_value, n_latent = 6, 4, 7, 10

    def __init__(self, narrows_queries=True, shares_keys=True, joins_maps=True):
        super().__init__()
        self.norm, self.narrows_queries, self.turning = RootMean(D), narrows_queries, self.turning if shares_keys else 0
        self.to_queries, self.of_queries = (nn.Linear(D, 12, bias=False), RootMean(12)) if narrows_queries else (None, None)
        self.queries = nn.Linear(12 if narrows_queries else D, H * (self.own + self.turning), bias=False)
        self.to_latent = nn.Linear(D, self.n_latent + self.turning * joins_maps, bias=False)
        self.to_shared = None if joins_maps or not shares_keys else nn.Linear(D, self.turning, bias=False)
        self.of_latent = RootMean(self.n_latent)
        self.expand = nn.Linear(self.n_latent, H * (self.own + self.d_value), bias=False)
        self.out = nn.Linear(H * self.d_value, D, bias=False)

    def turned(self, x):
        angles = torch.arange(x.shape[2])[:, None] / 10_000.0 ** (torch.arange(0, self.turning, 2) / self.turning)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1).flatten(-2)

    def forward(self, x):
        n, x = x.shape[1], self.norm(x)
        q = heads_of(self.queries(self.of_queries(self.to_queries(x)) if self.narrows_queries else x))
        latent = self.to_latent(x)
        k, v = heads_of(self.expand(self.of_latent(latent[..., :self.n_latent]))).split((self.own, self.d_value), -1)
        if self.turning:
            shared = latent[..., self.n_latent:] if self.to_shared is None else self.to_shared(x)
            q = torch.cat((q[..., :self.own], self.turned(q[..., self.own:])), -1)
            k = torch.cat((k, self.turned(shared[:, None]).expand(-1, H, -1, -1)), -1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        pattern = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
        return self.out((pattern @ v).transpose(1, 2).flatten(2))


class Placed(Attends):
    """DETR: rows of positions are added to what queries and keys are made of, or one of both; stored or sines."""

    causal = False

    def __init__(self, is_stored, of=("q", "k")):
        super().__init__()
        self.places, self.of = nn.Embedding(20, D) if is_stored else None, of

    def heads(self, x):
        n, x = x.shape[1], self.norm(x)
        angles = torch.arange(n)[:, None] / 10_000.0 ** (torch.arange(0, D, 2) / D)
        rows = torch.cat([angles.sin(), angles.cos()], 1) if self.places is None else self.places.weight[:n]
        weights, biases = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        return (heads_of(F.linear(x + rows if name in self.of else x, w, b)) for name, w, b in zip("qkv", weights, biases))


class Multiplied(Branches):
    """A residual that is multiplied before each branch is added: by one number (DeepNorm), or by one for each of its values; norms may
    stand after the sum."""

    def __init__(self, *branches, width=1, after=False):
        super().__init__(*branches)
        self.times = nn.ParameterList(nn.Parameter(torch.full((width,), 1.0 + 0.2 * idx)) for idx, _ in enumerate(branches))
        self.after = after

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for layer, times in zip(self.layers, self.times):
            if self.after:
                norm, layer.norm = layer.norm, nn.Identity()
                x, layer.norm = norm(x * times + layer(x)), norm
            else:
                x = x * times + layer(x)
        return self.lm(self.norm(x))


class Squashed(nn.Module):
    """The tanh of every value times a number, gain and bias (dynamic tanh)."""

    def __init__(self):
        super().__init__()
        self.alpha, self.gain, self.bias = nn.Parameter(torch.tensor([0.8])), nn.Parameter(torch.ones(D)), nn.Parameter(torch.zeros(D))

    def forward(self, x):
        return torch.tanh(self.alpha * x) * self.gain + self.bias


def squashing(*branches):
    """A model of branches in which a tanh stands in the place of every norm."""
    model = Branches(*branches)
    model.norm = Squashed()
    for branch in branches:
        branch.norm = Squashed()
    return model


class ClassReads(nn.Module):
    """Patches that see each other, then one token of its own that reads them (class attention)."""

    def __init__(self):
        super().__init__()
        self.rows, self.one, self.head = nn.Linear(5, D), nn.Parameter(torch.randn(1, 1, D)), nn.Linear(D, V)
        self.layers, self.lasts = nn.ModuleList(Attends() for _ in range(2)), nn.ModuleList(Attends() for _ in range(2))
        for layer in (*self.layers, *self.lasts):
            layer.causal = False

    def forward(self, rows):
        x = self.rows(rows)
        for layer in self.layers:
            x = x + layer(x)
        one = self.one
        for layer in self.lasts:
            q, k, v = layer.heads(torch.cat([one, x], 1))
            one = one + layer.out((layer.pattern(layer.scores(q[:, :, :1], k)) @ v).transpose(1, 2).flatten(2))
        return self.head(one[:, 0])


class PassesByBoth(nn.Module):
    """A residual of the layer's input that is added after the feed-forward layer, not before it."""

    def __init__(self):
        super().__init__()
        self.attention, self.between, self.up, self.down = Attends(), nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(3 * D, D)
        self.attention.norm = nn.Identity()

    def forward(self, x):
        return self.down(F.relu(self.up(self.between(x + self.attention(x)))))
