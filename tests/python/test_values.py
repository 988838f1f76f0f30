"""--values: rows of numbers in place of tokens, in the process that holds the model and through the program."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from places import needs_program, program
from test_live import Asked, read
from torch import nn

from attnscope._live.faults import Unusable, told
from attnscope._live.pytorch import Subject

N_FEATURES, D_MODEL, N_HEADS = 3, 16, 2
VALUES = [[0.5 * i - j, (i * 7 + j) % 5, 0.1 * i * j] for i, j in zip(range(9), (2, 0, 1, 3, 1, 4, 2, 0, 5))]


class Series(nn.Module):
    """One attention over a sequence of vectors."""

    def __init__(self, is_causal=True, batch_first=True, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.is_causal, self.batch_first = is_causal, batch_first
        self.inside = nn.Linear(N_FEATURES, D_MODEL, dtype=dtype)
        self.attn = nn.MultiheadAttention(D_MODEL, N_HEADS, batch_first=batch_first, dtype=dtype)
        self.head = nn.Linear(D_MODEL, N_FEATURES, dtype=dtype)

    def mask(self, n):
        return torch.ones(n, n, dtype=torch.bool).triu(1) if self.is_causal else None

    def attend(self, x, **options):
        n = x.shape[1 if self.batch_first and x.dim() == 3 else 0]
        return self.attn(x, x, x, attn_mask=self.mask(n), **options)

    def forward(self, x):
        self.seen = x
        x = self.inside(x)
        return self.head(x + self.attend(x)[0])


class Padded(Series):
    """Takes a mask of real positions, and a scale that nothing depends on."""

    def forward(self, x, attention_mask=None, scale=None):
        self.seen_mask = attention_mask
        hidden = None if attention_mask is None else attention_mask == 0
        self.seen = x
        x = self.inside(x)
        return self.head(x + self.attend(x, key_padding_mask=hidden)[0])


def pattern_of(tensors):
    return next(tensor for name, tensor in tensors.items() if name.endswith("pattern"))


class Runs(unittest.TestCase):
    def run_on(self, subject, values=VALUES, **asked):
        answer, path = subject.run(Asked(values=values, **asked))
        self.assertEqual(answer, {"text": None, "values": True})
        return read(path)

    def expected(self, model, x):
        """The pattern that the attention itself gives. // [head, query, key]"""
        with torch.no_grad():
            return model.attend(model.inside(x), average_attn_weights=False)[1][0]

    def test_the_rows_are_the_only_argument_of_a_model_without_inputs(self):
        model = Series()
        tensors, _ = self.run_on(Subject(model))
        x = torch.tensor([VALUES])
        self.assertTrue(torch.equal(model.seen, x))
        self.assertLess((pattern_of(tensors) - self.expected(model, x)).abs().max(), 1e-6)
        self.assertNotIn("tokens", tensors)

    def test_the_rows_have_the_type_and_the_layout_of_the_inputs_that_they_stand_in_for(self):
        for batch_first, given in ((True, (4, 7)), (False, (7, 4)), (True, (1, 7)), (False, (7, 1)), (True, (9, 5)), (False, (5, 9))):
            for dtype in (torch.float32, torch.float64):
                model = Series(batch_first=batch_first, dtype=dtype)
                subject = Subject(model, None, torch.randn(*given, N_FEATURES, dtype=dtype))
                tensors, _ = self.run_on(subject)
                x = torch.tensor(VALUES, dtype=dtype).unsqueeze(0 if batch_first else 1)
                self.assertTrue(torch.equal(model.seen, x), (given, dtype))
                self.assertLess((pattern_of(tensors) - self.expected(model, x)).abs().max(), 1e-6)
                self.run_on(subject, values=VALUES[:4])
                self.assertEqual(model.seen.shape[0 if batch_first else 1], 1)
                # without --values it still runs what came with it
                read(subject.run(Asked())[1])
                self.assertEqual(model.seen.shape, (*given, N_FEATURES))

    def test_other_inputs_stay_as_they_are_for_the_first_row_of_the_batch(self):
        model = Padded()
        mask = torch.tensor([[1] * 8 + [0], [1] * 4 + [0] * 5])
        given = {"x": torch.randn(2, 9, N_FEATURES), "attention_mask": mask, "scale": torch.tensor([2.0, 3.0])}
        tensors, _ = self.run_on(Subject(model, None, given))
        self.assertTrue(torch.equal(model.seen_mask, mask[:1]))
        self.assertTrue(bool((pattern_of(tensors)[:, :, 8] == 0).all()))

    def test_an_input_without_a_batch_gets_none(self):
        model = Series()
        tensors, _ = self.run_on(Subject(model, None, torch.randn(7, N_FEATURES)))
        self.assertEqual(model.seen.shape, (9, N_FEATURES))
        self.assertEqual(pattern_of(tensors).shape, (N_HEADS, 9, 9))

    def test_what_does_not_fit_is_said_in_one_line(self):
        subject = Subject(Series())
        try:
            subject.run(Asked(values=[row[:2] for row in VALUES]))
        except RuntimeError as error:
            said = told(error)
        self.assertIn("mat1 and mat2 shapes cannot be multiplied", said["message"])
        self.assertEqual(said["frame"]["text"], "x = self.inside(x)")

        class Two(Series):
            def forward(self, x, y):
                return super().forward(x)

        for subject, words in (
            (Subject(Two()), r"Two.forward needs x, y: return \(model, tokenizer, inputs\)"),
            (Subject(Two(), None, (torch.tensor([[1, 2]]), torch.tensor([[1, 2]]))), "the inputs that came with the model hold none"),
            (Subject(Series(batch_first=False)), r"attends over the first axis of \[1, 9, feature\]"),
        ):
            with self.assertRaisesRegex(Unusable, words):
                self.run_on(subject)
        subject = Subject(Series(), None, torch.randn(7, N_FEATURES))
        with self.assertRaisesRegex(Unusable, r"this model takes \[position, feature\]"):
            self.run_on(subject, probes=True, mask="causal")

    def test_what_ifs_change_a_run_on_values(self):
        subject = Subject(Series())
        plain, _ = self.run_on(subject)
        changed, _ = self.run_on(subject, changes=[{"key": "temperature", "value": "2", "places": None}])
        self.assertGreater((pattern_of(plain) - pattern_of(changed)).abs().max(), 1e-3)


class Probes(unittest.TestCase):
    def probe(self, subject, values=VALUES, **asked):
        return read(subject.run(Asked(values=values, probes=True, mask="causal", **asked))[1])

    def test_a_dropped_causal_mask_is_found_in_every_layout(self):
        for batch_first, given in ((True, None), (True, (4, 7)), (False, (7, 4)), (False, (7, 1))):
            inputs = None if given is None else torch.randn(*given, N_FEATURES)
            for is_causal in (True, False):
                model = Series(is_causal, batch_first)
                tensors, metadata = self.probe(Subject(model, None, inputs))
                moved = float(tensors["probe.future.moved"].max())
                self.assertEqual(moved > 1e-2, not is_causal, (batch_first, given, moved))
                self.assertEqual(len(tensors["tokens"]), len(VALUES))
                self.assertLess(tensors["probe.batch.moved"].max(), 1e-5)
                self.assertTrue({"attnscope.labels.skipped", "attnscope.cache.skipped"} <= metadata.keys())

    def test_a_probe_after_runs_on_other_inputs_has_the_axis_of_its_own(self):
        subject = Subject(Series(False, False), None, torch.randn(7, 4, N_FEATURES))
        read(subject.run(Asked(values=VALUES[:4]))[1])
        self.assertGreater(self.probe(subject)[0]["probe.future.moved"].max(), 1e-2)
        tensors, _ = read(subject.run(Asked(probes=True, mask="causal"))[1])
        self.assertEqual(len(tensors["tokens"]), 7)
        self.assertGreater(tensors["probe.future.moved"].max(), 1e-2)

    def test_a_mask_of_padding_reaches_the_model(self):
        class Leaks(Padded):
            def forward(self, x, attention_mask=None):
                return super().forward(x + (0 if attention_mask is None else 0 * x), None)

        # without a causal mask, pads are seen unless the mask hides them
        moved = {}
        for kind in (Padded, Leaks):
            tensors, _ = self.probe(Subject(kind(is_causal=False)))
            moved[kind] = float(tensors["probe.padding.moved"].max())
        self.assertLess(moved[Padded], 1e-5)
        self.assertGreater(moved[Leaks], 1e-2)

    def test_rows_that_are_alike_are_one_token(self):
        values = [VALUES[0], VALUES[1]] * 3 + [VALUES[2]]
        tensors, _ = self.probe(Subject(Series()), values)
        self.assertEqual(tensors["tokens"].tolist(), [0, 1, 0, 1, 0, 1, 6])
        with self.assertRaisesRegex(ValueError, "one token only"):
            self.probe(Subject(Series()), [VALUES[0]] * 5)


CODE = """
    import torch
    from torch import nn

    class Series(nn.Module):
        def __init__(self, is_causal):
            super().__init__()
            torch.manual_seed(0)
            self.is_causal = is_causal
            self.inside, self.attn = nn.Linear(3, 16), nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            n = x.shape[1]
            x = self.inside(x)
            return x + self.attn(x, x, x, attn_mask=torch.ones(n, n, dtype=torch.bool).triu(1) if self.is_causal else None)[0]

    def load(is_causal=True):
        return Series(is_causal)
"""


@needs_program()
class Program(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file, self.csv = (os.path.join(directory.name, name) for name in ("train.py", "series.csv"))
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(CODE))
        self.write("open,high,low", VALUES)

    def write(self, header, rows):
        with open(self.csv, "w", encoding="utf-8") as file:
            file.write(header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))

    def run_it(self, command, name, *arguments):
        words = [program() or "attnscope", command, f"{self.file}:{name}", "--values", self.csv, "--python", sys.executable, *arguments]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def test_a_check_names_the_future_that_leaks_and_nothing_where_none_does(self):
        for name, code in (("load", 0), ("load(is_causal=False)", 1)):
            done = self.run_it("check", name, "--mask", "causal", "--format", "json")
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            found = json.loads(done.stdout)["targets"][0]["findings"]
            errors = {finding["check"] for finding in found if finding["severity"] != "info"}
            self.assertEqual("future-leak" in errors, bool(code), errors)
            self.assertEqual(not errors, not code, errors)

    def test_a_report_has_a_place_for_every_row(self):
        done = self.run_it("report", "load", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["prompts"][0]["tokens"]), len(VALUES))

    def test_a_width_that_does_not_fit_is_told_with_the_line_of_the_code(self):
        self.write("open,high", [row[:2] for row in VALUES])
        done = self.run_it("check", "load")
        self.assertEqual(done.returncode, 2)
        self.assertIn("mat1 and mat2 shapes cannot be multiplied", done.stderr)
        self.assertTrue(done.stderr.endswith("train.py:14: x = self.inside(x))\n"), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
