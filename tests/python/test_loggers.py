"""Loggers of experiments: what they are given, what happens when they fail, and that the program reads the losses back."""

import glob
import json
import math
import os
import random
import shutil
import subprocess
import sys
import unittest
import warnings
from unittest import mock

from support import ROOT, Case, Model, batch, loss_of, needs, program
from places import needs_program
import torch

from attnscope import Monitor
from attnscope.loggers import CURVES, curves_of, opened
from attnscope.statistics import DEFAULT, OF_LAYERS


class Writer:
    """Takes scalars as a SummaryWriter does."""

    def __init__(self, fails=lambda step: False):
        self.scalars, self.steps, self.fails = {}, [], fails

    def add_scalar(self, tag, value, step, walltime=None):
        if not self.steps or self.steps[-1] != step:
            self.steps.append(step)
        if self.fails(step):
            raise ConnectionError("no network")
        self.scalars[tag, step] = value


class Rows:
    """A run of W&B: its rows have a number that only rises, and what comes for an earlier one is refused."""

    def __init__(self):
        self.step, self.rows, self.pending, self.metrics, self.refused = 0, [], {}, {}, 0

    def define_metric(self, name, **options):
        self.metrics[name] = options

    def log(self, row, step=None, commit=None):
        if step is not None and step < self.step:
            self.refused += 1
            return
        if step is not None and step > self.step:
            self.write()
            self.step = step
        self.pending.update(row)
        if commit if commit is not None else step is None:
            self.write()
            self.step += 1

    def write(self):
        if self.pending:
            self.rows.append(self.pending)
        self.pending = {}


class Loop(Case):
    def train(self, log_to, steps=range(12), every=5, each=lambda step, loss: None, **options):
        model = Model()
        with Monitor(model, self.path, every=every, rows=8, log_to=log_to, **options) as monitor:
            for step in steps:
                loss = loss_of(model, batch())
                loss.backward()
                monitor.step(step, loss=loss)
                each(step, float(loss.detach()))
        return monitor

    def expected(self):
        """{(name, step): number} of the means in the log."""
        found = {}
        for record in self.records():
            found["attnscope/loss", record["step"]] = record["loss"]
            for statistic, values in record["values"].items():
                for i, heads in enumerate(values):
                    if None not in heads:
                        curve = CURVES.get(statistic, statistic)
                        name = f"attnscope/{curve}/L{i}" + ("" if statistic in OF_LAYERS else "/mean")
                        found[name, record["step"]] = sum(map(float, heads)) / len(heads)
            (mask,) = record["batch"]["masks"]["kinds"]
            for i in range(2):
                found[f"attnscope/visible_keys/L{i}", record["step"]] = mask["keys"]
        return found


class Curves(Loop):
    def test_the_numbers_are_those_of_the_log(self):
        writer = Writer()
        with self.quiet():
            self.train(writer)
        self.assertEqual(writer.steps, [0, 5, 10])
        expected = self.expected()
        self.assertEqual({key: writer.scalars[key] for key in expected}, expected)
        # the loss, and of each layer: three curves of a head statistic, one of a layer statistic and of the visible keys
        n_known = len([name for name, step in expected if step == 0 and name.endswith("/mean")])
        n_layers = len([name for name, step in expected if step == 0 and "/L" in name]) - n_known
        self.assertEqual(len([name for name, step in writer.scalars if step == 0]), 1 + 3 * n_known + n_layers)
        first = self.records()[0]["values"]["entropy"][1]
        self.assertEqual(writer.scalars["attnscope/entropy/L1/min", 0], min(first))
        self.assertEqual(writer.scalars["attnscope/entropy/L1/max", 0], max(first))
        self.assertNotIn(("attnscope/entropy/L1H2", 0), writer.scalars)

    def test_each_head_on_request(self):
        writer = Writer()
        self.train(writer, log_heads=True)
        heads = self.records()[0]["values"]["entropy"][1]
        self.assertEqual([writer.scalars[f"attnscope/entropy/L1H{i}", 0] for i in range(4)], heads)

    def test_values_that_are_no_number_and_values_that_are_not_there(self):
        layers = [{"stack": "cross", "layer": 2}]
        record = {"loss": "NaN", "values": {"entropy": [[1.0, "NaN"]], "score_max": [["Infinity", 2.0]], "pad_mass": [[None, None]],
                                            "q_norm": [[None, 3.0]]}}
        curves = curves_of(record, layers)
        self.assertTrue(math.isnan(curves.pop("attnscope/loss")))
        self.assertTrue(all(math.isnan(curves.pop(f"attnscope/entropy/cross.L2/{end}")) for end in ("mean", "min", "max")))
        self.assertEqual(curves, {
            "attnscope/max_logit/cross.L2/mean": math.inf, "attnscope/max_logit/cross.L2/min": 2.0,
            "attnscope/max_logit/cross.L2/max": math.inf, "attnscope/q_norm/cross.L2/mean": 3.0,
            "attnscope/q_norm/cross.L2/min": 3.0, "attnscope/q_norm/cross.L2/max": 3.0})

    def test_the_manual_counts_the_curves(self):
        with open(os.path.join(ROOT, "docs", "history.md"), encoding="utf-8") as file:
            text = " ".join(file.read().split())
        n_heads = len(DEFAULT) - len(OF_LAYERS)
        n = 3 * n_heads + len(OF_LAYERS)
        self.assertIn(f"The {len(DEFAULT)} default statistics make {n} curves per layer, visible keys one more; `log_heads=True` adds "
                      f"{n_heads} per head", text)

    def test_the_largest_score_of_a_head_is_the_max_logit(self):
        writer = Writer()
        self.train(writer, log_heads=True)
        largest = self.records()[0]["values"]["score_max"][1]
        self.assertEqual([writer.scalars[f"attnscope/max_logit/L1H{i}", 0] for i in range(4)], largest)
        self.assertEqual(writer.scalars["attnscope/max_logit/L1/max", 0], max(largest))
        self.assertFalse([name for name, _ in writer.scalars if "score_max" in name])

    def test_visible_keys_of_layers_whose_heads_differ(self):
        layers = [{"stack": None, "layer": i} for i in range(3)]
        masks = {"kinds": [{"keys": 10.0}, {"keys": 4.0}], "of": [1, [0, 1, None], None]}
        curves = curves_of({"loss": None, "values": {}, "batch": {"masks": masks}}, layers)
        self.assertEqual(curves, {"attnscope/visible_keys/L0": 4.0, "attnscope/visible_keys/L1": 7.0})


class Targets(Loop):
    def test_a_missing_package_is_told_at_once_and_leaves_no_file(self):
        for name, module, installed in (("tensorboard", "torch.utils.tensorboard", "tensorboard"), ("wandb", "wandb", "wandb"),
                                        ("trackio", "trackio", "trackio")):
            with self.subTest(name), mock.patch.dict(sys.modules, {module: None}):
                with self.assertRaisesRegex(ImportError, f"log_to='{name}' needs {installed}.*: pip install {installed}$"):
                    Monitor(Model(), self.path, log_to=name)
                self.assertEqual(os.listdir(self.directory), [])

    def test_other_names_and_objects_are_refused(self):
        with self.assertRaisesRegex(ValueError, "log_to is 'mlflow', expected tensorboard, wandb, trackio"):
            Monitor(Model(), self.path, log_to="mlflow")
        with self.assertRaisesRegex(TypeError, "log_to has 'int' in it"):
            Monitor(Model(), self.path, log_to=[Writer(), 3])

    def test_wandb_without_a_run_says_what_to_call(self):
        with mock.patch.dict(sys.modules, {"wandb": mock.Mock(run=None)}):
            with self.assertRaisesRegex(RuntimeError, "call wandb.init"):
                Monitor(Model(), self.path, log_to="wandb")

    def test_nothing_is_imported_that_was_not_asked_for(self):
        code = ("import sys, attnscope.monitor; "
                "print(sorted({'wandb', 'trackio', 'tensorboard', 'torch.utils.tensorboard'} & set(sys.modules)))")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        self.assertEqual(done.stdout.strip(), "[]")

    def test_only_the_process_that_writes_logs(self):
        self.assertEqual(opened([Writer(), Rows()], self.path, False, writes=False), [])


class Failing(Loop):
    def test_a_logger_that_fails_is_told_and_the_others_go_on(self):
        bad, good = Writer(lambda step: step == 1), Writer()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            monitor = self.train([bad, good], range(4), every=1)
        told = [str(w.message) for w in told if "attnscope" in str(w.message)]
        self.assertEqual(told, ["attnscope: logging to TensorBoard failed, the log goes on: ConnectionError: no network"])
        self.assertEqual((bad.steps, good.steps), ([0, 1, 2, 3], [0, 1, 2, 3]))
        self.assertIsNone(monitor.error)

    def test_one_that_fails_ten_times_in_a_row_is_called_no_more(self):
        bad, good = Writer(lambda step: step != 3), Writer()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            monitor = self.train([bad, good], range(20), every=1)
        told = [str(w.message) for w in told if "attnscope" in str(w.message)]
        self.assertIn("failed 10 times in a row and is called no more", told[-1])
        self.assertEqual((bad.steps, good.steps), (list(range(14)), list(range(20))))
        self.assertIsInstance(monitor.error, ConnectionError)
        self.assertEqual([record["step"] for record in self.records()], list(range(20)))


class Undisturbed(Loop):
    def left(self, log_to):
        random.seed(0)
        torch.manual_seed(0)
        model, optimizer = Model(), None
        optimizer = torch.optim.AdamW(model.parameters())
        with Monitor(model, self.path, every=2, rows=8, log_to=log_to) as monitor:
            for step in range(5):
                loss = loss_of(model, batch())
                loss.backward()
                optimizer.step()
                monitor.step(step, loss=loss)
            self.assertIsNone(monitor.error)
        return [*model.parameters(), torch.get_rng_state()], random.getstate()

    def check(self, *log_to):
        plain, state = self.left(None)
        for target in log_to:
            with self.subTest(target):
                found, other = self.left(target)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain, found)))
                self.assertEqual(state, other)

    def test_with_stubs(self):
        self.check(Writer(), Rows())

    @needs("tensorboard")
    def test_with_tensorboard(self):
        self.check("tensorboard")


class Wandb(Loop):
    def rows(self, run):
        run.write()
        return {row["attnscope/step"]: row["attnscope/loss"] for row in run.rows if "attnscope/step" in row}

    def test_every_record_is_a_row_and_the_training_loses_none(self):
        for has_steps in (True, False):
            for logs_every in (1, 3, 7, 1000):
                with self.subTest(has_steps=has_steps, logs_every=logs_every):
                    run = Rows()

                    def each(step, loss):
                        if step % logs_every == 0:
                            run.log({"loss": loss}, **({"step": step} if has_steps else {}))

                    self.train(run, range(22), every=2, each=each)
                    self.assertEqual(list(self.rows(run)), list(range(0, 22, 2)))
                    self.assertEqual(run.refused, 0)
                    self.assertEqual(len([row for row in run.rows if "loss" in row]), len(range(0, 22, logs_every)))
                    os.remove(self.path)

    def test_curves_are_drawn_over_a_step_of_their_own(self):
        run = Rows()
        self.train(run)
        self.assertEqual(run.metrics["attnscope/*"], {"step_metric": "attnscope/step"})


class EndToEnd(Loop):
    """Real packages write, and the program reads."""

    def history(self, directory, steps):
        for step in steps:
            at = os.path.join(directory, f"checkpoint-{step}")
            os.makedirs(at)
            for name, to in (("config.json", "config.json"), ("step-150.safetensors", "model.safetensors")):
                shutil.copy(os.path.join(ROOT, "fixtures", "history", name), os.path.join(at, to))
        command = [program(), "history", directory, "--tokens", "1,2,3,4", "--format", "json", "--no-cache"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def check(self, logger, name="attnscope/loss", steps=range(0, 40, 10)):
        found = self.history(self.directory, steps)
        self.assertEqual(found["notes"], [])
        self.assertEqual([(of["name"], of["logger"]) for of in found["logged"]], [(name, logger)])
        logged = {step["step"]: step["training_loss"] for step in found["steps"]}
        self.assertEqual(logged, {record["step"]: record["loss"] for record in self.records() if record["step"] in steps})
        self.assertTrue(all(step["loss"] > 0 and step["loss"] != step["training_loss"] for step in found["steps"]))


@needs("tensorboard")
@needs_program()
class RealTensorBoard(EndToEnd):
    def test_losses_are_those_of_the_log(self):
        with self.quiet():
            self.train("tensorboard", range(35), every=10)
        self.check("TensorBoard")

    def test_all_numbers_are_those_of_the_log(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        self.train("tensorboard", range(35), every=10)
        events = EventAccumulator(os.path.join(self.directory, "tensorboard", "run"), {"scalars": 0})
        events.Reload()
        found = {(tag, event.step): event.value for tag in events.Tags()["scalars"] for event in events.Scalars(tag)}
        for key, number in self.expected().items():
            self.assertTrue(math.isclose(found[key], number, rel_tol=1e-6, abs_tol=1e-30), (key, found[key], number))

    def test_a_run_that_starts_again_replaces_its_curves(self):
        self.train("tensorboard", range(35), every=10)
        self.train("tensorboard", range(20, 35), every=10)
        self.assertEqual(len(glob.glob(os.path.join(self.directory, "tensorboard", "run", "*"))), 2)
        # What the log had of these steps is replaced too.
        records = {record["step"]: record for record in self.records()}
        self.records = lambda: list(records.values())
        self.check("TensorBoard")

    def test_a_writer_of_the_training_stays_open(self):
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(os.path.join(self.directory, "runs", "mine")) as writer:
            self.train(writer, range(35), every=10)
            writer.add_scalar("eval_loss", 2.5, 30)
        found = self.history(self.directory, [30])
        self.assertEqual(found["steps"][0]["evaluation_loss"], 2.5)
        self.assertEqual(found["steps"][0]["training_loss"], self.records()[-1]["loss"])


@needs("wandb")
@needs_program()
class RealWandb(EndToEnd):
    @classmethod
    def tearDownClass(cls):
        import wandb

        wandb.teardown()  # its process would outlive the tests

    def run_of(self, log_to, each, **options):
        import wandb

        with mock.patch.dict(os.environ, {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = wandb.init(project="attnscope", dir=self.directory)
            monitor = self.train(log_to or run, range(35), every=10, each=lambda step, loss: each(run, step, loss), **options)
            self.assertIsNone(monitor.error)
            run.finish()

    def test_losses_are_those_of_the_log(self):
        # Rows with every head are longer than a block of the file.
        self.run_of("wandb", lambda run, step, loss: None, log_heads=True)
        (path,) = glob.glob(os.path.join(self.directory, "wandb", "offline-run-*", "*.wandb"))
        self.assertGreater(os.path.getsize(path), 1 << 15)
        self.check("W&B")

    def test_beside_what_the_training_logs(self):
        def each(run, step, loss):
            if step % 10 == 0:
                run.log({"Train/Loss": float(f"{loss:.7g}"), "val_note": "text"}, step=step)

        self.run_of(None, each)
        self.check("W&B", "Train/Loss")


@needs("trackio")
class RealTrackio(Loop):
    def test_the_numbers_are_those_of_the_log(self):
        import contextlib
        import io
        import sqlite3

        with mock.patch.dict(os.environ, {"TRACKIO_DIR": self.directory}), contextlib.redirect_stdout(io.StringIO()), \
                warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import trackio
            from trackio import utils

            if str(utils.TRACKIO_DIR) != self.directory:
                self.skipTest("trackio keeps the directory that it was imported with")
            with self.assertRaisesRegex(RuntimeError, "call trackio.init"):
                Monitor(Model(), self.path, log_to="trackio")
            trackio.init(project="attnscope")
            monitor = self.train("trackio", range(35), every=10)
            trackio.finish()
        self.assertIsNone(monitor.error)
        with contextlib.closing(sqlite3.connect(os.path.join(self.directory, "attnscope.db"))) as base:
            rows = [json.loads(row) for (row,) in base.execute("SELECT metrics FROM metrics")]
        found = {row["attnscope/step"]: row["attnscope/loss"] for row in rows}
        self.assertEqual(found, {record["step"]: record["loss"] for record in self.records()})


if __name__ == "__main__":
    unittest.main()
