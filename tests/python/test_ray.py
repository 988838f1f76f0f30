"""What the driver of a Ray cluster does without Ray: flags, files that come back, the bar."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import places  # noqa: F401  puts the package on the path

from attnscope import ray as driver


class Ray(unittest.TestCase):
    def arguments(self, *more):
        return driver.arguments(["--checkpoints", "a", "b", "--inputs", "p.jsonl", "--output", "out", *more])

    def test_flags_after_two_dashes_go_to_every_unit(self):
        args = self.arguments("--chunk", "8", "--", "--what-if", "scale=none")
        self.assertEqual(args.checkpoints, ["a", "b"])
        self.assertEqual(driver.common(args), ["--chunk", "8", "--what-if", "scale=none"])

    def test_a_task_with_a_gpu_computes_on_it_unless_a_device_is_named(self):
        self.assertIn("cuda", driver.common(self.arguments("--gpus", "1")))
        named = driver.common(self.arguments("--gpus", "1", "--", "--device", "cpu"))
        self.assertEqual([named[at + 1] for at, word in enumerate(named) if word == "--device"], ["cpu"])

    def test_the_program_is_the_one_that_is_named_or_found(self):
        self.assertEqual(driver.program_of("/some/attnscope"), "/some/attnscope")
        with mock.patch.object(driver, "find_program", side_effect=FileNotFoundError("it was not found")):
            with self.assertRaisesRegex(SystemExit, "attnscope.ray: it was not found; or name it with --program"):
                driver.program_of(None)

    def test_rows_get_their_name_before_their_record(self):
        files = {"parts/a.json": b"record", "weights/w.json": b"digest", "parts/a.parquet": b"rows"}
        named = []
        replace = driver.os.replace
        with tempfile.TemporaryDirectory() as directory:
            with mock.patch.object(driver.os, "replace", lambda a, b: (named.append(Path(b).name), replace(a, b))):
                driver.write(directory, files)
            self.assertEqual(named[0], "a.parquet")
            written = {str(path.relative_to(directory)) for path in Path(directory).rglob("*") if path.is_file()}
            self.assertEqual(written, set(files))
            self.assertEqual(Path(directory, "parts/a.json").read_bytes(), b"record")

    def test_progress_is_one_line_on_a_terminal_and_nothing_elsewhere(self):
        def said_of(is_terminal, seconds):
            said = io.StringIO()
            said.isatty = lambda: is_terminal
            with contextlib.redirect_stderr(said):
                bar = driver.Bar(2)
                bar.begun -= seconds
                bar.ended(True)
                bar.ended(False)
                bar.clear()
            return said.getvalue()

        self.assertEqual(said_of(False, 2), "")
        self.assertEqual(said_of(True, 0), "")
        said = said_of(True, 2)
        self.assertIn("2 of 2 units, 1 failed", said)
        self.assertNotIn("\n", said)
        self.assertTrue(said.endswith("\r\x1b[K"))


if __name__ == "__main__":
    unittest.main()
