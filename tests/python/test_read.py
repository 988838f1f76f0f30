"""attnscope.read: one table, whatever the file is that the program wrote it to."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
import warnings

from places import ROOT, needs, needs_program

FIXTURES = os.path.join(ROOT, "fixtures")
HEALTHY, UNSCALED = (os.path.join(FIXTURES, name) for name in ("healthy", "unscaled"))
# Ids that other readers of CSV would take for numbers, for nothing, or for formulas.
IDS = ["007", "NA", "null", "=1+1", "-", "'=quoted", "nan", "a,b\n\"c\"", "1e5"]
TEXTS = ("checkpoint", "prompt", "stack")
INTEGERS = ("step", "n_tokens", "layer", "head")


class Table(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def run_program(self, *words, code=0):
        import attnscope

        done = subprocess.run([attnscope.find_program(), *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def written(self, name, *words, code=0):
        self.run_program(*words, "--format", name.rpartition(".")[2], "--output", self.path(name), code=code)
        return attnscope_read(self.path(name))

    def prompts(self):
        lines = [json.dumps({"id": name, "text": "the king took a quiet story"}) for name in IDS]
        return self.write("prompts.jsonl", "\n".join(lines))

    def assert_equal(self, a, b, names=None):
        """Equal kinds and values in the columns of either, less those that hold nothing at all."""
        import pandas

        names = names or [name for name in a.columns if a[name].notna().any()]
        pandas.testing.assert_frame_equal(a[names], b[names])


def attnscope_read(path):
    import attnscope

    return attnscope.read(path)


@needs("pandas", "pyarrow")
@needs_program()
class Written(Table):
    def test_a_report_is_one_table_in_csv_parquet_and_json(self):
        words = ["report", HEALTHY, "--inputs", self.prompts()]
        csv, parquet, of_json = (self.written(f"report.{kind}", *words) for kind in ("csv", "parquet", "json"))
        self.assertEqual(sorted(csv["prompt"].unique()), sorted(IDS))
        self.assertEqual(list(csv.columns[:8]), ["checkpoint", *INTEGERS[:1], "prompt", "n_tokens", "loss", "stack", "layer", "head"])
        for name in TEXTS:
            self.assertEqual(str(csv[name].dtype), "string")
        for name in INTEGERS:
            self.assertEqual(str(csv[name].dtype), "Int64")
        self.assertEqual(str(csv["entropy_relative"].dtype), "float64")
        # Rows of whole layers have no head.
        self.assertEqual(len(csv[csv["head"].isna()]) * 5, len(csv))
        self.assert_equal(csv, parquet)
        self.assert_equal(csv, of_json)

    def test_several_checkpoints(self):
        words = ["report", HEALTHY, UNSCALED, "the king took a quiet story"]
        csv, of_json = (self.written(f"report.{kind}", *words) for kind in ("csv", "json"))
        self.assertEqual(set(csv["checkpoint"]), {"healthy", "unscaled"})
        self.assert_equal(csv, of_json)

    def test_a_model_with_several_stacks(self):
        words = ["report", os.path.join(FIXTURES, "seq2seq", "scaled"), "--tokens", "5,6,7", "--target-tokens", "1,4,5"]
        csv, of_json = (self.written(f"report.{kind}", *words) for kind in ("csv", "json"))
        self.assertEqual(set(csv["stack"].dropna()), {"cross"})
        self.assert_equal(csv, of_json)

    def test_a_log_is_read_as_the_program_reads_it(self):
        log = os.path.join(FIXTURES, "histories", "jump.jsonl")
        csv = self.written("history.csv", "history", log)
        frame = attnscope_read(log)
        self.assert_equal(csv, frame)
        self.assertEqual((frame["step"].min(), frame["step"].max()), (0, 400))
        # A record of a step before takes the place of what was recorded from there on.
        with open(log, encoding="utf-8") as file:
            lines = file.read().splitlines()
        again = json.loads(lines[5])
        again["loss"] = "NaN"
        path = self.write("restarted.jsonl", "\n".join([*lines, json.dumps({"segment": {}}), json.dumps(again), '{"half']))
        frame = attnscope_read(path)
        self.assertEqual(frame["step"].max(), again["step"])
        self.assertTrue(frame.loc[frame["step"] == again["step"], "loss"].isna().all())
        self.assertTrue(frame.loc[frame["step"] < again["step"], "loss"].notna().all())

    def test_the_json_of_a_history_has_the_rows_of_heads(self):
        words = ["history", os.path.join(FIXTURES, "histories", "growth.jsonl")]
        csv, of_json = (self.written(f"history.{kind}", *words) for kind in ("csv", "json"))
        heads = csv[csv["head"].notna()].reset_index(drop=True)
        self.assert_equal(heads, of_json, ["step", "loss", "layer", "head", "entropy_relative", "score_std"])

    def test_a_batch_is_read_from_its_directory(self):
        batch, prompts = self.path("batch"), self.prompts()
        words = ["batch", HEALTHY, UNSCALED, "--inputs", prompts, "--chunk", "4", "--output", batch]
        self.run_program(*words, "--shard", "1/2", "--quiet")
        with self.assertWarnsRegex(UserWarning, "is not a whole batch"):
            part = attnscope_read(batch)
        self.run_program(*words, "--quiet")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            whole = attnscope_read(batch)
        self.assertLess(len(part), len(whole))
        self.assertEqual(sorted(whole["prompt"].unique()), sorted(IDS))
        for kind in ("parquet", "csv", "json"):
            self.assert_equal(whole, self.written(f"merged.{kind}", "merge", batch, "--fail-on", "never"))

    def test_findings(self):
        frame = self.written("check.json", "check", UNSCALED, "--text", "the king took a quiet story", "--fail-on", "never")
        with open(self.path("check.json"), encoding="utf-8") as file:
            findings = json.load(file)["targets"][0]["findings"]
        self.assertEqual(list(frame["check"]), [finding["check"] for finding in findings])
        self.assertEqual([None if x != x else x for x in frame["value"]], [
            None if finding["value"] == "NaN" else float(finding["value"]) for finding in findings])
        self.assertGreater(len(frame), 0)
        self.assertEqual(list(frame.columns[:8]), ["target", "check", "severity", "stack", "layer", "head", "query", "key"])

    def test_types_of_heads(self):
        frame = self.written("heads.json", "heads", HEALTHY, "the king took a quiet story")
        self.assertEqual(len(frame), 8)
        self.assertTrue({"checkpoint", "prompt", "layer", "head", "type", "previous_mass"} <= set(frame.columns))
        self.assertTrue(any(name.startswith("random_") for name in frame.columns))


@needs("pandas")
class Files(Table):
    def test_words_for_numbers_that_are_none(self):
        row = {"layer": 0, "stack": None, "stats": {"score_max": "Infinity", "score_min": "-Infinity", "q_norm": "NaN"}, "heads": []}
        document = {"version": 1, "model": {"name": "m"}, "what_if": [],
                    "prompts": [{"id": "p", "tokens": [1, 2], "loss": "NaN", "layers": [row]}]}
        of_json = attnscope_read(self.write("report.json", json.dumps(document)))
        of_csv = attnscope_read(self.write("report.csv", "checkpoint,step,prompt,n_tokens,loss,stack,layer,head,"
                                           "score_max,score_min,q_norm\nm,,p,2,NaN,,0,,Infinity,-Infinity,NaN\n"))
        self.assert_equal(of_csv, of_json, list(of_csv.columns))
        self.assertEqual([of_csv["score_max"][0], of_csv["score_min"][0]], [float("inf"), float("-inf")])
        self.assertTrue(of_csv["q_norm"].isna()[0])

    def test_prompts_come_in_the_order_of_a_table(self):
        def prompt(name):
            return {"id": name, "tokens": [1], "loss": None, "layers": [{"layer": 0, "stack": None, "stats": {"q_norm": 1.0}, "heads": []}]}

        ids = ["b", "10", "9", "\u00e4", "Z", "a", "\U0001f600", "\uffee", ""]
        document = {"version": 1, "model": {"name": "m"}, "what_if": [], "prompts": [prompt(name) for name in ids]}
        frame = attnscope_read(self.write("report.json", json.dumps(document)))
        # Of UTF-8, as the program has it: UTF-16 would put the emoji before U+FFEE.
        self.assertEqual(list(frame["prompt"]), ["", "10", "9", "Z", "a", "b", "\u00e4", "\uffee", "\U0001f600"])

    def test_other_files_are_refused_with_what_was_expected(self):
        for name, text, found in (("a.json", '{"a": 1}', "the keys a"), ("b.json", '{"a": ', "no JSON"),
                                  ("c.csv", "x,y\n1,2\n", "without a column layer"), ("d.txt", "words", "monitor log"),
                                  ("empty", "", "monitor log"), ("e.json", "[1]", "monitor log")):
            with self.assertRaisesRegex(ValueError, found) as caught:
                attnscope_read(self.write(name, text))
            self.assertIn(name, str(caught.exception))
            self.assertIn("expected CSV, Parquet or JSON of attnscope", str(caught.exception))
        with self.assertRaisesRegex(ValueError, "found another directory"):
            attnscope_read(self.directory)
        with self.assertRaises(FileNotFoundError):
            attnscope_read(self.path("nothing"))


if __name__ == "__main__":
    unittest.main()
