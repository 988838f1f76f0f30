"""record: what it writes of a model that is in training mode, and what attnscope diff makes of it."""

import json
import os
import subprocess
import unittest
import warnings

from support import Case, Model, batch, needs, program
import torch
from torch import nn

from attnscope import capture, record

NAMES = {"blocks.{i}.attn.out": "blocks.{i}.attn_out"}


def metadata(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]


class Drops(nn.Module):
    """Dropout that never asks whether the model trains."""

    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=True)


class Randomness(Case):
    """Which modules drew random numbers."""

    def recorded(self, model, **options):
        path = os.path.join(self.directory, "port.safetensors")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with record(model, path, names=NAMES, quiet=True, **options):
                model(batch())
        return metadata(path), [str(w.message) for w in told if "attnscope" in str(w.message)]

    def test_training_mode_is_told_with_the_modules_that_drew(self):
        said, told = self.recorded(Model())
        self.assertEqual(said["attnscope.training"], "true")
        self.assertEqual(json.loads(said["attnscope.random"]), ["blocks.0.attn.drop", "blocks.1.attn.drop"])
        self.assertEqual(len(told), 1, told)
        self.assertIn("random numbers were drawn in blocks.0.attn.drop, blocks.1.attn.drop while", told[0])
        self.assertIn("call model.eval() before", told[0])

    def test_evaluation_mode_is_told_and_nothing_is_warned_of(self):
        said, told = self.recorded(Model().eval())
        self.assertEqual((said["attnscope.training"], said.get("attnscope.random"), told), ("false", None, []))

    def test_training_mode_without_dropout_draws_nothing(self):
        model = Model()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        said, told = self.recorded(model)
        self.assertEqual((said["attnscope.training"], said.get("attnscope.random"), told), ("true", None, []))

    def test_one_module_in_training_mode_is_mixed(self):
        model = Model().eval()
        model.blocks[1].attn.drop.train()
        said, _ = self.recorded(model)
        self.assertEqual(said["attnscope.training"], "mixed")
        self.assertEqual(json.loads(said["attnscope.random"]), ["blocks.1.attn.drop"])

    def test_dropout_that_runs_in_evaluation_mode_is_told_as_such(self):
        model = Model()
        model.blocks[0].mlp = Drops()
        model.eval()
        said, told = self.recorded(model)
        self.assertEqual((said["attnscope.training"], json.loads(said["attnscope.random"])), ("false", ["blocks.0.mlp"]))
        self.assertIn("look for dropout that does not ask for self.training", told[0])

    def test_dropout_inside_of_kernels_is_noticed(self):
        class Fused(nn.Module):
            def __init__(self, width, n_heads):
                super().__init__()
                self.attention = nn.MultiheadAttention(width, n_heads, dropout=0.2, batch_first=True)

            def forward(self, x):
                return self.attention(x, x, x, need_weights=False)[0]

        class Sdpa(nn.Module):
            def __init__(self, width, n_heads):
                super().__init__()

            def forward(self, x):
                return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3)

        for attention, place in ((Fused, "blocks.0.attn.attention"), (Sdpa, "blocks.0.attn")):
            path = os.path.join(self.directory, "port.safetensors")
            model = Model(n_layers=1, attention=attention)
            with self.assertWarnsRegex(UserWarning, place), \
                    record(model, path, names={"blocks.{i}": "blocks.{i}.resid_post"}, quiet=True):
                model(batch())
            self.assertEqual(json.loads(metadata(path)["attnscope.random"]), [place])

    def test_a_capture_names_them_too_and_the_run_is_what_it_was(self):
        model, path = Model(), os.path.join(self.directory, "trace.safetensors")
        torch.manual_seed(4)
        expected, after = model(batch()), torch.rand(1)
        torch.manual_seed(4)
        with self.quiet(), capture(model, path):
            found = model(batch())
        self.assertTrue(torch.equal(expected, found) and torch.equal(after, torch.rand(1)))
        self.assertEqual(json.loads(metadata(path)["attnscope.random"]), ["blocks.0.attn.drop", "blocks.1.attn.drop"])
        torch.manual_seed(4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with record(model, path, names=NAMES, quiet=True):
                found = model(batch())
        self.assertTrue(torch.equal(expected, found) and torch.equal(after, torch.rand(1)))
        with self.quiet(), capture(model.eval(), path):
            model(batch())
        self.assertNotIn("attnscope.random", metadata(path))


@needs("transformers")
@unittest.skipIf(program() is None, "the attnscope program is not built")
class Diff(Case):
    """A recording beside its checkpoint."""

    def ran(self, *arguments):
        return subprocess.run([program(), *arguments], capture_output=True, text=True, check=False)

    def test_a_healthy_model_in_training_mode_is_not_accused(self):
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(1)
        model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=50, n_positions=32))
        checkpoint, port = os.path.join(self.directory, "model"), os.path.join(self.directory, "port.safetensors")
        model.save_pretrained(checkpoint)
        ids = torch.tensor([[5, 9, 2, 20, 7]])
        reference = os.path.join(self.directory, "reference.safetensors")
        traced = self.ran("trace", checkpoint, "--tokens", "5,9,2,20,7", "--hooks", "all", "--output", reference)
        self.assertEqual(traced.returncode, 0, traced.stderr)
        for is_training, code in ((False, 0), (True, 2)):
            model.train(is_training)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with record(model, port, against=reference, quiet=True):
                    model(ids)
            for a, b in ((checkpoint, port), (reference, port), (port, checkpoint)):
                done = self.ran("diff", a, b)
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                first = done.stdout.splitlines()[0]
                if not is_training:
                    self.assertTrue(first.startswith("the same"), first)
                    continue
                side = "A" if a == port else "B"
                self.assertTrue(first.startswith(f"cannot be judged: {side} was recorded in training mode with random numbers "
                                                 "(dropout) in transformer.drop and "), first)
                self.assertIn("port: expected a recording without dropout", done.stderr)
                self.assertIn("record it again after model.eval()", done.stderr)
            found = json.loads(self.ran("diff", checkpoint, port, "--format", "json").stdout)
            self.assertEqual((found["same"], len(found["notes"])), (not is_training, int(is_training)))


if __name__ == "__main__":
    unittest.main()
