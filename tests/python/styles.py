"""Small models as people write them: one way of writing a transformer each."""

import math

import support  # noqa: F401 first: where torch is not installed, it skips the tests that import this
import torch
from torch import nn
import torch.nn.functional as F

V, D, H = 23, 32, 4  # vocabulary, width, heads


class Turned(nn.Module):
    """A map with inputs first, as GPT-2's Conv1D."""

    def __init__(self, n_in, n_out, bias=True):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(n_in, n_out)), nn.Parameter(torch.zeros(n_out)) if bias else None

    def forward(self, x):
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class FusedBlock(nn.Module):
    def __init__(self, bias, turned):
        super().__init__()
        linear = Turned if turned else nn.Linear
        self.l1, self.l2 = nn.LayerNorm(D, bias=bias), nn.LayerNorm(D, bias=bias)
        self.c_attn, self.c_proj = linear(D, 3 * D, bias=bias), linear(D, D, bias=bias)
        self.fc, self.out = linear(D, 4 * D, bias=bias), linear(4 * D, D, bias=bias)

    def forward(self, x):
        batch, n, width = x.shape
        q, k, v = (y.view(batch, n, H, width // H).transpose(1, 2) for y in self.c_attn(self.l1(x)).split(D, dim=2))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous().view(batch, n, width)
        x = x + self.c_proj(z)
        return x + self.out(F.gelu(self.fc(self.l2(x))))


class Fused(nn.Module):
    """nanoGPT: one map of queries, keys and values, learned positions, tied tables."""

    def __init__(self, bias=True, turned=False, last=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, D), nn.Embedding(20, D)
        self.h = nn.ModuleList(FusedBlock(bias, turned) for _ in range(2))
        self.ln, self.head, self.last = nn.LayerNorm(D, bias=bias), nn.Linear(D, V, bias=False), last
        self.wte.weight = self.head.weight

    def blocks(self, x):
        for block in self.h:
            x = block(x)
        return self.ln(x)

    def hidden(self, ids):
        return self.blocks(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])))

    def forward(self, ids):
        x = self.hidden(ids)
        return (self.head(x[:, [-1]]), None) if self.last else self.head(x)


class OverHeads(Fused):
    """Attention whose softmax runs over heads: the second axis of [batch, head, query, key]."""

    def __init__(self, hides=False):
        super().__init__()
        self.hides = hides

    def blocks(self, x):
        batch, n, width = x.shape
        for block in self.h:
            q, k, v = (y.view(batch, n, H, width // H).transpose(1, 2) for y in block.c_attn(block.l1(x)).split(D, dim=2))
            scores = q @ k.transpose(-2, -1) * (width // H) ** -0.5
            if self.hides:
                scores = scores.masked_fill(torch.ones(n, n).tril() == 0, -1e9)
            x = x + block.c_proj((scores.softmax(1) @ v).transpose(1, 2).reshape(batch, n, width))
            x = x + block.out(F.gelu(block.fc(block.l2(x))))
        return self.ln(x)


class OneHead(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(D, D // H, bias=False) for _ in range(3))
        self.pattern = model.pattern

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * D ** -0.5
        return self.pattern(scores, x.shape[1]) @ self.value(x)


class HeadModules(nn.Module):
    """The lecture's GPT: one module per head, a tril mask, a scale by the width of the model."""

    def __init__(self, dim=-1, projects=True, has_down=True):
        super().__init__()
        self.dim = dim
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(20, D)
        self.layers = nn.ModuleList()
        for _ in range(2):
            layer = nn.Module()
            layer.heads = nn.ModuleList(OneHead(self) for _ in range(H))
            layer.proj = nn.Linear(D, D) if projects else nn.Identity()
            layer.ff = nn.Sequential(nn.Linear(D, 4 * D), nn.ReLU(), nn.Linear(4 * D, D), nn.Dropout(0.2)) if has_down \
                else nn.Sequential(nn.Linear(D, D), nn.ReLU())
            layer.l1, layer.l2 = nn.LayerNorm(D), nn.LayerNorm(D)
            self.layers.append(layer)
        self.norm, self.lm = nn.LayerNorm(D), nn.Linear(D, V)

    def pattern(self, scores, n):
        return F.softmax(scores.masked_fill(torch.ones(n, n).tril() == 0, float("-inf")), dim=self.dim)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for layer in self.layers:
            y = layer.l1(x)
            x = x + layer.proj(torch.cat([head(y) for head in layer.heads], -1))
            x = x + layer.ff(layer.l2(x))
        return self.lm(self.norm(x))


class Rms(nn.Module):
    def __init__(self, width, has_gain=True):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width)) if has_gain else 1.0

    def forward(self, x):
        return self.gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def _angles(x, base):
    d = x.shape[-1]
    return torch.outer(torch.arange(x.shape[-2]).float(), 1 / base ** (torch.arange(0, d, 2).float() / d))


def rotated_by_halves(x):
    half, angles = x.shape[-1] // 2, _angles(x, 10_000.0)
    angles = torch.cat([angles, angles], -1)
    return x * angles.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * angles.sin()


def rotated_in_bfloat16(x):
    """Backward, by a table that is kept in fewer bits."""
    half, angles = x.shape[-1] // 2, _angles(x, 100_000.0)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos + second * sin, second * cos - first * sin], -1)


def rotated_as_complex(x):
    angles = _angles(x, 500_000.0)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


class Llama(nn.Module):
    """Rotary positions, RMS norms, a gated feed-forward layer, keys that heads share."""

    def __init__(self, rotated, n_kv_heads=2, norms_heads=False, norms_turned=False, has_gains=True):
        super().__init__()
        d = D // H
        self.rotated, self.n_kv_heads, self.norms_turned = rotated, n_kv_heads, norms_turned
        self.embed, self.norm, self.out = nn.Embedding(V, D), Rms(D), nn.Linear(D, V, bias=False)
        self.layers = nn.ModuleList()
        for _ in range(2):
            layer = nn.Module()
            layer.wq, layer.wo = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)
            layer.wk, layer.wv = (nn.Linear(D, n_kv_heads * d, bias=False) for _ in range(2))
            layer.w1, layer.w3, layer.w2 = (nn.Linear(*size, bias=False) for size in ((D, 48), (D, 48), (48, D)))
            layer.n1, layer.n2 = Rms(D), Rms(D)
            layer.qn, layer.kn = (Rms(d, has_gains) if norms_heads else nn.Identity() for _ in range(2))
            self.layers.append(layer)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            batch, n, _ = x.shape
            y = layer.n1(x)
            q, k, v = (of(y).view(batch, n, -1, D // H) for of in (layer.wq, layer.wk, layer.wv))
            if self.norms_turned:
                q, k = layer.qn(self.rotated(q.transpose(1, 2))), layer.kn(self.rotated(k.transpose(1, 2)))
            else:
                q, k = self.rotated(layer.qn(q).transpose(1, 2)), self.rotated(layer.kn(k).transpose(1, 2))
            k, v = (z.repeat_interleave(H // self.n_kv_heads, 1) for z in (k, v.transpose(1, 2)))
            scores = q @ k.transpose(-1, -2) / math.sqrt(D // H)
            pattern = (scores + torch.full((n, n), float("-inf")).triu(1)).softmax(-1)
            x = x + layer.wo((pattern @ v).transpose(1, 2).reshape(batch, n, -1))
            y = layer.n2(x)
            x = x + layer.w2(F.silu(layer.w1(y)) * layer.w3(y))
        return self.out(self.norm(x))


class Encoder(nn.Module):
    """torch.nn.TransformerEncoder with a causal mask, sines in a buffer, and tokens times the root of the width."""

    def __init__(self, norm_first=False, batch_first=True):
        super().__init__()
        at, rate = torch.arange(20).unsqueeze(1), torch.exp(torch.arange(0, D, 2) * (-math.log(10000.0) / D))
        self.register_buffer("sines", torch.stack([torch.sin(at * rate), torch.cos(at * rate)], -1).flatten(1))
        layer = nn.TransformerEncoderLayer(D, H, 64, batch_first=batch_first, norm_first=norm_first)
        self.embed, self.encoder, self.out = nn.Embedding(V, D), nn.TransformerEncoder(layer, 2), nn.Linear(D, V)
        self.batch_first = batch_first

    def forward(self, ids):
        x = self.embed(ids) * math.sqrt(D) + self.sines[:ids.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        if self.batch_first:
            return self.out(self.encoder(x, mask=mask))
        return self.out(self.encoder(x.transpose(0, 1), mask=mask)).transpose(0, 1)


class Einsum(nn.Module):
    """Parameters with an axis of heads, multiplied by einsum, as in TransformerLens; no final norm."""

    def __init__(self, has_mlp=True, scale=(D // H) ** -0.5):
        super().__init__()
        d = D // H

        def parameter(*size):
            return nn.Parameter(torch.randn(*size))

        self.W_E, self.W_pos, self.W_U = parameter(V, D), parameter(20, D), parameter(D, V)
        self.has_mlp, self.scale, self.layers = has_mlp, scale, nn.ModuleList()
        for _ in range(2):
            layer = nn.Module()
            layer.W_Q, layer.W_K, layer.W_V = (parameter(H, D, d) for _ in range(3))
            layer.W_O = parameter(H, d, D)
            layer.b_Q, layer.b_K, layer.b_V = (parameter(H, d) for _ in range(3))
            layer.b_O, layer.ln1 = parameter(D), nn.LayerNorm(D)
            if has_mlp:
                layer.ln2, layer.W_in, layer.W_out = nn.LayerNorm(D), parameter(D, 64), parameter(64, D)
                layer.b_in, layer.b_out = parameter(64), parameter(D)
            self.layers.append(layer)

    def forward(self, ids):
        n = ids.shape[1]
        x = self.W_E[ids] + self.W_pos[:n]
        for layer in self.layers:
            y = layer.ln1(x)
            q, k, v = (torch.einsum("bsd,hde->bshe", y, w) + b for w, b in (
                (layer.W_Q, layer.b_Q), (layer.W_K, layer.b_K), (layer.W_V, layer.b_V)))
            scores = torch.einsum("bqhe,bkhe->bhqk", q, k) * self.scale
            pattern = torch.where(torch.ones(n, n).tril().bool(), scores, torch.tensor(-1e5)).softmax(-1)
            z = torch.einsum("bhqk,bkhe->bqhe", pattern, v)
            x = x + (torch.einsum("bqhe,hed->bqd", z, layer.W_O) + layer.b_O)
            if self.has_mlp:
                hidden = F.gelu(layer.ln2(x) @ layer.W_in + layer.b_in, approximate="tanh")
                x = x + (hidden @ layer.W_out + layer.b_out)
        return x @ self.W_U


class Parallel(nn.Module):
    """Branches that read the same residual, ALiBi, and a table of positions stored with one column per position."""

    def __init__(self, shares_norm=True, projects=True, activation=lambda x: F.relu(x) ** 2):
        super().__init__()
        self.embed, self.W_pos, self.out = nn.Embedding(V, D), nn.Parameter(torch.zeros(D, 20)), nn.Linear(D, V)
        self.shares_norm, self.projects, self.activation, self.layers = shares_norm, projects, activation, nn.ModuleList()
        for _ in range(2):
            layer = nn.Module()
            layer.n1, layer.n2, layer.qkv, layer.o = nn.LayerNorm(D), nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
            layer.up, layer.down = nn.Linear(D, 64), nn.Linear(64, D)
            self.layers.append(layer)

    def forward(self, ids):
        batch, n = ids.shape
        x = self.embed(ids) + self.W_pos[:, :n].T
        slopes, at = torch.tensor([2 ** (-8 * (h + 1) / H) for h in range(H)]).view(H, 1, 1), torch.arange(n)
        for layer in self.layers:
            y = layer.n1(x)
            q, k, v = layer.qkv(y).view(batch, n, H, 3 * D // H).chunk(3, -1)
            scores = torch.einsum("bihd,bjhd->bhij", q, k) * (D // H) ** -0.5 + slopes * (at[None, :] - at[:, None])
            pattern = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf).softmax(-1)
            z = (pattern @ v.transpose(1, 2)).transpose(1, 2).flatten(2)
            up = layer.up(y if self.shares_norm else layer.n2(x))
            x = x + (layer.o(z) if self.projects else z) + layer.down(self.activation(up))
        return self.out(x)
