"""What the driver of a Ray cluster does without Ray: flags, files that come back, the bar."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import places  # noqa: F401  puts the package on the path

from attnscope import ray as driver


# Stands for the program: plans two targets of two chunks, writes a file for each call, and says what it was asked to merge.
PROGRAM = """#!/usr/bin/env python3
import json, os, sys, uuid
words = sys.argv[1:]
after = lambda flag: words[words.index(flag) + 1]
if "--plan" in words:
    layout = after("--layout") if "--layout" in words else "files"
    targets = [{"target": word, "checkpoint": word} for word in "ab"]
    print(json.dumps({"targets": targets, "layout": layout, "missing": [[t, c] for t in (0, 1) for c in (0, 1)]}))
elif words[0] == "batch":
    place = os.path.join(after("--output"), "parts", words[1])
    os.makedirs(place, exist_ok=True)
    open(os.path.join(place, uuid.uuid4().hex + ".units"), "w").close()
    print(f"{len(after('--only-chunks').split(','))} units done, 0 already there, 0 failed")
elif "--output" in words:
    open(after("--output"), "w").write(" ".join(words))
"""


class Stub:
    """What the driver uses of ray: tasks run at once, here."""

    class exceptions:
        RayError = RuntimeError

    def __init__(self):
        self.n_run = {}

    def init(self, **_):
        pass

    def shutdown(self):
        pass

    def put(self, value):
        return value

    def remote(self, **_):
        def wrap(function):
            def run(*words):
                self.n_run[function.__name__] = self.n_run.get(function.__name__, 0) + 1
                return (len(self.n_run), self.n_run[function.__name__], Held(function(*words)))

            return mock.Mock(remote=run)

        return wrap

    def wait(self, waiting, num_returns):
        return waiting[:num_returns], waiting[num_returns:]

    def get(self, reference):
        return [self.get(one) for one in reference] if isinstance(reference, list) else reference[2].value


class Held:
    """A value that may be part of a key."""

    def __init__(self, value):
        self.value = value


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

    def test_units_of_one_target_go_together_so_many_at_a_time(self):
        missing = [(0, 0), (0, 1), (0, 4), (1, 0), (1, 1)]
        self.assertEqual(driver.tasks_of(missing, 1), [(target, [chunk]) for target, chunk in missing])
        self.assertEqual(driver.tasks_of(missing, 2), [(0, [0, 1]), (0, [4]), (1, [0, 1])])
        self.assertEqual(driver.place("a", [4]), "a, chunk 4")
        self.assertEqual(driver.place("a", [0, 1]), "a, chunks 0 to 1")

    def test_units_that_are_not_done_are_counted_from_what_is_printed(self):
        self.assertEqual(driver.n_not_done("3 units done, 2 already there, 1 failed\n", 6), 1)
        self.assertEqual(driver.n_not_done("1 unit done, 0 already there, 0 failed", 4), 3)
        self.assertEqual(driver.n_not_done("", 4), 4)

    def test_packed_parts_keep_their_directories(self):
        with tempfile.TemporaryDirectory() as directory:
            driver.write(directory, {"parts/0123/a.units": b"block"})
            self.assertEqual(Path(directory, "parts/0123/a.units").read_bytes(), b"block")

    def test_the_driver_plans_runs_sends_back_and_merges_in_shares(self):
        for more, n_tasks in ((["--layout", "packed"], 2), (["--layout", "packed", "--send-back"], 2), ([], 4)):
            with self.subTest(more=more), tempfile.TemporaryDirectory() as directory:
                at = Path(directory)
                (at / "p.jsonl").write_text('{"text": "a"}\n')
                program = at / "attnscope"
                program.write_text(PROGRAM)
                program.chmod(0o755)
                words = ["--checkpoints", "a", "b", "--inputs", str(at / "p.jsonl"), "--output", str(at / "out"), "--program", str(program)]
                words += ["--table", str(at / "table.csv"), "--merge-shards", "2", *more]
                ray = Stub()
                with mock.patch.dict("sys.modules", {"ray": ray}), contextlib.redirect_stdout(io.StringIO()) as said:
                    self.assertEqual(driver.main(words), 0)
                self.assertIn("4 units done, 0 failed", said.getvalue())
                self.assertEqual(ray.n_run["run_units"], n_tasks)
                is_shared = "--send-back" not in more
                self.assertEqual(ray.n_run.get("run_merge", 0), 2 if is_shared else 0)
                self.assertEqual("--join 2" in (at / "table.csv").read_text(), is_shared)
                self.assertEqual(len(list((at / "out/parts").rglob("*.units"))), n_tasks)

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
