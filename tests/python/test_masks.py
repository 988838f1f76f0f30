"""What the monitor says of masks: the kind that the sampled rows prove, whatever code made it."""

import json
import math
import os
import unittest

from support import Case, Model, batch
import torch
from torch import nn

from attnscope import Monitor
from attnscope.masks import MOST

T, H, D = 24, 4, 8
sdpa = nn.functional.scaled_dot_product_attention


def distances(n=T):
    """How far each key stands before each query: [query, key]."""
    return torch.arange(n)[:, None] - torch.arange(n)


def causal(n=T):
    return distances(n) >= 0


def window(size, n=T):
    return causal(n) & (distances(n) < size)


class Attends(nn.Module):
    """An attention of H heads; `call(q, k, v)` takes [sequence, head, position, d]."""

    def __init__(self, call):
        super().__init__()
        self.qkv, self.call = nn.Linear(H * D, 3 * H * D), call

    def forward(self, x, attention_mask=None):
        q, k, v = (part.unflatten(-1, (H, D)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.call(q, k, v)


class Layers(nn.Module):
    """Token ids through several attentions, one after another."""

    def __init__(self, *calls):
        super().__init__()
        self.embed, self.layers = nn.Embedding(50, H * D), nn.ModuleList(Attends(call) for call in calls)

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = x + layer(x).transpose(1, 2).flatten(2)
        return x


def eager(mask):
    """A softmax by hand under a mask that broadcasts against [sequence, head, query, key]."""
    def call(q, k, v):
        scores = q @ k.transpose(-1, -2) * D ** -0.5
        return scores.masked_fill(~mask, -math.inf).softmax(-1) @ v

    return call


def fused(mask=None, **options):
    return lambda q, k, v: sdpa(q, k, v, attn_mask=mask, **options)


class Masks(Case):
    def masks(self, *calls, n=3, length=T, rows=64, evaluation=False, **given):
        """What one record says of the masks of these attentions."""
        model = Layers(*calls).train()
        with self.quiet(), Monitor(model, self.path, rows=rows, evaluation=evaluation) as monitor:
            model(batch(n, length), **given)
            record = monitor.step(0)
            self.assertIsNone(monitor.error)
        os.remove(self.path)
        return record["batch"].get("masks")

    def only(self, *calls, **options):
        """The one kind that all layers have, without the numbers of its keys."""
        found = self.masks(*calls, **options)
        self.assertNotIn("of", found)
        self.assertEqual(len(found["kinds"]), 1)
        return {name: value for name, value in found["kinds"][0].items() if name not in ("keys", "allowed")}

    def test_a_kind_is_the_same_whatever_code_makes_it(self):
        additive = torch.zeros(T, T).masked_fill(~causal(), -1e9)
        for rows in (64, 0):
            calls = (eager(causal()), fused(is_causal=True), fused(causal()), fused(additive), fused(causal().expand(3, 1, T, T)))
            found = self.only(*calls, rows=rows)
            self.assertEqual((found["kind"], found.get("from", 0)), ("causal", 0))
            # the last of sampled rows need not be the last there is
            self.assertGreater(found["reach"], T - 4)
            self.assertEqual(self.only(eager(window(8)), fused(window(8)), rows=rows), {"kind": "window", "left": 7, "right": 0})
            both = distances().abs() < 6
            self.assertEqual(self.only(eager(both), fused(both), rows=rows), {"kind": "window", "left": 5, "right": 5})
            self.assertEqual(self.only(eager(torch.ones(T, T, dtype=torch.bool)), fused(), rows=rows)["kind"], "bidirectional")

    def test_a_block_mask(self):
        try:
            from torch.nn.attention import flex_attention as flex
        except ImportError:
            self.skipTest("this torch has no flex_attention")
        block = flex.create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < 8), None, None, T, T, device="cpu")
        with torch.no_grad():
            found = self.only(lambda q, k, v: flex.flex_attention(q, k, v, block_mask=block), evaluation=True)
        self.assertEqual(found, {"kind": "window", "left": 7, "right": 0})

    def test_a_batch_that_does_not_fill_a_window_proves_none(self):
        for length, kind in ((5, "causal"), (8, "causal"), (9, "causal"), (10, "window")):
            found = self.only(eager(window(8, length)), length=length)
            self.assertEqual(found["kind"], kind)
            if kind == "causal":
                self.assertEqual(found["reach"], min(length - 1, 7))
        self.assertIsNone(self.masks(fused(is_causal=True), length=1))

    def test_what_a_prefix_reads_both_ways(self):
        prefix = causal() | (torch.arange(T) < 6)
        self.assertEqual(self.only(eager(prefix), fused(prefix)), {"kind": "prefix", "size": 6})
        # another one in each sequence
        sizes = torch.tensor([3, 6, 9])[:, None, None, None]
        self.assertEqual(self.only(fused(causal() | (torch.arange(T) < sizes))), {"kind": "prefix", "size": 3})

    def test_a_mask_that_is_off_by_one(self):
        found = self.only(fused(torch.ones(T, T, dtype=torch.bool).tril(1)))
        self.assertEqual((found["kind"], found["right"]), ("causal", 1))
        found = self.only(eager(torch.ones(T, T, dtype=torch.bool).tril(-1) | (torch.arange(T) == 0)[:, None]))
        self.assertEqual(found["kind"], "other")

    def test_other_masks(self):
        sinks = causal() & ((distances() < 6) | (torch.arange(T) < 2))
        self.assertEqual(self.only(fused(sinks)), {"kind": "other", "later": False, "least": 8})
        strided = torch.arange(T) % 2 == 0
        self.assertEqual(self.only(fused((strided | torch.eye(T, dtype=torch.bool))))["later"], True)

    def test_padding_counts_for_nothing(self):
        lengths = torch.tensor([T, 17, 9])
        for places in (torch.arange(T), torch.arange(T).flip(0)):  # on the right, on the left
            real = places < lengths[:, None]
            shown, given = real[:, None, None] | torch.eye(T, dtype=torch.bool), {"attention_mask": real.long()}
            self.assertEqual(self.only(eager(causal() & shown), fused(causal() & shown), **given)["kind"], "causal")
            self.assertEqual(self.only(fused(window(5) & shown), **given), {"kind": "window", "left": 4, "right": 0})
            self.assertEqual(self.only(fused(real[:, None, None]), **given)["kind"], "bidirectional")
        # on the left, in a mask that nothing but attention is given
        self.assertEqual(self.only(eager(causal() & real[:, None, None]))["kind"], "causal")

    def test_documents_that_the_batch_tells_count_as_texts_of_their_own(self):
        begins = torch.tensor([[0, 9, 15], [0, 4, 20], [0, 11, 17]])
        documents = (torch.arange(T)[:, None] >= begins[:, None]).sum(-1)  # [sequence, position]
        apart = (documents[:, None, :, None] == documents[:, None, None]) & causal()
        places = torch.stack([torch.cat([torch.arange(n) for n in row.bincount().tolist()]) for row in documents])
        self.assertEqual(self.only(eager(apart), fused(apart), position_ids=places)["kind"], "causal")
        # nothing else tells of them
        self.assertEqual(self.only(eager(apart), fused(apart)), {"kind": "documents", "later": False})
        both = documents[:, None, :, None] == documents[:, None, None]
        self.assertEqual(self.only(fused(both)), {"kind": "documents", "later": True})

    def test_layers_and_heads_with_masks_of_their_own(self):
        found = self.masks(fused(window(8)), fused(causal()), fused(window(8)))
        self.assertEqual([kind["kind"] for kind in found["kinds"]], ["window", "causal"])
        self.assertEqual(found["of"], [0, 1, 0])
        heads = causal().repeat(H, 1, 1)
        heads[2] = True
        found = self.masks(fused(causal()), fused(heads[None]))
        self.assertEqual([kind["kind"] for kind in found["kinds"]], ["causal", "bidirectional"])
        self.assertEqual(found["of"], [0, [0, 0, 1, 0]])

    def test_no_record_has_more_than_some_kinds(self):
        found = self.masks(*(fused(window(size)) for size in range(1, MOST + 3)))
        self.assertEqual(len(found["kinds"]), MOST)
        self.assertEqual(found["of"], [*range(MOST), None, None])

    def test_keys_that_rows_see_and_could_see(self):
        (kind,) = self.masks(fused(window(8)), rows=0)["kinds"]
        self.assertEqual((kind["keys"], kind["allowed"]), (round((sum(range(1, 8)) + 17 * 8) / T, 2), (T + 1) / 2))
        (kind,) = self.masks(fused(causal()), rows=0)["kinds"]
        self.assertEqual((kind["keys"], "allowed" in kind), ((T + 1) / 2, False))

    def test_scores_that_are_no_number_tell_nothing(self):
        def broken(q, k, v):
            scores = (q @ k.transpose(-1, -2)).masked_fill(~causal(), -math.inf)
            return (scores + torch.where(torch.arange(T)[:, None] > 11, math.nan, 0.0)).softmax(-1) @ v

        self.assertEqual(self.only(broken)["kind"], "causal")
        self.assertIsNone(self.masks(lambda q, k, v: (q @ k.transpose(-1, -2) * math.nan).softmax(-1) @ v))

    def test_keys_of_another_sequence_have_no_mask(self):
        model = nn.Transformer(32, 4, 1, 1, 64, batch_first=True).train()
        hidden = nn.Transformer.generate_square_subsequent_mask(T)
        with self.quiet(), Monitor(model, self.path, rows=64) as monitor:
            model(torch.randn(2, T, 32), torch.randn(2, T, 32), tgt_mask=hidden)
            masks = monitor.step(0)["batch"]["masks"]
        self.assertEqual([kind["kind"] for kind in masks["kinds"]], ["bidirectional", "causal"])
        self.assertEqual(masks["of"], [0, 1, None])

    def test_a_record_grows_little(self):
        alike = Model(n_layers=12)
        with self.quiet(), Monitor(alike, self.path, rows=64) as monitor:
            alike(batch(3, 40))
            masks = monitor.step(0)["batch"]["masks"]
        self.assertLess(len(json.dumps({"masks": masks}, separators=(",", ":"))), 100)
        mixed = [fused(window(8)) if i % 6 < 5 else fused(causal()) for i in range(36)]
        self.assertLess(len(json.dumps({"masks": self.masks(*mixed)}, separators=(",", ":"))), 300)


if __name__ == "__main__":
    unittest.main()
