"""What a capture and a probe take the inputs of a model for: other sequences, tables of positions, padding, kinds of tokens, samples."""

import json
import os
import tempfile
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import numpy as np
import torch
from places import needs_program
from safetensors import safe_open
from test_added import findings
from torch import nn

from attnscope import capture
from attnscope._capture import probe
from attnscope._live.inputs import Inputs
from attnscope._live.pytorch import Subject

D, N, N_HEADS = 32, 10, 4


def split(x):
    return x.unflatten(-1, (N_HEADS, -1)).transpose(1, 2)


def attend(q, k, v, hidden=None):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = scores if hidden is None else scores.masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def later(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


class Relative(nn.Module):
    """Attention that is also given a table of distances, [position, batch, width] throughout."""

    def __init__(self):
        super().__init__()
        self.qkv, self.far, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, D)
        self.bias = nn.Parameter(torch.randn(D) * 0.1)

    def forward(self, w, r):
        q, k, v = self.qkv(w).chunk(3, -1)
        q, k, v, r = (x.unflatten(-1, (N_HEADS, -1)) for x in (q + self.bias, k, v, self.far(r)))
        scores = torch.einsum("ibnd,jbnd->ijbn", q, k) + torch.einsum("ibnd,jbnd->ijbn", q, r)
        scores = scores.masked_fill(later(len(w))[:, :, None, None], -torch.inf) / q.shape[-1] ** 0.5
        return self.out(torch.einsum("ijbn,jbnd->ibnd", scores.softmax(1), v).flatten(2))


class Angles(nn.Module):
    def forward(self, n):
        angles = torch.arange(n)[:, None] * 100.0 ** -torch.arange(0, D // N_HEADS, 2).div(D // N_HEADS)
        return torch.cat([angles, angles], -1)[:, : D // N_HEADS]


class Turned(nn.Module):
    """A causal decoder with rotary positions. Where `is_lost`, a pad sees no key at all, which makes its row NaN."""

    def __init__(self, is_lost):
        super().__init__()
        torch.manual_seed(0)
        self.is_lost, self.table, self.angles = is_lost, nn.Embedding(20, D), Angles()
        self.blocks, self.out = nn.ModuleList(nn.Linear(D, 3 * D) for _ in range(2)), nn.Linear(D, 20)

    def forward(self, ids, attention_mask=None):
        n = ids.shape[1]
        hidden = later(n) if attention_mask is None else later(n) | (attention_mask == 0)[:, None, None]
        hidden = hidden if self.is_lost else hidden & ~torch.eye(n, dtype=torch.bool)
        x, angles = self.table(ids), self.angles(n)
        for block in self.blocks:
            q, k, v = (split(part) for part in block(x).chunk(3, -1))
            q, k = (y * angles.cos() + torch.cat([-y[..., 4:], y[..., :4]], -1) * angles.sin() for y in (q, k))
            x = x + attend(q, k, v, hidden)
        return self.out(x)


class Losing(nn.Module):
    """Takes a text for what it reads and, one place later, for its labels, and gives a loss alone."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.reads, self.out = Turned(False), nn.Linear(20, 20)

    def forward(self, ids):
        return nn.functional.cross_entropy(self.out(self.reads(ids[:, :-1])).flatten(0, 1), ids[:, 1:].flatten())


class FirstQueries(nn.Module):
    """Attention whose queries are the first token alone, as of a classifier."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))

    def forward(self, x_q, x_kv, hidden=None):
        return attend(split(self.q(x_q)), split(self.k(x_kv)), split(self.v(x_kv)), hidden)


class Distances(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.layers = nn.Embedding(20, D), nn.ModuleList(Relative() for _ in range(2))

    def forward(self, ids):
        x = self.embed(ids).transpose(0, 1)
        r = torch.sin(torch.arange(len(x))[:, None] / 100 ** (torch.arange(D) / D))[:, None]
        for layer in self.layers:
            x = x + layer(x, r)
        return x.transpose(0, 1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(FirstQueries() for _ in range(2))

    def forward(self, x):
        x = x + self.layers[0](x, x)
        return x[:, :1] + self.layers[1](x[:, :1], x)


class Translator(nn.Module):
    """An encoder, with a causal mask where it `hides`, beside a decoder that reads it or, by mistake, itself."""

    def __init__(self, hides, reads=True):
        super().__init__()
        torch.manual_seed(0)
        self.hides, self.reads = hides, reads
        self.embed = nn.Embedding(20, D)
        self.encoder, self.decoder = (nn.ModuleList(nn.ModuleDict({part: FirstQueries() for part in parts}) for _ in range(2))
                                      for parts in (["self_attn"], ["self_attn", "cross_attn"]))

    def forward(self, src, tgt):
        x, y = self.embed(src), self.embed(tgt)
        for layer in self.encoder:
            x = x + layer["self_attn"](x, x, later(x.shape[1]) if self.hides else None)
        for layer in self.decoder:
            y = y + layer["self_attn"](y, y, later(y.shape[1]))
            y = y + layer["cross_attn"](y, x if self.reads else y)
        return y


class Halves(nn.Module):
    """A causal language model whose two halves are called encoder and decoder."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(20, D)
        self.encoder, self.decoder = (nn.ModuleList(nn.ModuleDict({"self_attn": FirstQueries()}) for _ in range(2)) for _ in range(2))

    def forward(self, ids):
        x = self.embed(ids)
        for layer in [*self.encoder, *self.decoder]:
            x = x + layer["self_attn"](x, x, later(x.shape[1]))
        return x


class Masked(nn.Module):
    """An encoder that hides its padding, or a part of the text in its place; no argument tells padding."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.embed, self.positions = nn.Embedding(20, D, padding_idx=0), nn.Embedding(N, D)
        self.layers = nn.ModuleList(FirstQueries() for _ in range(2))

    def forward(self, ids, seg=None):
        x = self.embed(ids) + self.positions(torch.arange(ids.shape[1]))
        x = x if seg is None else x + seg[..., None]
        pads = ids == 0
        hidden = {"right": pads[:, None, None], "inverted": ~pads[:, None, None], "queries": pads[:, None, :, None] & ~later(ids.shape[1])[0],
                  "ignored": None}[self.kind]
        for layer in self.layers:
            x = x + attend(split(layer.q(x)), split(layer.k(x)), split(layer.v(x)), hidden)
        return x


class Sampling(nn.Module):
    """Attention to keys that are drawn anew in every pass, or a dropout that ignores the mode, alone or beside such keys."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.embed, self.attn = kind, nn.Embedding(20, D), FirstQueries()
        self.noisy = nn.MultiheadAttention(D, N_HEADS, dropout=0.3, batch_first=True)

    def dropped(self, p):
        """A pattern behind a dropout of its kind."""
        n = p.shape[-1]
        if self.kind == "cells":
            return p * torch.randint(0, 2, p.shape) * 2
        if self.kind == "keys":
            keep = torch.zeros(n)
            keep[torch.randperm(n)[:n * 7 // 10]] = 1
            return p * keep / 0.7
        if self.kind == "compared":
            return p * (torch.randint(0, 10, (n,)) > 2)
        if self.kind == "cast":
            return p * torch.randint(0, 2, (n, n)).float() * 2
        if self.kind == "scalars":
            return p * torch.tensor([float(torch.randint(0, 2, ())) for _ in range(n)])
        if self.kind == "numpy":
            return p * torch.from_numpy((np.random.rand(n) > 0.3).astype("float32"))
        if self.kind == "in place":
            return p * torch.empty_like(p).random_(0, 2)
        return p

    def forward(self, ids):
        x = self.embed(ids)
        if self.kind == "dropped":
            return x + nn.functional.dropout(self.attn(x, x), 0.3)
        if self.kind == "queries and keys":  # as ProbSparse attention measures its queries
            n = x.shape[1]
            q, k, v = (split(part(x)) for part in (self.attn.q, self.attn.k, self.attn.v))
            drawn = k[:, :, None].expand(-1, -1, n, -1, -1)[:, :, torch.arange(n)[:, None], torch.randint(n, (n, 4))]
            found = (q[..., None, :] @ drawn.transpose(-1, -2)).squeeze(-2).amax(-1)
            top = found.topk(5).indices[..., None].expand(-1, -1, -1, q.shape[-1])
            mixed = v.mean(2, keepdim=True).expand(-1, -1, n, -1).clone()
            p = (q.gather(2, top) @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
            return x + mixed.scatter(2, top, p @ v).transpose(1, 2).flatten(2)
        if self.kind == "trained":
            x = x + self.noisy.train()(x, x, x, need_weights=False)[0]
        if self.kind in ("numpy", "in place", "trained", "sampled"):
            y = x[:, torch.randint(x.shape[1], (4,))]
        elif self.kind == "permuted":
            y = x.index_select(1, torch.randperm(x.shape[1])[:4])
        else:
            y = x
        q, k, v = split(self.attn.q(x)), split(self.attn.k(y)), split(self.attn.v(y))
        p = self.dropped((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1))
        return x + (p @ v).transpose(1, 2).flatten(2)


class Sources(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.path = os.path.join(self.place.name, "trace.safetensors")

    def recorded(self, model, *args):
        with capture(model.eval(), self.path, values=True), torch.no_grad():
            model(*args)
        with safe_open(self.path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()

    def ids(self, n=N, n_pads=0):
        ids = torch.randint(1, 20, (1, n), generator=torch.Generator().manual_seed(2))
        ids[:, n - n_pads:] = 0 if n_pads else ids[:, n:]
        return ids

    def test_padding_that_shifts_rotary_angles_moves_nothing_by_them(self):
        for is_lost in (False, True):
            probe(Turned(is_lost).eval(), self.ids()[0], self.path, mask="causal")
            with safe_open(self.path, "pt") as file:
                moved, metadata = file.get_tensor("probe.padding.moved"), file.metadata()
            moved = dict(zip(json.loads(metadata["attnscope.modules"]), moved))
            self.assertEqual(moved["angles"].tolist(), [-1, -1])
            # the first layer knows nothing of what a pad became, the second one weighs it
            self.assertLess(moved["blocks.1"].max(), 1e-4)
            self.assertEqual(bool(moved["out"].max() > 1e-4), is_lost)

    def test_a_model_that_gives_its_loss_alone_is_probed_on_what_it_reads(self):
        probe(Losing().eval(), self.ids()[0], self.path, mask="causal")
        with safe_open(self.path, "pt") as file:
            metadata = file.metadata()
            self.assertEqual((metadata["attnscope.output"], len(file.get_tensor("tokens"))), ("out", N - 1))
            self.assertLess(file.get_tensor("probe.future.moved").max(), 1e-6)

    def test_a_table_of_distances_is_no_other_sequence(self):
        arrays, _ = self.recorded(Distances(), self.ids())
        self.assertIn("blocks.0.attn.pattern", arrays)
        self.assertFalse([name for name in arrays if "cross" in name])

    def test_positions_before_the_batch_are_not_taken_for_it(self):
        arrays, _ = self.recorded(Distances(), self.ids())
        self.assertNotIn("blocks.0.resid_pre", arrays)  # a Relative gives no residual
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, N_HEADS, D), 2)
        arrays, _ = self.recorded(model, torch.randn(N, 1, D))
        self.assertEqual(arrays["blocks.1.resid_post"].shape, (N, D))

    def test_some_of_the_tokens_are_the_same_sequence(self):
        arrays, _ = self.recorded(Classifier(), torch.randn(1, N, D))
        self.assertEqual(arrays["blocks.1.attn.pattern"].shape, (N_HEADS, 1, N))
        arrays, _ = self.recorded(Translator(False), self.ids(), self.ids(8))
        self.assertIn("decoder.blocks.1.cross_attn.pattern", arrays)

    def test_padding_is_told_by_the_table_of_embeddings(self):
        arrays, metadata = self.recorded(Masked("right"), self.ids(n_pads=3))
        self.assertEqual(arrays["attention_mask"].tolist(), [1] * (N - 3) + [0] * 3)
        self.assertEqual(metadata["attnscope.attention_mask_name"], "embed.padding_idx")
        self.assertNotIn("attention_mask", self.recorded(Masked("right"), self.ids())[0])

    def test_kinds_of_tokens_are_no_target(self):
        ids = self.ids()
        self.assertEqual(Inputs(Masked("right"), {"ids": ids, "seg": ids * 0 + 1}).places, ["ids"])
        self.assertEqual(Inputs(Translator(False), {"src": ids, "tgt": ids * 0 + 1}).places, ["src", "tgt"])

    def test_functions_that_draw_are_named(self):
        for kind, functions in (("sampled", ["randint"]), ("dropped", ["dropout"])):
            _, metadata = self.recorded(Sampling(kind), self.ids())
            self.assertEqual(json.loads(metadata["attnscope.draws"]), functions)


class Request(dict):
    """A request as the server hands it to the adapter."""

    def tell(self, *_):
        pass

    def stop_if_cancelled(self):
        pass


@needs_program()
class Judged(unittest.TestCase):
    setUp, recorded, ids = Sources.setUp, Sources.recorded, Sources.ids

    def test_a_table_of_distances_is_accused_of_nothing(self):
        self.recorded(Distances(), self.ids())
        self.assertNotIn("mask-shape", findings(self.path))

    def test_a_causal_encoder_beside_a_decoder_is_a_warning(self):
        for hides in (True, False):
            self.recorded(Translator(hides), self.ids(), self.ids(8))
            found = findings(self.path).get("mask-shape", [])
            self.assertEqual([severity for severity, _ in found], ["warning"] * hides, found)

    def test_causal_halves_of_one_model_are_accused_of_nothing(self):
        self.recorded(Halves(), self.ids())
        self.assertNotIn("mask-shape", findings(self.path))

    def test_a_padding_mask_that_is_missing_or_the_wrong_way_round_is_named(self):
        for kind, check in (("right", None), ("ignored", "pad-mass"), ("queries", "pad-mass"), ("inverted", "mask-shape")):
            self.recorded(Masked(kind), self.ids(n_pads=3))
            errors = {name for name, said in findings(self.path).items() if any(severity == "error" for severity, _ in said)}
            self.assertEqual(check in errors if check else not errors, True, (kind, errors))

    def test_a_decoder_that_reads_no_source_is_an_error(self):
        ids, target = self.ids(), self.ids(8)
        for reads in (True, False):
            subject = Subject(Translator(False, reads), None, {"src": ids, "tgt": target})
            _, path = subject.run(Request(probes=True))
            self.addCleanup(os.remove, path)
            found = findings(path).get("context-blind", [])
            self.assertEqual([severity for severity, _ in found], [] if reads else ["error"], found)

    def test_keys_that_are_sampled_are_information(self):
        for kind in ("sampled", "permuted", "queries and keys"):
            probe(Sampling(kind), self.ids(), self.path, mask="bidirectional")
            (severity, said), = findings(self.path)["not-deterministic"]
            self.assertEqual(severity, "info", kind)
            self.assertIn("functions of torch that choose indices drew", said)

    def test_numbers_that_drop_are_an_error_whatever_draws_them(self):
        np.random.seed(0)  # by chance two passes drop the same keys
        for kind in ("dropped", "cells", "keys", "compared", "cast", "scalars", "numpy", "in place", "trained"):
            probe(Sampling(kind), self.ids(), self.path, mask="bidirectional")
            self.assertEqual([s for s, _ in findings(self.path)["not-deterministic"]], ["error"], kind)


if __name__ == "__main__":
    unittest.main()
