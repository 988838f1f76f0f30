"""What a record says of its batch: padding, documents, labels, losses by position, and attention that was not seen."""

import json
import tempfile
import unittest
import warnings
from pathlib import Path

import support  # noqa: F401 (skips where torch is not installed)
import torch
import torch.nn.functional as F
from torch import nn

from attnscope import Monitor

N, D, V = 12, 16, 20


class Attention(nn.Module):
    def __init__(self, joins=False):
        super().__init__()
        self.qkv, self.out, self.joins = nn.Linear(D, 3 * D), nn.Linear(D, D), joins

    def forward(self, x, documents=None):
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()[None, None]
        if documents is not None and not self.joins:
            seen = seen & (documents[:, None, :, None] == documents[:, None, None])
        scores = (q @ k.transpose(-2, -1) * 0.35).masked_fill(~seen, -torch.inf)
        self.pattern = scores.softmax(-1)
        return self.out((self.pattern @ v).transpose(1, 2).flatten(2))


class LinearAttention(nn.Module):
    """No softmax runs here."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return F.elu(q) @ (F.elu(k).transpose(-2, -1) @ v)


class Model(nn.Module):
    def __init__(self, joins=False, linear=False):
        super().__init__()
        self.tokens, self.head = nn.Embedding(V, D), nn.Linear(D, V)
        self.attn, self.mixer = Attention(joins), LinearAttention() if linear else None

    def forward(self, input_ids, targets=None, position_ids=None, attention_mask=None):
        x = self.tokens(input_ids)
        documents = None if position_ids is None else (position_ids == 0).cumsum(1)
        x = x + self.attn(x, documents)
        x = x if self.mixer is None else x + self.mixer(x)
        return self.head(x)


class Facts(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.ids = torch.randint(1, V, (4, N))
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name) / "run.jsonl"

    def record(self, model, *args, **kwargs):
        with Monitor(model, self.path, every=1, rows=0) as monitor:
            out = model(*args, **kwargs)
            return monitor.step(0, loss=F.cross_entropy(out[:, :-1].flatten(0, 1), args[0][:, 1:].flatten())), out.detach()

    def test_losses_are_those_of_the_logits_and_of_each_position(self):
        record, out = self.record(Model(), self.ids)
        batch = record["batch"]
        self.assertAlmostEqual(batch["next_loss"], record["loss"], places=5)
        self.assertAlmostEqual(batch["own_loss"], float(F.cross_entropy(out[:, :-1].flatten(0, 1), self.ids[:, :-1].flatten())), places=5)
        each = F.cross_entropy(out[:, :-1].transpose(1, 2), self.ids[:, 1:], reduction="none").mean(0)
        self.assertEqual([end for end, _ in batch["by_position"]], [1, 2, 4, 8, 11])
        begin = 0
        for end, loss in batch["by_position"]:
            self.assertAlmostEqual(loss, float(each[begin:end].mean()), places=5)
            begin = end

    def test_rows_that_see_later_keys_and_what_a_position_reads(self):
        record, _ = self.record(Model(), self.ids)
        self.assertNotIn("later_rows", record["batch"])
        self.assertEqual(record["batch"]["reads"], "own")

        class Open(Model):
            def forward(self, input_ids):
                shifted = F.pad(input_ids[:, :-1], (1, 0))
                x = self.tokens(shifted)
                q = k = x[:, None]
                return self.head(x + ((q @ k.transpose(-2, -1) * 0.2).softmax(-1) @ x[:, None])[:, 0])

        self.path.unlink()
        record, _ = self.record(Open(), self.ids)
        self.assertAlmostEqual(record["batch"]["later_rows"][0], 11 / 12, places=5)
        self.assertEqual(record["batch"]["reads"], "previous")

    def test_padding_counts_for_no_loss(self):
        mask = torch.ones_like(self.ids)
        mask[:, 8:] = 0
        record, out = self.record(Model(), self.ids, attention_mask=mask)
        expected = F.cross_entropy(out[:, :7].flatten(0, 1), self.ids[:, 1:8].flatten())
        self.assertAlmostEqual(record["batch"]["next_loss"], float(expected), places=5)
        self.assertAlmostEqual(record["batch"]["padding"], 4 / 12, places=5)

    def test_outputs_of_every_shape_turn_nothing_off(self):
        class Odd(Model):
            def forward(self, input_ids):
                out = super().forward(input_ids)
                return self.odd(out)

        odd = [lambda x: x[:, -1], lambda x: x[:, -1:], lambda x: x.flatten(0, 1), lambda x: (x, None), lambda x: {"logits": x},
               lambda x: {"logits": None}, lambda x: x.argmax(-1), lambda x: x.sum(), lambda x: x[..., :3], lambda x: [x[:, :4], x]]
        expected = [False, False, True, True, True, False, False, False, False, True]
        for size in ((4, N), (1, N), (3, 2), (5, 1)):
            for shape, has in zip(odd, expected):
                self.path.unlink(missing_ok=True)
                model = Odd()
                model.odd = shape
                with Monitor(model, self.path, every=1, rows=4) as monitor:
                    model(torch.randint(3, V, size))
                    record = monitor.step(0)
                self.assertIsNone(monitor.error)
                self.assertEqual("next_loss" in record["batch"], has and size[1] > 1, size)

    def test_positions_before_sequences_have_no_losses(self):
        class TimeMajor(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Model()

            def forward(self, input_ids):
                x = self.inner.tokens(input_ids.T)
                return self.inner.head(x + self.inner.attn(x)).transpose(0, 1)

        model = TimeMajor()
        with Monitor(model, self.path, every=1) as monitor:
            model(self.ids.T.contiguous())
            record = monitor.step(0)
        self.assertNotIn("next_loss", record["batch"])

    def test_labels_by_what_they_are(self):
        following = self.ids.roll(-1, 1)
        following[:, -1] = -100
        part = self.ids.clone()
        part[:, 2:5] = -100
        for labels, kind in ((following, "next"), (self.ids, "own"), (part, "part"), (self.ids.flip(0), "other")):
            self.path.unlink(missing_ok=True)
            record, _ = self.record(Model(), self.ids, labels)
            self.assertEqual(record["batch"]["labels"], kind)

    def test_documents_by_positions_that_begin_again(self):
        positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]] * 2 + [list(range(N))] * 2)
        for joins in (False, True):
            self.path.unlink(missing_ok=True)
            model = Model(joins)
            record, _ = self.record(model, self.ids, position_ids=positions)
            documents = (positions == 0).cumsum(1)
            others = documents[:, None, :, None] != documents[:, None, None]
            expected = (model.attn.pattern * others).sum(-1).mean((0, 2))
            for found, true in zip(record["values"]["document_mass"][0], expected.tolist()):
                self.assertAlmostEqual(found, true, places=5)
            self.assertEqual(record["values"]["document_mass"][0] == [0.0, 0.0], not joins)
            self.assertEqual(record["batch"]["documents"], 1.5)
        self.path.unlink()
        record, _ = self.record(Model(), self.ids)
        self.assertEqual(record["values"]["document_mass"], [[None, None]])
        self.assertNotIn("documents", record["batch"])

    def test_attention_that_was_not_seen_is_named(self):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.record(Model(linear=True), self.ids)
        self.assertEqual(len(told), 1, [str(one.message) for one in told])
        self.assertIn("mixer (LinearAttention)", str(told[0].message))
        head = json.loads(self.path.read_text().splitlines()[0])
        self.assertEqual(head["unseen"], ["mixer (LinearAttention)"])

    def test_what_predicts_no_tokens_has_no_losses(self):
        class Classifier(Model):
            def forward(self, input_ids):
                return super().forward(input_ids).mean(1)

        model = Classifier()
        with Monitor(model, self.path, every=1) as monitor:
            model(self.ids)
            record = monitor.step(0)
        self.assertNotIn("next_loss", record["batch"])


if __name__ == "__main__":
    unittest.main()
