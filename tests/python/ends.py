"""Models as people write them that end in a way of their own, or norm, activate and narrow what they compute in the middle."""

import support  # noqa: F401 first: where torch is not installed, it skips the tests that import this
import torch
from torch import nn
import torch.nn.functional as F

from branches import Attends, Branches, Feeds, heads_of
from styles import D, H, V


class Ends(Branches):
    """A model whose head is a chain of modules, behind the rows of all positions or of the last ones alone."""

    def __init__(self, *head, last=None, after=None):
        super().__init__(Attends(), Feeds())
        self.tail, self.last, self.after = nn.Sequential(*head), last, after

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = x + layer(x)
        y = self.tail(self.norm(x[:, -self.last:] if self.last else x))
        return y[:, -self.after:] if self.after else y


class ActivatesTwice(Feeds):
    """A feed-forward layer with an activation behind both of its maps."""

    def forward(self, x):
        return F.gelu(self.down(F.gelu(self.up(self.norm(x)))))


class NormsHidden(Feeds):
    """A feed-forward layer with a norm between its activation and its second map, with or without a gate."""

    def __init__(self, gated=False):
        super().__init__()
        self.inner, self.gate = nn.LayerNorm(2 * D), nn.Linear(D, 2 * D) if gated else None

    def forward(self, x):
        x = self.norm(x)
        hidden = F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x)
        return self.down(self.inner(hidden))


class Convolves(Feeds):
    """A feed-forward layer of convolutions that read one position each, as in code for sound and time series."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Conv1d(D, 2 * D, 1), nn.Conv1d(2 * D, D, 1)

    def forward(self, x):
        return self.down(F.gelu(self.up(self.norm(x).transpose(1, 2)))).transpose(1, 2)


class NormsHeads(Attends):
    """Attention with a norm of what its heads give: of all together, or of each by itself."""

    def __init__(self, each=False):
        super().__init__()
        self.inner = nn.LayerNorm(D // H if each else D)
        self.each = each

    def forward(self, x):
        q, k, v = self.heads(x)
        z = self.pattern(self.scores(q, k)) @ v
        z = self.inner(z) if self.each else z
        z = z.transpose(1, 2).flatten(2)
        return self.out(z if self.each else self.inner(z))


class Narrow(Attends):
    """Attention whose values are narrower than its queries and keys."""

    def __init__(self, d_value=4):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 2 * D + H * d_value), nn.Linear(H * d_value, D)
        self.widths = [D, D, H * d_value]

    def heads(self, x):
        return (heads_of(part) for part in self.qkv(self.norm(x)).split(self.widths, -1))


class Latent(Attends):
    """Multi-head latent attention as code from scratch has it: keys of a part of their own and a rotated part that all heads share."""

    def __init__(self):
        super().__init__()
        self.q, self.down, self.shared = nn.Linear(D, H * 12), nn.Linear(D, 10), nn.Linear(D, 4)
        self.k, self.v, self.out = nn.Linear(10, H * 8), nn.Linear(10, H * 6), nn.Linear(H * 6, D)
        del self.qkv

    def turned(self, x):
        angles = torch.arange(x.shape[-2])[:, None] / 100.0 ** torch.tensor([0.0, 0.5])
        a, b = x[..., :2], x[..., 2:]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def heads(self, x):
        x = self.norm(x)
        latent, q = self.down(x), heads_of(self.q(x))
        shared = self.turned(self.shared(x)).unsqueeze(1).expand(-1, H, -1, -1)
        q = torch.cat([q[..., :8], self.turned(q[..., 8:])], -1)
        return q, torch.cat([heads_of(self.k(latent)), shared], -1), heads_of(self.v(latent))


class TimesOnes(Branches):
    """A model that multiplies its rows by a mask made of their own shape, which is one everywhere."""

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        seen = x.new_ones(x.shape[:2]).unsqueeze(-1)
        for layer in self.layers:
            x = (x + layer(x) * seen) * seen
        return self.lm(self.norm(x))


class Numbers(nn.Module):
    """nn.Transformer between two series of numbers; the head gives the last ones alone."""

    def __init__(self, given=3, rows=True):
        super().__init__()
        self.source, self.target = nn.Linear(5, 16), nn.Linear(5, 16) if rows else nn.Embedding(V, 16)
        self.both = nn.Transformer(16, 4, 2, 2, 32, batch_first=True)
        self.head, self.given = nn.Linear(16, 2), given

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.both(self.source(source), self.target(target), tgt_mask=mask))[:, -self.given:]


class Others(Attends):
    """Attention in which no token sees itself (LSA, of code for small data sets)."""

    def pattern(self, scores):
        n = scores.shape[-1]
        return scores.masked_fill(torch.eye(n, dtype=torch.bool), torch.finfo(scores.dtype).min).softmax(-1)


class Registers(nn.Module):
    """Patches, learned tokens behind them, and a head that reads the mean of the patches alone."""

    def __init__(self, causal=False):
        super().__init__()
        self.rows, self.registers, self.head = nn.Linear(5, D), nn.Parameter(torch.randn(1, 3, D)), nn.Linear(D, 7)
        self.layers = nn.ModuleList((Attends(), Feeds(), Attends(), Feeds()))
        for layer in self.layers:
            layer.causal = causal

    def forward(self, rows):
        x = torch.cat([self.rows(rows), self.registers], 1)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x[:, :-3].mean(1))


class Before(nn.Module):
    """Attention that adds to nothing, before layers that add to their input."""

    def __init__(self):
        super().__init__()
        self.rows, self.first, self.head = nn.Linear(5, D), Attends(), nn.Linear(D, 7)
        self.layers = nn.ModuleList((Attends(), Feeds()))

    def forward(self, rows):
        x = self.first(self.rows(rows))
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)
