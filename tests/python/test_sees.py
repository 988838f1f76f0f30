"""Attention is seen wherever it is computed, and only there."""

import json
import math
import os
import sys
import types
import unittest

from support import Attention, Case, Model, batch, loss_of, needs
import torch
from torch import nn

from attnscope import Monitor, capture

N, T, H, D = 3, 12, 4, 8


def calls_of(path):
    """What a trace says of each attention."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return json.loads(header["__metadata__"]["attnscope.calls"])


def flash(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
          deterministic=False, return_attn_probs=False):
    """What flash_attn computes, [batch, position, head, d]; written so that nobody sees a softmax in it."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    n, m = scores.shape[-2:]
    distance = torch.arange(n)[:, None] + m - n - torch.arange(m)
    if alibi_slopes is not None:
        scores = scores - alibi_slopes[:, None, None] * distance.abs()
    hidden = torch.zeros(n, m, dtype=torch.bool)
    if causal:
        hidden |= distance < 0
    if window_size[0] >= 0:
        hidden |= distance > window_size[0]
    if window_size[1] >= 0 and not causal:
        hidden |= -distance > window_size[1]
    weights = torch.exp(scores.masked_fill(hidden, -math.inf))
    return (weights / weights.sum(-1, keepdim=True) @ v).transpose(1, 2)


def flash_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, **options):
    parts = [flash(q[a:b][None], k[c:d][None], v[c:d][None], **options)[0] for a, b, c, d in zip(
        cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_k, cu_seqlens_k[1:])]
    return torch.cat(parts)


class Fake:
    """A package flash_attn for the length of a test."""

    def __enter__(self):
        self.module = types.ModuleType("flash_attn")

        def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                            alibi_slopes=None, deterministic=False, return_attn_probs=False):
            return flash(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)

        def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                                   softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None):
            return flash_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=softmax_scale,
                                causal=causal, window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes)

        def flash_attn_qkvpacked_func(qkv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
                                      softcap=0.0, alibi_slopes=None, deterministic=False):
            return flash(*qkv.unbind(2), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)

        for function in (flash_attn_func, flash_attn_varlen_func, flash_attn_qkvpacked_func):
            setattr(self.module, function.__name__, function)
        sys.modules["flash_attn"] = self.module
        return self.module

    def __exit__(self, *_):
        del sys.modules["flash_attn"]


class Calls(nn.Module):
    """Queries, keys and values of a linear layer, handed to a function as [batch, position, head, d]."""

    def __init__(self, function, kv_heads=H, written=None):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, kv_heads * D), nn.Linear(32, kv_heads * D)
        self.call = function

    def forward(self, x):
        q, k, v = (f(x).view(*x.shape[:2], -1, D) * 3 for f in (self.q, self.k, self.v))
        return self.call(q, k, v)


class Looked(Case):
    def values(self, module, *inputs, n_layers=1, **options):
        """The one record of a pass in training mode, with the statistics of all rows."""
        module.train()
        options = {"rows": 0, "statistics": "all", **options}
        with self.quiet(), Monitor(module, self.path, **options) as monitor:
            module(*inputs)
            record = monitor.step(0)
            self.assertIsNone(monitor.error)
        self.assertIsNotNone(record, "nothing was seen")
        self.assertEqual(len(record["values"]["entropy"]), n_layers)
        os.remove(self.path)
        return record["values"]

    def same(self, a, b, but=()):
        for name in a:
            if name in but:
                continue
            for x, y in zip(sum(a[name], []), sum(b[name], [])):
                x, y = (math.nan if v is None else float(v) for v in (x, y))
                self.assertTrue(math.isnan(x) and math.isnan(y) or abs(x - y) < 1e-4 * max(1, abs(y)), f"{name}: {x} and {y}")

    def by_hand(self, causal=False, window=None, softcap=None, slopes=None, scale=D ** -0.5):
        def run(q, k, v):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
            s = q @ k.transpose(-1, -2) * scale
            if softcap:
                s = torch.tanh(s / softcap) * softcap
            n, m = s.shape[-2:]
            distance = torch.arange(n)[:, None] + m - n - torch.arange(m)
            if slopes is not None:
                s = s - slopes[:, None, None] * distance.abs()
            if causal:
                s = s.masked_fill(distance < 0, -math.inf)
            if window is not None:
                s = s.masked_fill(distance > window, -math.inf)
            return (s.softmax(-1) @ v).transpose(1, 2)

        return run

    def pair(self, kernel, kv_heads=H, **options):
        """A module that calls a kernel, against one with the same weights and a softmax by hand."""
        torch.manual_seed(5)
        one, two = Calls(kernel, kv_heads), Calls(self.by_hand(**options), kv_heads)
        two.load_state_dict(one.state_dict())
        x = torch.randn(N, T, 32)
        self.same(self.values(one, x), self.values(two, x))


class Sees(Looked):
    def test_sdpa(self):
        sdpa = nn.functional.scaled_dot_product_attention

        def turned(**options):
            return lambda q, k, v: sdpa(*(x.transpose(1, 2) for x in (q, k, v)), **options).transpose(1, 2)

        causal = torch.ones(T, T).tril()
        self.pair(turned())
        self.pair(turned(is_causal=True), causal=True)
        self.pair(turned(attn_mask=causal == 1), causal=True)
        self.pair(turned(attn_mask=causal.log()), causal=True)
        self.pair(turned(attn_mask=(causal - 1) * 1e9), causal=True)
        self.pair(turned(attn_mask=(causal == 1).expand(N, H, T, T)), causal=True)
        self.pair(turned(attn_mask=(causal == 1).expand(N, 1, T, T)), causal=True)
        self.pair(turned(scale=0.1, is_causal=True), causal=True, scale=0.1)
        self.pair(turned(enable_gqa=True, is_causal=True), causal=True, kv_heads=2)

    def test_a_mask_that_hides_all_of_a_row(self):
        mask = torch.ones(T, T, dtype=torch.bool)
        mask[3] = False
        values = self.values(Calls(lambda q, k, v: nn.functional.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask)), torch.randn(N, T, 32))
        self.assertTrue(all(isinstance(v, float) for v in values["entropy"][0] + values["score_std"][0]))

    def test_flash_attn(self):
        slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
        with Fake() as package:
            for options in ({}, {"causal": True}, {"causal": True, "softcap": 2.0}, {"causal": True, "alibi_slopes": slopes},
                            {"causal": True, "window_size": (4, 0)}, {"softmax_scale": 0.2}):
                with self.subTest(**{k: str(v) for k, v in options.items()}):
                    def kernel(q, k, v, options=options):
                        return package.flash_attn_func(q, k, v, **options)

                    self.pair(kernel, causal=options.get("causal", False), softcap=options.get("softcap"),
                              slopes=options.get("alibi_slopes"), window=4 if "window_size" in options else None,
                              scale=options.get("softmax_scale", D ** -0.5), kv_heads=2)
            self.pair(lambda q, k, v: package.flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), causal=True), causal=True)
            # named elsewhere, and given to a module
            named = types.ModuleType("someones_model")
            named.attend = package.flash_attn_func
            sys.modules["someones_model"] = named
            self.addCleanup(sys.modules.pop, "someones_model")
            self.pair(lambda q, k, v: named.attend(q, k, v, causal=True), causal=True)
            self.assertIs(named.attend, package.flash_attn_func)
            self.pair(package.flash_attn_func)

    def test_flash_attn_with_packed_sequences(self):
        begins = torch.tensor([0, T, 2 * T, 3 * T], dtype=torch.int32)
        with Fake() as package:
            def kernel(q, k, v):
                q, k, v = (x.flatten(0, 1) for x in (q, k, v))
                return package.flash_attn_varlen_func(q, k, v, begins, begins, T, T, causal=True).unflatten(0, (N, T))

            self.pair(kernel, causal=True, kv_heads=2)

            def uneven(q, k, v):
                q, k, v = (x.flatten(0, 1) for x in (q, k, v))
                at = torch.tensor([0, 5, 36], dtype=torch.int32)
                return package.flash_attn_varlen_func(q, k, v, at, at, 31, 31, causal=True).unflatten(0, (N, T))

            values = self.values(Calls(uneven), torch.randn(N, T, 32))
            self.assertTrue(all(0 < v < math.log(31) for v in values["entropy"][0]))

    def test_flex_attention(self):
        try:
            from torch.nn.attention import flex_attention as flex
        except ImportError:
            self.skipTest("this torch has no flex_attention")

        def causal(b, h, q, k):
            return q >= k

        slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])

        def sloped(score, b, h, q, k):
            return score - slopes[h] * (q - k).abs()

        mask = flex.create_block_mask(causal, None, None, T, T, device="cpu")

        def turned(**options):
            return lambda q, k, v: flex.flex_attention(*(x.transpose(1, 2) for x in (q, k, v)), **options).transpose(1, 2)

        with torch.no_grad():
            options = {"evaluation": True}
            for given, same in (({"block_mask": mask}, {"causal": True}),
                                ({"block_mask": mask, "score_mod": sloped}, {"causal": True, "slopes": slopes}),
                                ({"block_mask": mask, "enable_gqa": True}, {"causal": True})):
                kv_heads = 2 if "enable_gqa" in given else H
                torch.manual_seed(5)
                one, two = Calls(turned(**given), kv_heads), Calls(self.by_hand(**same), kv_heads)
                two.load_state_dict(one.state_dict())
                x = torch.randn(N, T, 32)
                self.same(self.values(one, x, **options), self.values(two, x, **options))

    def test_multihead_attention_in_every_form(self):
        x, y = torch.randn(N, T, 32), torch.randn(N, 7, 32)

        class Wrapped(nn.Module):
            def __init__(self, **options):
                super().__init__()
                torch.manual_seed(2)
                self.mha, self.options = nn.MultiheadAttention(32, H, batch_first=True), options

            def forward(self, x, y):
                return self.mha(x, y, y, **self.options)[0]

        first = self.values(Wrapped(need_weights=False), x, x)
        self.same(self.values(Wrapped(need_weights=True), x, x), first)
        hidden = nn.Transformer.generate_square_subsequent_mask(T)
        self.same(self.values(Wrapped(need_weights=True, attn_mask=hidden), x, x),
                  self.values(Wrapped(need_weights=False, attn_mask=hidden, is_causal=True), x, x))
        cross = self.values(Wrapped(need_weights=True), x, y)
        self.same(self.values(Wrapped(need_weights=False), x, y), cross)
        self.assertEqual(cross["previous_mass"][0], ["NaN"] * H)

    def test_the_fused_path_of_evaluation(self):
        layer = nn.TransformerEncoderLayer(32, H, 48, dropout=0.0, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 2).eval()
        x = torch.randn(N, T, 32)
        padding = torch.zeros(N, T, dtype=torch.bool)
        padding[:, 9:] = True
        with torch.no_grad():
            expected = encoder(x, src_key_padding_mask=padding)
            with self.quiet(), Monitor(encoder, self.path, rows=0, evaluation=True) as monitor:
                out = encoder(x, src_key_padding_mask=padding)
                record = monitor.step(0)
            self.assertTrue(torch.equal(out, expected))
            short = encoder(x[:, :9])
        self.assertEqual(len(record["values"]["entropy"]), 2)
        self.assertTrue(torch.allclose(out[:, :9], short, atol=1e-5))
        encoder.train()
        os.remove(self.path)
        short = self.values(encoder, x[:, :9], n_layers=2, statistics=list(record["values"]))
        self.same(short, record["values"], but=("pad_mass",))

    def test_softmax_over_queries(self):
        class Wrong(Attention):
            def forward(self, x):
                q, k, v = (y.view(*x.shape[:2], H, D).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
                return ((q @ k.transpose(-1, -2) * 3).softmax(-2) @ v).transpose(1, 2).flatten(2)

        values = self.values(Wrong(), torch.randn(N, T, 32))
        self.assertEqual(values["entropy"][0], ["NaN"] * H)  # rows are no distributions
        self.assertIsInstance(values["score_std"][0][0], float)

    def test_what_is_no_attention(self):
        class Router(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.router, self.experts = Attention(), nn.Linear(32, 4), nn.Linear(32, 128)

            def forward(self, x):
                x = self.inner(x)
                weights = self.router(x).softmax(-1)
                mixed = (self.experts(x).unflatten(-1, (4, 32)) * weights[..., None]).sum(-2)
                similar = nn.functional.normalize(mixed[:, 0]) @ nn.functional.normalize(x[:, 0]).T
                return mixed + similar.softmax(-1).sum()

        self.values(Router(), torch.randn(N, T, 32))

    def test_streams_of_a_residual_are_no_attention(self):
        class Streams(nn.Module):
            """Four residuals, mixed by weights that are made of them (hyper-connections, arXiv 2409.19606)."""

            def __init__(self):
                super().__init__()
                self.inner, self.norm, self.mix = Attention(), nn.LayerNorm(32), nn.Parameter(torch.randn(32, 5))

            def forward(self, x):
                x = x[..., None, :].expand(-1, -1, 4, -1)
                for _ in range(2):
                    mixed = torch.einsum("...io, ...id -> ...od", (self.norm(x) @ self.mix).tanh(), x)
                    read, x = mixed[..., 0, :], mixed[..., 1:, :]
                    x = x + torch.einsum("bnd, bns -> bnsd", self.inner(read), x[..., 0])
                return x.sum(-2)

        model = Streams().eval()
        with capture(model, self.path), torch.no_grad():
            model(torch.randn(1, T, 32))
        self.assertEqual([record["kind"] for record in calls_of(self.path)], ["softmax"] * 2)

    def test_heads_that_a_layer_mixes_after_the_softmax(self):
        class Talking(Attention):
            def __init__(self, mix):
                super().__init__()
                self.mix, self.is_linear = mix, isinstance(mix, nn.Linear)

            def forward(self, x):
                q, k, v = (y.view(*x.shape[:2], H, D).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
                p = (q @ k.transpose(-1, -2)).softmax(-1)
                p = self.mix(p.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) if self.is_linear else self.mix(p)
                return (p @ v).transpose(1, 2).flatten(2)

        for mix in (nn.Linear(H, H), nn.Conv2d(H, H, 1)):
            model = Talking(mix).eval()
            with capture(model, self.path), torch.no_grad():
                model(torch.randn(1, T, 32))
            self.assertEqual(calls_of(self.path)[0]["after"], ["mix"])
            os.remove(self.path)

    def test_a_shared_module_is_as_many_layers(self):
        class Shared(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Attention()

            def forward(self, x):
                for _ in range(3):
                    x = x + self.block(x)
                return x

        with Monitor(Shared(), self.path, rows=0) as monitor:
            monitor.entry.given(torch.randn(N, T, 32))
            monitor.step(0)
        head = self.lines()[0]
        self.assertEqual([(layer["name"], layer["layer"]) for layer in head["layers"]],
                         [("block#0", 0), ("block#1", 1), ("block#2", 2)])

    def test_heads_that_differ_by_layer_and_modules_of_one_head(self):
        class Heads(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.heads = nn.ModuleList(Head() for _ in range(n))

            def forward(self, x):
                return x + sum(head(x) for head in self.heads)

        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v = (nn.Linear(32, 8) for _ in range(3))
                self.o = nn.Linear(8, 32)

            def forward(self, x):
                return self.o((self.q(x) @ self.k(x).transpose(-1, -2) / 8 ** 0.5).softmax(-1) @ self.v(x))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Heads(3), Heads(3)])

            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                return x

        values = self.values(Net(), torch.randn(N, T, 32), n_layers=2)
        self.assertEqual([len(layer) for layer in values["entropy"]], [3, 3])
        model = Model()
        model.blocks[1].attn = Attention(32, 8)
        with Monitor(model, self.path, rows=0) as monitor:
            loss_of(model, batch())
            record = monitor.step(0)
        self.assertEqual([len(layer) for layer in record["values"]["entropy"]], [4, 8])
        self.assertEqual([layer["n_heads"] for layer in self.lines()[0]["layers"]], [4, 8])

    def test_no_batch_and_no_heads(self):
        class Bare(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v = (nn.Linear(32, 16) for _ in range(3))

            def forward(self, x):
                return torch.softmax(self.q(x) @ self.k(x).T / 4, dim=-1) @ self.v(x)

        torch.manual_seed(0)
        bare, x = Bare(), torch.randn(T, 32)
        values = self.values(bare, x)
        s = bare.q(x) @ bare.k(x).T / 4
        self.assertAlmostEqual(values["score_max"][0][0], float(s.detach().max()), places=5)

    def test_sampled_rows_stand_for_all(self):
        model, ids = Model(), batch(16, 48)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1.5)
        for block in model.blocks:
            block.attn.drop.p = 0.0
        every = self.values(model, ids, n_layers=2)
        some = self.values(model, ids, n_layers=2, rows=64)
        again = self.values(model, ids, n_layers=2, rows=64)
        self.assertEqual(some, again)
        for name in ("entropy", "entropy_relative", "score_std", "q_norm", "k_norm", "first_key_mass"):
            for a, b in zip(sum(every[name], []), sum(some[name], [])):
                self.assertAlmostEqual(a, b, delta=0.15 * abs(a) + 0.01, msg=name)

    def test_transforms_of_functions_are_left_alone(self):
        model = Model()
        model.eval()
        parameters = dict(model.named_parameters())

        def loss(parameters, ids):
            return torch.func.functional_call(model, parameters, (ids[None],)).square().mean()

        expected = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, batch())
        with Monitor(model, self.path, rows=0, evaluation=True) as monitor:
            found = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, batch())
            self.assertIsNone(monitor.step(0))
            self.assertIn("vmap", monitor.why_nothing())
            self.assertIsNone(monitor.error)
            torch.func.functional_call(model, parameters, (batch(),))
            self.assertIsNotNone(monitor.step(1))
        for name in expected:
            self.assertTrue(torch.equal(expected[name], found[name]))


@needs("transformers")
class Interface(Looked):
    def test_a_kernel_under_a_name_of_flash(self):
        from transformers import LlamaConfig, LlamaForCausalLM
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        def hidden(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
            out = flash(*(x.transpose(1, 2) for x in (query, key, value)), causal=True, softmax_scale=scaling)
            return out, None

        ALL_ATTENTION_FUNCTIONS.register("kernel_of_a_test", hidden)
        config = LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                             num_key_value_heads=2, vocab_size=50, max_position_embeddings=64)
        found = {}
        for name in ("eager", "kernel_of_a_test"):
            torch.manual_seed(0)
            config._attn_implementation = name
            found[name] = self.values(LlamaForCausalLM(config), batch(), n_layers=2)
        self.same(found["eager"], found["kernel_of_a_test"])


if __name__ == "__main__":
    unittest.main()
