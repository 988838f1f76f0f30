"""attnscope effect on a live model gives the numbers that it gives on a checkpoint of the same weights."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
from places import ROOT, needs, needs_program, program

HEALTHY = os.path.join(ROOT, "fixtures", "healthy")
IDS = "5,9,2,7,5,9,11,3,20,31,8,9,2,7"
NUMBERS = ("loss_change", "loss_low", "loss_high", "kl", "kl_low", "kl_high", "logit_change")
CODE = f"""
    import transformers

    def load(kind="eager"):
        model = transformers.GPT2LMHeadModel.from_pretrained({HEALTHY!r}, attn_implementation=kind)
        return model, transformers.AutoTokenizer.from_pretrained({HEALTHY!r})

    def breaks():
        model = transformers.GPT2LMHeadModel.from_pretrained({HEALTHY!r})
        model.transformer.h[1].attn.c_proj.register_forward_hook(fails)
        return model

    def fails(module, args, output):
        if (args[0] == 0).any(-1).any():
            raise ValueError("a head is gone")
"""


@needs_program()
@needs("transformers")
class Effects(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = os.path.join(directory.name, "train.py")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(CODE))

    def effect(self, target, *arguments, by="ablation"):
        command = [program() or "attnscope", "effect", target, "--by", by, "--format", "json", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def rows(self, target, *arguments):
        done = self.effect(target, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {(row["place"], row["part"]): row for row in json.loads(done.stdout)["rows"]}

    def compare(self, name, *arguments):
        live = self.rows(f"{self.file}:{name}", "--python", sys.executable, *arguments)
        native = self.rows(HEALTHY, "--parts", "heads,all-heads", *arguments)
        self.assertEqual(live.keys(), native.keys())
        self.assertEqual(len(live), 10)
        for place, row in live.items():
            for column in NUMBERS:
                if row[column] is None or native[place][column] is None:
                    self.assertEqual(row[column], native[place][column], f"{place} {column}")
                else:
                    self.assertLess(abs(row[column] - native[place][column]), 1e-4, f"{place} {column}")
            self.assertGreater(row["kl"], 1e-4, place)

    def test_heads_have_the_effects_that_they_have_in_the_checkpoint(self):
        self.compare("load", "--tokens", IDS, "--token", "7", "--against", "5")
        self.compare("load('sdpa')", "--tokens", IDS, "--replace", "mean")

    def test_a_text_and_a_what_if_beside_it(self):
        self.compare("load", "--text", "the old king gave a red apple to his horse", "--what-if", "temperature=2@L0")

    def test_rollout_is_that_of_the_checkpoint(self):
        found = []
        for target, python in ((f"{self.file}:load", ["--python", sys.executable]), (HEALTHY, [])):
            done = self.effect(target, *python, "--tokens", IDS, by="rollout")
            self.assertEqual(done.returncode, 0, done.stderr)
            found.append(json.loads(done.stdout)["rows"])
        live, native = found
        self.assertEqual(len(live), len(native))
        for one, other in zip(live, native):
            self.assertLess(abs(one.pop("rollout") - other.pop("rollout")), 1e-5)
            self.assertEqual(one, other)

    def test_what_the_code_raises_without_a_head_ends_the_command(self):
        done = self.effect(f"{self.file}:breaks", "--python", sys.executable, "--tokens", IDS)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        last = done.stderr.splitlines()[-1]
        self.assertIn("ValueError: a head is gone", last)
        self.assertIn("train.py:15", last)


if __name__ == "__main__":
    unittest.main()
