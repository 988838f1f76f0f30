"""A residual that is multiplied between its branches, value by value, as a batch norm does in evaluation.

With x = gain * u + offset, u is a plain sum of branches: maps that read x take gain and offset into their weights, and maps that write
to it are divided by the gain.
"""

from __future__ import annotations

import torch

from .experts import Experts
from .fitting import close, random
from .tracing import Unnamed, function


class Scaled:
    """What the residual is made of the plain sum of its branches: gain and offset [d_model]."""

    def __init__(self, d_model):
        self.gain, self.offset = torch.ones(d_model, dtype=torch.float64), torch.zeros(d_model, dtype=torch.float64)
        self.is_plain = True

    def follow(self, p, source, target, n):
        """Whether `target` is `source` times a gain plus an offset, which are then part of this."""
        d_model = len(self.gain)
        f = function(p, source, target)
        offset = f(torch.zeros(n, d_model, dtype=torch.float64))
        x = random(n, d_model, seed=80)
        gain = (f(x) - offset)[:1] / x[:1]
        if offset.shape != x.shape or not close(offset, offset[:1].expand_as(offset)) and float(offset.abs().max()) > 1e-12 \
                or not close(x * gain, f(x) - offset, 1e-9) or float(gain.abs().min()) < 1e-12:
            return False
        self.gain, self.offset, self.is_plain = gain[0] * self.gain, gain[0] * self.offset + offset[0], False
        return True

    def read_by(self, of):
        """A map (weight [..., in], bias) of the residual, as one of the plain sum."""
        return of if of is None else (of[0] * self.gain, of[1] + of[0] @ self.offset)

    def put(self, layer, branch):
        """Puts gain and offset into the maps of a branch that was just read."""
        if self.is_plain:
            return
        if branch not in ("attn", "mlp") or any(not place.endswith("post") for place in layer.norms):
            raise Unnamed("the residual is multiplied between branches that have norms of their own, or run at once")
        if branch == "attn":
            attention = layer.attention
            for m in (attention.q, attention.k, attention.v):
                if m.own is not None or any(one is not None for one in attention.places):
                    raise Unnamed("the residual is multiplied between branches, and heads read latent vectors with norms or rows of positions", [m.node])
                m.weight, m.bias = self.read_by((m.weight, m.bias))
            attention.o, attention.o_bias = attention.o / self.gain[:, None, None], attention.o_bias / self.gain
            if attention.gate is not None:
                raise Unnamed("the residual is multiplied between branches, and the outputs of heads are gated", [attention.node])
            return
        mlp = layer.mlp
        if isinstance(mlp, Experts) or mlp.down is None or mlp.after is not None:
            raise Unnamed("the residual is multiplied between branches, and a feed-forward layer has experts or no second map")
        mlp.up, mlp.gate = self.read_by(mlp.up), self.read_by(mlp.gate)
        mlp.down = mlp.down[0] / self.gain[:, None], mlp.down[1] / self.gain

    def put_head(self, reading):
        """Puts gain and offset into the first map of the head."""
        if self.is_plain:
            return
        head = reading.head
        has_norm = reading.final_norm is not None or head.pooled_norm is not None
        if head.unembed is None or has_norm or head.pooled == "max" or any(
                place.endswith("post") for layer in reading.layers for place in layer.norms):
            raise Unnamed("the residual is multiplied between branches, and normed or given as it is at the end")
        if head.dense is not None:
            head.dense = self.read_by(head.dense)
        else:
            head.unembed = self.read_by(head.unembed)
        reading.notes.append("the residual is multiplied between branches, as batch norms do: maps that read it and write it hold the "
                             "factors, and residuals are those without them")
