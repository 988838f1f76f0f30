"""Models as people write them that add something to their scores, one module for each way."""

import math

import support  # noqa: F401 first: where torch is not installed, it skips the tests that import this
import torch
from torch import nn
import torch.nn.functional as F

from styles import D, H, V


def back(n):
    """query − key."""
    at = torch.arange(n)
    return at[:, None] - at[None, :]


class Buckets(nn.Module):
    """T5: a table with a row for each bucket of distances, all distances alone at first, then ever more together."""

    def __init__(self, n_buckets, furthest, both=False, factor=1.0):
        super().__init__()
        self.rows = nn.Embedding(n_buckets, H)
        self.n_buckets, self.furthest, self.both, self.factor = n_buckets, furthest, both, factor

    def forward(self, n):
        distance, n_buckets, first = back(n), self.n_buckets, 0
        if self.both:
            n_buckets //= 2
            first, distance = (distance < 0).long() * n_buckets, distance.abs()
        else:
            distance = distance.clamp(min=0)
        alone = n_buckets // 2
        far = torch.log(distance.float().clamp(min=1) / alone) / math.log(self.furthest / alone) * (n_buckets - alone)
        far = torch.clamp(alone + far.long(), max=n_buckets - 1)
        return self.factor * self.rows(first + torch.where(distance < alone, distance, far)).permute(2, 0, 1)


class Distances(nn.Module):
    """A value for each head and distance up to a furthest one, which all farther ones share."""

    def __init__(self, furthest, per_head=True):
        super().__init__()
        self.values, self.furthest = nn.Parameter(torch.zeros(*[H] * per_head, 2 * furthest + 1)), furthest

    def forward(self, n):
        return self.values[..., (-back(n)).clamp(-self.furthest, self.furthest) + self.furthest]


class Slopes(nn.Module):
    """ALiBi whose slopes are learned."""

    def __init__(self):
        super().__init__()
        self.slopes = nn.Parameter(torch.zeros(H))

    def forward(self, n):
        return -self.slopes.view(H, 1, 1) * back(n).abs()


class SomeHeads(nn.Module):
    """ALiBi of its own slopes on the first half of the heads."""

    def forward(self, n):
        slopes = torch.cat([0.7 ** torch.arange(1, H // 2 + 1), torch.zeros(H - H // 2)])
        return -slopes[:, None, None] * back(n).abs()


class Pairs(nn.Module):
    """A value for each query and key, of which a text uses as many as it needs."""

    def __init__(self, *shape):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(*shape))

    def forward(self, n):
        return self.table[..., :n, :n]


class Grid(nn.Module):
    """A picture's patches: a table of distances in rows and columns, and a stored index of which row each pair has."""

    def __init__(self, rows, columns, has_first):
        super().__init__()
        n_rows = (2 * rows - 1) * (2 * columns - 1)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(n_rows + 3 * has_first, H))
        places = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")).flatten(1)
        down, right = (places[:, :, None] - places[:, None, :]).unbind()
        index = (down + rows - 1) * (2 * columns - 1) + right + columns - 1
        if has_first:
            index = F.pad(index, (1, 0, 1, 0))
            index[0, :], index[:, 0], index[0, 0] = n_rows, n_rows + 1, n_rows + 2
        self.register_buffer("relative_position_index", index)

    def forward(self, n):
        picked = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        return picked.view(n, n, -1).permute(2, 0, 1)


class Computed(nn.Module):
    """A small network of the distance."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 6), nn.ReLU(), nn.Linear(6, H))

    def forward(self, n):
        return self.net(back(n)[..., None] / 4).permute(2, 0, 1)


class Vectors(nn.Module):
    """Products of queries and a vector of each distance, up to a furthest one, which all farther ones share (Shaw et al.)."""

    def __init__(self, furthest, *shape, scaled=False):
        super().__init__()
        self.table, self.furthest = nn.Parameter(torch.zeros(2 * furthest + 1, *shape)), furthest
        self.factor = math.sqrt(H / D) if scaled else 1.0  # that of products with keys

    def forward(self, q, _):
        n = q.shape[2]
        rows = self.table[(-back(n)).clamp(-self.furthest, self.furthest) + self.furthest]  # [query, key, d]
        return self.factor * torch.einsum("bhqd,qkd->bhqk", q, rows)


class Shifted(nn.Module):
    """Products of queries and vectors of distances that are shifted into place (Music Transformer), perhaps made of sines by a map of
    each head, with biases of queries that distances or keys alone meet (Transformer-XL)."""

    def __init__(self, longest, is_made=False):
        super().__init__()
        self.longest, self.is_made = longest, is_made
        self.rows = nn.Linear(D, D, bias=False) if is_made else nn.Embedding(longest, D // H)
        self.bias, self.of_keys = (nn.Parameter(torch.zeros(H, D // H)) for _ in range(2))

    def forward(self, q, k):
        n = q.shape[2]
        if self.is_made:
            angles = torch.arange(n - 1, -1, -1)[:, None] / 10_000.0 ** (torch.arange(D // 2) * 2 / D)
            rows = self.rows(torch.cat([angles.sin(), angles.cos()], 1)).view(n, H, D // H).transpose(0, 1)  # [head, distance, d]
            q = q + self.bias[:, None]
        else:
            rows = self.rows.weight[self.longest - n:]
        scores = F.pad(q @ rows.transpose(-1, -2), (1, 0)).view(*q.shape[:2], n + 1, n)[:, :, 1:]
        if self.is_made:  # a bias of queries that keys alone meet
            scores = scores + self.of_keys[:, None] @ k.transpose(-1, -2)
        return math.sqrt(H / D) * scores


class OfText(nn.Module):
    """A value for each head and key that is computed from the key's own token."""

    def __init__(self):
        super().__init__()
        self.of_key = nn.Linear(D, H)

    def forward(self, n, normed):
        return self.of_key(normed)[0].T[:, None, :].expand(H, n, n)


class Layer(nn.Module):
    turned = staticmethod(lambda x: x)

    def __init__(self, bias, causal):
        super().__init__()
        self.qkv, self.o, self.norm, self.bias, self.causal = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.LayerNorm(D), bias, causal
        self.up, self.down, self.last = nn.Linear(D, 2 * D), nn.Linear(2 * D, D), nn.LayerNorm(D)

    def forward(self, x, bias):
        batch, n, _ = x.shape
        normed = self.norm(x)
        q, k, v = (y.view(batch, n, H, -1).transpose(1, 2) for y in self.qkv(normed).chunk(3, -1))
        if isinstance(self.bias, OfText):
            bias = self.bias(n, normed)
        elif isinstance(self.bias, (Vectors, Shifted)):
            bias = self.bias(q, k)
        elif self.bias is not None:
            bias = self.bias(n)
        q, k = self.turned(q), self.turned(k)
        hidden = torch.full((n, n), -math.inf).triu(1) if self.causal else torch.zeros(n, n)
        # One mask of numbers holds both, as F.scaled_dot_product_attention takes it.
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=(hidden + bias).expand(1, H, n, n))
        x = x + self.o(z.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.last(x))))


class Biased(nn.Module):
    """A model whose scores have something added: by one module for all of its layers, or by one for each."""

    def __init__(self, make, shared=False, causal=True, n_layers=3):
        super().__init__()
        self.tokens, self.bias = nn.Embedding(V, D), make() if shared else None
        self.layers = nn.ModuleList(Layer(None if shared else make(), causal) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, ids):
        x = self.tokens(ids)
        bias = None if self.bias is None else self.bias(ids.shape[1])
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(self.norm(x))


class GatedBlock(nn.Module):
    """Attention whose heads are multiplied by a sigmoid of its input, and whose queries and keys have a norm of each head."""

    def __init__(self, n_gates, n_kv_heads):
        super().__init__()
        width = D // H
        self.norm, self.width = nn.LayerNorm(D), width
        self.q, self.kv, self.o = nn.Linear(D, D), nn.Linear(D, 2 * n_kv_heads * width), nn.Linear(D, D)
        self.gate = nn.Linear(D, n_gates)
        self.q_gain = nn.Parameter(torch.ones(H, 1, width))
        self.k_gain = nn.Parameter(torch.ones(n_kv_heads, 1, width))
        self.up, self.down, self.last = nn.Linear(D, 2 * D), nn.Linear(2 * D, D), nn.LayerNorm(D)

    def forward(self, x):
        batch, n, _ = x.shape
        y = self.norm(x)
        q, (k, v) = self.q(y), self.kv(y).chunk(2, -1)
        q, k, v = (z.view(batch, n, -1, self.width).transpose(1, 2) for z in (q, k, v))
        q, k = (z * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-6) * gain for z, gain in ((q, self.q_gain), (k, self.k_gain)))
        k, v = (z.repeat_interleave(H // z.shape[1], 1) for z in (k, v))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        opened = torch.sigmoid(self.gate(y)).view(batch, n, H, -1)
        x = x + self.o((z.transpose(1, 2) * opened).flatten(2))
        return x + self.down(F.gelu(self.up(self.last(x))))


class Gated(nn.Module):
    def __init__(self, n_gates=D, n_kv_heads=H):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, D), nn.Embedding(20, D)
        self.blocks = nn.Sequential(*(GatedBlock(n_gates, n_kv_heads) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions(torch.arange(ids.shape[1])))))


class SinkBlock(nn.Module):
    """Attention with one more column of scores, which takes probability and is cut off again; or 1 added to what divides a row."""

    def __init__(self, is_learned):
        super().__init__()
        self.norm, self.qkv, self.o = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.sinks = nn.Parameter(torch.zeros(H)) if is_learned else None

    def forward(self, x):
        batch, n, _ = x.shape
        q, k, v = (y.view(batch, n, H, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(D // H)).masked_fill(back(n) < 0, -math.inf)
        if self.sinks is None:
            e = torch.exp(scores)
            pattern = e / (1 + e.sum(-1, keepdim=True))
        else:
            sinks = self.sinks.view(1, H, 1, 1).expand(batch, H, n, 1)
            pattern = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        return x + self.o((pattern @ v).transpose(1, 2).flatten(2))


class Sinks(nn.Module):
    def __init__(self, is_learned=True):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, D), nn.Embedding(20, D)
        self.blocks = nn.Sequential(*(SinkBlock(is_learned) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions(torch.arange(ids.shape[1])))))
