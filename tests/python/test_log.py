"""The log: its lines, steps that jump, restarts, and what happens when something goes wrong."""

import json
import math
import os
import threading
import unittest
import warnings

from support import Attention, Block, Case, Model, batch, loss_of
import torch
from torch import nn

from attnscope import Monitor
from attnscope.statistics import DEFAULT, OF_LAYERS


class Loop(Case):
    def run_steps(self, monitor, model, steps):
        for step in steps:
            loss = loss_of(model, batch())
            loss.backward()
            monitor.step(step, loss=loss)

    def recorded(self, steps, **options):
        model = Model()
        with self.quiet(), Monitor(model, self.path, rows=8, **options) as monitor:
            self.run_steps(monitor, model, steps)
            self.assertIsNone(monitor.error)
        return [record["step"] for record in self.records()]


class Lines(Loop):
    def test_the_head_and_the_records(self):
        model, seen = Model(), []
        with self.quiet(), Monitor(model, self.path, every=5, rows=16, on_record=seen.append) as monitor:
            for step in range(12):
                loss = loss_of(model, batch())
                loss.backward()
                record = monitor.step(step, loss=loss)
                self.assertEqual(record is not None, step % 5 == 0)
                if record is not None:  # on disk before the next step
                    self.assertEqual(self.lines()[-1], json.loads(json.dumps(record)))
        head, *records = self.lines()
        self.assertEqual(head, {
            "attnscope": "monitor", "version": 1, "model": "Model", "statistics": list(DEFAULT),
            "layers": [{"name": f"blocks.{i}.attn", "stack": None, "layer": i, "n_heads": 4} for i in range(2)],
            "rows": 16, "every": 5})
        self.assertEqual(records, seen)
        for record in records:
            self.assertEqual(set(record), {"step", "time", "loss", "batch", "values"})
            self.assertEqual(list(record["values"]), list(DEFAULT))
            sizes = {name: [len(layer) for layer in v] for name, v in record["values"].items()}
            self.assertEqual(sizes, {name: [1, 1] if name in OF_LAYERS else [4, 4] for name in DEFAULT})

    def test_what_is_no_number_has_the_words_of_reports(self):
        model = Model()
        with Monitor(model, self.path, rows=0, statistics=["entropy", "previous_mass", "q_norm", "max_abs_score"]) as monitor:
            with torch.no_grad():
                model.blocks[1].attn.qkv.weight[0, 0] = math.nan
            loss_of(model, batch())
            monitor.step(0, loss=torch.tensor(math.inf))
        record = self.records()[0]
        self.assertEqual(record["loss"], "Infinity")
        self.assertEqual([v[1][0] for v in record["values"].values()], ["NaN"] * 4)
        self.assertIsInstance(record["values"]["entropy"][0][0], float)
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                json.loads(line, parse_constant=lambda word: self.fail(f"{word} is no JSON"))

    def test_unknown_names_and_paths_are_refused_before_the_training(self):
        model = Model()
        for options in ({"statistics": ["entorpy"]}, {"every": 0}, {"rows": -1}, {"every": 2.5}):
            with self.assertRaises(ValueError):
                Monitor(model, self.path, **options)
        with self.assertRaises(FileNotFoundError):
            Monitor(model, os.path.join(self.directory, "none", "run.jsonl"))
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("my thesis\n")
        with self.assertRaises(ValueError):
            Monitor(model, self.path)
        with self.assertRaises(TypeError):
            Monitor(loss_of, self.path)
        self.assertEqual(sum(len(m._forward_pre_hooks) for m in model.modules()), 0)


class Steps(Loop):
    def test_from_0_and_from_1(self):
        self.assertEqual(self.recorded(range(11), every=5), [0, 5, 10])

    def test_counted_from_1(self):
        self.assertEqual(self.recorded(range(1, 12), every=5), [1, 5, 10])

    def test_steps_of_ten(self):
        steps = self.recorded(range(0, 400, 10), every=50)
        self.assertEqual(steps[0], 0)
        self.assertEqual(steps[-5:], [150, 200, 250, 300, 350])

    def test_steps_that_jump(self):
        self.assertEqual(self.recorded([0, 1, 2, 7, 8, 9, 10, 23, 24, 25], every=5), [0, 8, 10, 24, 25])

    def test_every_step(self):
        self.assertEqual(self.recorded(range(4), every=1), [0, 1, 2, 3])

    def test_a_training_that_goes_back_begins_a_segment(self):
        self.assertEqual(self.recorded([*range(0, 11), *range(3, 8)], every=5), [0, 5, 10, 4, 5])
        kinds = ["segment" in line for line in self.lines()]
        self.assertEqual(kinds, [False, False, False, False, True, False, False])

    def test_between_recorded_steps_nothing_is_on_the_model(self):
        model = Model()
        with Monitor(model, self.path, every=5) as monitor:
            hooks = []
            for step in range(8):
                loss_of(model, batch()).backward()
                monitor.step(step)
                hooks.append(sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()))
        self.assertEqual(hooks, [0, 0, 0, 0, 1, 0, 0, 0])

    def test_a_step_without_a_pass_is_waited_for(self):
        model = Model()
        with Monitor(model, self.path, every=5) as monitor:
            self.assertIsNone(monitor.step(0))
            self.run_steps(monitor, model, [1])
        self.assertEqual([r["step"] for r in self.records()], [1])


class Restarts(Loop):
    def test_a_restart_goes_on_in_the_same_file(self):
        self.recorded(range(8), every=5)
        with open(self.path, "rb") as file:
            before = file.read()
        self.assertEqual(self.recorded(range(6, 12), every=5), [0, 5, 6, 10])
        with open(self.path, "rb") as file:
            self.assertTrue(file.read().startswith(before))
        segments = [line["segment"] for line in self.lines() if "segment" in line]
        self.assertEqual([s["step"] for s in segments], [6])
        self.assertEqual(segments[0]["layers"], self.lines()[0]["layers"])

    def test_a_line_that_a_crash_cut_stays_alone(self):
        self.recorded(range(6), every=5)
        with open(self.path, "ab") as file:
            file.write(b'{"step":9,"time":17')
        model = Model()
        with Monitor(model, self.path, every=5) as monitor:
            self.run_steps(monitor, model, [9])
        with open(self.path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[3], '{"step":9,"time":17')
        self.assertEqual([json.loads(line).get("step") for line in lines[4:]], [None, 9])

    def test_an_empty_file_is_a_new_log(self):
        open(self.path, "w").close()
        self.assertEqual(self.recorded([0], every=5), [0])
        self.assertIn("attnscope", self.lines()[0])

    def test_other_layers_than_before_are_said(self):
        model = Model()
        with Monitor(model, self.path, every=1) as monitor:
            self.run_steps(monitor, model, [0])
            model.blocks.append(Block())
            self.run_steps(monitor, model, [1])
        head, _, segment, record = self.lines()
        self.assertEqual((len(head["layers"]), len(segment["segment"]["layers"])), (2, 3))
        self.assertEqual(len(record["values"]["entropy"]), 3)


class Wrong(Loop):
    """Whatever goes wrong in the monitor: one warning, and a training that goes on."""

    def off(self, spoil, steps=6, path=None, **options):
        model, plain = Model(), Model()
        plain.load_state_dict(model.state_dict())
        monitor = Monitor(model, path or self.path, every=2, rows=8, **options)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            spoil(monitor)
            torch.manual_seed(1)
            self.run_steps(monitor, model, range(steps))
        ours = [str(w.message) for w in told if "attnscope" in str(w.message)]
        self.assertEqual(len(ours), 1, ours)
        self.assertIn("the monitor is off, training goes on", ours[0])
        torch.manual_seed(1)
        for _ in range(steps):
            loss_of(plain, batch()).backward()
        for a, b in zip(model.parameters(), plain.parameters()):
            self.assertTrue(torch.equal(a.grad, b.grad))
        self.assertEqual(sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()), 0)
        return ours[0]

    def test_an_exception_while_it_looks(self):
        for place in ("found", "after", "enter", "begin", "settle"):
            with self.subTest(place=place):
                from attnscope.watch import Watch

                before = getattr(Watch, place)
                self.addCleanup(setattr, Watch, place, before)

                def fails(*_):
                    raise RuntimeError("deliberate")

                try:
                    self.assertIn("deliberate", self.off(lambda _, p=place: setattr(Watch, p, fails)))
                finally:
                    setattr(Watch, place, before)

    def called(self, fails, steps):
        """Trains with an on_record that fails at some steps; the steps that it was called at, and what was told."""
        model, calls = Model(), []

        def on_record(record):
            calls.append(record["step"])
            if fails(record["step"]):
                raise ConnectionError("no network")

        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with Monitor(model, self.path, every=1, rows=8, on_record=on_record) as monitor:
                self.run_steps(monitor, model, range(steps))
                self.assertFalse(monitor.is_off)
        self.assertEqual([record["step"] for record in self.records()], list(range(steps)))
        return calls, [str(w.message) for w in told if "attnscope" in str(w.message)], monitor

    def test_an_exception_in_on_record_is_told_and_the_log_goes_on(self):
        calls, told, monitor = self.called(lambda step: step == 1, 4)
        self.assertEqual(calls, [0, 1, 2, 3])
        self.assertEqual(told, ["attnscope: on_record failed, the log goes on: ConnectionError: no network"])
        self.assertIsNone(monitor.error)

    def test_an_on_record_that_fails_ten_times_in_a_row_is_called_no_more(self):
        calls, told, monitor = self.called(lambda step: step != 9, 24)
        self.assertEqual(calls, list(range(20)))  # nine failures, a success, ten failures
        self.assertEqual(told[1:], [told[0], "attnscope: on_record failed 10 times in a row and is called no more, the log "
                                             "goes on: ConnectionError: no network"])
        self.assertIsInstance(monitor.error, ConnectionError)

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_a_full_disk(self):
        self.assertIn("No space left", self.off(lambda _: None, path="/dev/full"))

    def test_warnings_that_are_errors(self):
        model = Model()
        monitor = Monitor(model, self.path, every=1)
        monitor.log.file.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.run_steps(monitor, model, range(3))
        self.assertTrue(monitor.is_off)

    def test_an_exception_of_the_model(self):
        class Fails(Attention):
            fails = True

            def forward(self, x):
                if self.fails:
                    raise KeyError("out of memory, say")
                return super().forward(x)

        model = Model()
        model.blocks[1].attn = Fails()
        with Monitor(model, self.path, every=1, rows=0) as monitor:
            with self.assertRaises(KeyError):
                loss_of(model, batch())
            self.assertEqual(torch.overrides._get_current_function_mode_stack(), [])
            Fails.fails = False
            loss_of(model, batch())
            record = monitor.step(0)
            self.assertIsNone(monitor.error)
        self.assertEqual(len(record["values"]["entropy"]), 2)
        self.assertEqual(sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()), 0)

    def test_a_run_that_shows_nothing_says_so_once(self):
        for make, why in ((lambda: nn.Sequential(nn.Linear(4, 4)), "no attention was seen"),
                          (lambda: nn.Sequential(nn.Linear(4, 4)).eval(), "eval mode")):
            model = make()
            path = os.path.join(self.directory, why)
            with warnings.catch_warnings(record=True) as told, Monitor(model, path, every=1) as monitor:
                warnings.simplefilter("always")
                for step in range(9):
                    model(torch.randn(2, 4))
                    monitor.step(step)
            ours = [str(w.message) for w in told if "attnscope" in str(w.message)]
            self.assertEqual(len(ours), 1, ours)
            self.assertIn(why, ours[0])

    def test_attention_that_cannot_be_seen_is_looked_at_less_and_less_often(self):
        """Linear attention makes no matrix of queries by keys: the watch costs its share of every step that is looked at."""
        from attnscope.watch import Watch

        class Linear(Attention):
            def forward(self, x):
                q, k, v = self.qkv(x).split(x.shape[-1], dim=2)
                return self.out(q * (k * v).cumsum(1))

        begin = Watch.begin
        self.addCleanup(setattr, Watch, "begin", begin)
        for every, expected in ((10, [0, 1, 2, 10, 30, 70, 150, 310]), (1, [0, 1, 2, 3, 5, 9, 17, 33, 65, 129, 193, 257, 321])):
            for n_passes in (1, 2):  # in each step: accumulated batches
                looked, model = [], Model(attention=Linear)
                path = os.path.join(self.directory, f"{every}-{n_passes}.jsonl")
                with warnings.catch_warnings(record=True) as told, Monitor(model, path, every=every) as monitor:
                    warnings.simplefilter("always")
                    for step in range(340):
                        Watch.begin = lambda watch, step=step: (looked.append(step), begin(watch))
                        for _ in range(n_passes):
                            model(batch())
                        monitor.step(step)
                        if step + 1 not in (1, 2, *expected):
                            self.assertEqual(len(model._forward_pre_hooks), 0, step)
                    # It is found when it can be seen after all.
                    Watch.begin = begin
                    model.blocks[0].attn = Attention()
                    for step in range(340, 700):
                        model(batch())
                        monitor.step(step)
                self.assertEqual(looked, [step for step in expected for _ in range(n_passes)])
                ours = [str(w.message) for w in told if "attnscope" in str(w.message)]
                self.assertEqual(len(ours), 1, ours)
                self.assertIn(f"the monitor looks again at step {max(every, 3)}, and then less often", ours[0])
                found = [record["step"] for record in self.records(path)]
                self.assertEqual(found[0], {10: 630, 1: 385}[every])
                self.assertEqual(found, list(range(found[0], 700, every)))

    def test_a_telling_that_is_an_error_leaves_the_monitor_on(self):
        model = nn.Sequential(nn.Linear(4, 4))
        with warnings.catch_warnings(), Monitor(model, self.path, every=1) as monitor:
            warnings.simplefilter("error")
            for step in range(5):
                model(torch.randn(2, 4))
                monitor.step(step)
            self.assertIsNone(monitor.error)

    def test_calls_in_other_threads_are_left_alone(self):
        class Threads(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = Attention(), Attention()

            def forward(self, x):
                out = []
                thread = threading.Thread(target=lambda: out.append(self.two(x)))
                thread.start()
                y = self.one(x)
                thread.join()
                return y + out[0]

        with self.quiet(), Monitor(Threads(), self.path, rows=0) as monitor:
            monitor.entry.given(torch.randn(2, 6, 32))
            record = monitor.step(0)
        self.assertEqual(len(record["values"]["entropy"]), 1)


if __name__ == "__main__":
    unittest.main()
