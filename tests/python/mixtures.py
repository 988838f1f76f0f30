"""Mixtures of experts as people write them: one way of choosing, weighing and storing experts each."""

import support  # noqa: F401 first: where torch is not installed, it skips the tests that import this
import torch
from torch import nn
import torch.nn.functional as F

from styles import D, Fused

W = 24  # width of an expert


class Expert(nn.Module):
    """down(silu(gate x) * up x), or plain with ReLU."""

    def __init__(self, gated=True):
        super().__init__()
        self.up, self.down = nn.Linear(D, W), nn.Linear(W, D)
        self.gate = nn.Linear(D, W) if gated else None

    def forward(self, x):
        return self.down(F.relu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x))


class Chosen(nn.Module):
    """The best two of some experts, each run on the rows that choose it alone."""

    def __init__(self, n=4, gated=True):
        super().__init__()
        self.router, self.experts = nn.Linear(D, n), nn.ModuleList(Expert(gated) for _ in range(n))

    def weights(self, x):
        best, chosen = self.router(x).topk(2, -1)
        return best.softmax(-1), chosen

    def run(self, expert, x):
        return self.experts[expert](x)

    def forward(self, x):
        rows = x.flatten(0, 1)
        weights, chosen = self.weights(rows)
        total = torch.zeros_like(rows)
        for expert in range(self.router.out_features):
            at, nth = torch.where(chosen == expert)
            if len(at):
                total[at] += self.run(expert, rows[at]) * weights[at, nth, None]
        return total.view_as(x)


class Every(Chosen):
    """All experts run on all rows; `soft` weighs all of them, and nothing is chosen."""

    def __init__(self, soft):
        super().__init__(3, gated=False)
        self.soft = soft

    def forward(self, x):
        logits = self.router(x)
        weights = logits.softmax(-1)
        if not self.soft:
            best, chosen = weights.topk(2, -1)
            weights = torch.zeros_like(weights).scatter(-1, chosen, best)
        return (torch.stack([expert(x) for expert in self.experts], -1) * weights[..., None, :]).sum(-1)


class Switched(Chosen):
    """One expert for each row."""

    def weights(self, x):
        best, chosen = self.router(x).softmax(-1).max(-1)
        return best[:, None], chosen[:, None]


class Stored(Chosen):
    """Sigmoids, a bias that only chooses, a factor, an expert for all rows, and the others in tensors of three axes."""

    def __init__(self, n=5, out_first=False):
        super().__init__(n)
        del self.experts
        shapes = ((n, 2 * W, D), (n, D, W)) if out_first else ((n, D, 2 * W), (n, W, D))
        self.bias, self.gate_up, self.down = nn.Parameter(torch.randn(n)), *(nn.Parameter(torch.randn(s)) for s in shapes)
        self.out_first, self.shared, self.share = out_first, Expert(), nn.Linear(D, 1, bias=False)

    def weights(self, x):
        scores = self.router(x).sigmoid()
        chosen = (scores + self.bias).topk(2, -1)[1]
        weights = scores.gather(1, chosen)
        return 2.5 * weights / (weights.sum(-1, keepdim=True) + 1e-20), chosen

    def run(self, expert, x):
        into, out = self.gate_up[expert], self.down[expert]
        gate, up = (x @ (into.T if self.out_first else into)).chunk(2, -1)
        return F.silu(gate) * up @ (out.T if self.out_first else out)

    def forward(self, x):
        return super().forward(x) + self.share(x).sigmoid() * self.shared(x)


class Slab(nn.Module):
    """Experts in tensors of three axes with biases, of which each row gathers the two that it chooses, or all run on all rows."""

    def __init__(self, gathers, gated, n=4):
        super().__init__()
        self.router, self.gathers, self.gated = nn.Linear(D, n), gathers, gated
        self.into = nn.Parameter(torch.randn(n, D, W * (1 + gated)))
        self.into_bias = nn.Parameter(torch.randn(n, W * (1 + gated)))
        self.out, self.out_bias = nn.Parameter(torch.randn(n, W, D)), nn.Parameter(torch.randn(n, D))

    def hidden(self, x):
        return F.relu(x) if not self.gated else F.silu(x[..., ::2]) * x[..., 1::2]

    def forward(self, x):
        logits = self.router(x)
        best, chosen = logits.topk(2, -1)
        weights = best.softmax(-1)
        if self.gathers:
            hidden = self.hidden(torch.einsum("btd,btkdw->btkw", x, self.into[chosen]) + self.into_bias[chosen])
            each = torch.einsum("btkw,btkwd->btkd", hidden, self.out[chosen]) + self.out_bias[chosen]
            return (each * weights[..., None]).sum(2)
        weights = torch.zeros_like(logits).scatter(-1, chosen, weights)
        hidden = self.hidden(torch.einsum("btd,edw->btew", x, self.into) + self.into_bias)
        return ((torch.einsum("btew,ewd->bted", hidden, self.out) + self.out_bias) * weights[..., None]).sum(2)


class Mixture(Fused):
    """nanoGPT with a feed-forward layer of one's own in each block."""

    def __init__(self, *layers):
        super().__init__()
        for block, layer in zip(self.h, layers):
            block.fc, block.out = nn.Identity(), layer

    def blocks(self, x):
        for block in self.h:
            # The block adds out(gelu(fc(·))); an Expert or a mixture takes the row as it is.
            x = x + self.attention(block, block.l1(x))
            x = x + block.out(block.l2(x))
        return self.ln(x)

    @staticmethod
    def attention(block, x):
        batch, n, width = x.shape
        q, k, v = (y.view(batch, n, 4, width // 4).transpose(1, 2) for y in block.c_attn(x).split(D, dim=2))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return block.c_proj(z.transpose(1, 2).reshape(batch, n, width))
