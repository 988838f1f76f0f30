"""Training is the same to the bit with and without the monitor, whatever the loop does."""

import copy
import gc
import io
import os
import pickle
import random
import unittest
import warnings

from support import Attention, Block, Case, Model, batch, loss_of, needs
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from attnscope import Monitor


class Sdpa(Attention):
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.n_heads, -1).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Mha(nn.Module):
    def __init__(self, width=32, n_heads=4, need_weights=False):
        super().__init__()
        self.mha, self.need_weights = nn.MultiheadAttention(width, n_heads, dropout=0.1, batch_first=True), need_weights

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.mha(x, x, x, attn_mask=mask, need_weights=self.need_weights, is_causal=not self.need_weights)[0]


class Weighted(Mha):
    def __init__(self, width, n_heads):
        super().__init__(width, n_heads, need_weights=True)


class Counting(Attention):
    """Keeps a running mean, a counter and a list, as mixtures of experts do."""

    def __init__(self, *args):
        super().__init__(*args)
        self.norm, self.n_calls, self.losses = nn.BatchNorm1d(32), 0, []
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.n_calls += 1
        self.losses.append(float(x.detach().square().mean()))
        self.total += x.detach().sum()
        return super().forward(self.norm(x.transpose(1, 2)).transpose(1, 2))


def train(make, monitor=None, n_steps=6, change=None, autocast=False, accumulate=1, evaluate=False):
    """Everything that a training leaves: losses, gradients, parameters, buffers, random states."""
    torch.manual_seed(3)
    random.seed(3)
    model = make()
    run = model if change is None else change(model)
    watching = None if monitor is None else monitor(run)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    left = []
    for step in range(n_steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = loss_of(run, batch() + 0 * part)
            (loss / accumulate).backward()
        left += [loss.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        optimizer.step()
        if watching is not None:
            watching.step(step, loss=loss)
        if evaluate:
            model.eval()
            with torch.no_grad():
                left.append(loss_of(run, batch()))
            model.train()
    left += [p.detach().clone() for p in model.parameters()] + [b.clone() for b in model.buffers()]
    left += [torch.get_rng_state(), torch.tensor(hash(random.getstate()) % 1000003)]
    return left, model, watching


class Compared(Case):
    def check(self, make, n_expected=3, **options):
        """Runs twice; gives the records."""
        every = 2
        plain, model, _ = train(make, **options)
        with self.quiet():
            watched, again, monitor = train(make, lambda m: Monitor(m, self.path, every=every, rows=8), **options)
        self.assertIsNone(monitor.error)
        monitor.close()
        self.assertEqual(len(plain), len(watched))
        for i, (a, b) in enumerate(zip(plain, watched)):
            self.assertTrue(torch.equal(a, b), f"value {i} of {len(plain)} differs")
        for a, b in zip(model.modules(), again.modules()):
            self.assertEqual(len(b._forward_hooks) + len(b._forward_pre_hooks), 0)
            if isinstance(a, Counting):
                self.assertEqual((a.n_calls, a.losses), (b.n_calls, b.losses))
        records = self.records()
        self.assertEqual(len(records), n_expected)
        return records


class Undisturbed(Compared):
    def test_softmax_by_hand(self):
        records = self.check(Model)
        self.assertEqual([r["step"] for r in records], [0, 2, 4])
        self.assertEqual(len(records[0]["values"]["entropy"]), 2)

    def test_scaled_dot_product_attention(self):
        self.check(lambda: Model(attention=Sdpa))

    def test_multihead_attention(self):
        self.check(lambda: Model(attention=Mha))
        os.remove(self.path)
        self.check(lambda: Model(attention=Weighted))

    def test_autocast(self):
        for attention in (Attention, Sdpa):
            if os.path.exists(self.path):
                os.remove(self.path)
            records = self.check(lambda: Model(attention=attention), autocast=True)
            self.assertLess(records[0]["values"]["entropy_relative"][0][0], 1.001)

    def test_buffers_counters_and_lists(self):
        self.check(lambda: Model(attention=Counting))

    def test_gradient_accumulation_looks_at_the_first_part(self):
        seen = []

        def make():
            model = Model()
            model.blocks[0].attn.register_forward_pre_hook(lambda *_: seen.append(None))
            return model

        plain, *_ = train(make, accumulate=3)
        watched, _, monitor = train(make, lambda m: Monitor(m, self.path, every=2, rows=8), accumulate=3)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain, watched)))
        self.assertEqual([len(r["values"]["entropy"]) for r in self.records()], [2, 2, 2])

    def test_evaluation_passes_are_passed_over(self):
        records = self.check(Model, evaluate=True)
        for record in records:
            self.assertEqual(len(record["values"]["entropy"]), 2)

    def test_activation_checkpointing_sees_each_layer_once(self):
        class Saved(nn.Module):
            def __init__(self, block, reentrant):
                super().__init__()
                self.block, self.reentrant = block, reentrant

            def forward(self, x):
                return checkpoint(self.block, x, use_reentrant=self.reentrant)

        for reentrant in (False, True):
            if os.path.exists(self.path):
                os.remove(self.path)

            def make(reentrant=reentrant):
                model = Model()
                model.blocks = nn.ModuleList(Saved(b, reentrant) for b in model.blocks)
                return model

            for record in self.check(make):
                self.assertEqual(len(record["values"]["entropy"]), 2)


@unittest.skipIf(os.environ.get("ATTNSCOPE_NO_COMPILE"), "asked for without the compiler")
class Compiled(Compared):
    def check(self, make, change, **options):
        def afresh(model):
            torch._dynamo.reset()
            return change(model)

        self.addCleanup(torch._dynamo.reset)
        return super().check(make, change=afresh, **options)

    def n_graphs(self):
        from torch._dynamo.utils import counters

        return counters["stats"]["unique_graphs"]

    def test_compiled_before(self):
        for backend in ("aot_eager", "inductor"):
            for attention in (Attention, Sdpa) if backend == "aot_eager" else (Attention, Sdpa, Counting):
                with self.subTest(backend=backend, attention=attention.__name__):
                    if os.path.exists(self.path):
                        os.remove(self.path)
                    self.check(lambda: Model(attention=attention), change=lambda m: torch.compile(m, backend=backend))

    def test_compiled_under_autocast(self):
        """Casts of weights that the pass beside makes have no gradient, and must not be found by the real one."""
        for attention in (Attention, Sdpa):
            if os.path.exists(self.path):
                os.remove(self.path)
            self.check(lambda: Model(attention=attention), change=lambda m: torch.compile(m, backend="aot_eager"),
                       autocast=True)

    def test_an_uncompiled_model_beside_compiled_code_under_autocast(self):
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        self.check(Model, change=lambda m: m, autocast=True)

    def test_compiled_whole(self):
        self.check(Model, change=lambda m: torch.compile(m, backend="aot_eager", fullgraph=True))

    def test_compiled_in_place(self):
        def change(model):
            model.compile(backend="aot_eager")
            return model

        self.check(Model, change=change)

    def test_compiled_blocks(self):
        def change(model):
            for block in model.blocks:
                block.compile(backend="aot_eager")
            return model

        self.check(Model, change=change)

    def test_compiled_after(self):
        for options in ({}, {"fullgraph": True}):
            torch._dynamo.reset()
            if os.path.exists(self.path):
                os.remove(self.path)
            plain, *_ = train(Model, change=lambda m: torch.compile(m, backend="aot_eager", **options))
            torch._dynamo.reset()
            torch.manual_seed(3)
            monitors = []

            def change(model, options=options):
                monitors.append(Monitor(model, self.path, every=2, rows=8))
                return torch.compile(model, backend="aot_eager", **options)

            with self.quiet():
                watched, *_ = train(Model, lambda _: monitors[0], change=change)
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain, watched)))
            self.assertIsNone(monitors[0].error)
            self.assertGreaterEqual(len(self.records()), 2)

    def test_nothing_is_compiled_again(self):
        torch._dynamo.reset()
        torch.manual_seed(3)
        model = torch.compile(Model(), backend="aot_eager")
        loss_of(model, batch()).backward()
        before = self.n_graphs()
        with Monitor(model, self.path, every=1, rows=8) as monitor:
            for step in range(6):
                loss_of(model, batch()).backward()
                monitor.step(step)
        self.assertEqual(len(self.records()), 6)
        self.assertEqual(self.n_graphs(), before)




class Copies(Case):
    def test_a_copy_and_a_file_of_the_model_know_nothing_of_the_monitor(self):
        model = Model()
        with Monitor(model, self.path, every=1, rows=8) as monitor:  # armed: this is when the hook is there
            twin = copy.deepcopy(model)
            held = io.BytesIO()
            torch.save(model, held)
            loaded = torch.load(io.BytesIO(held.getvalue()), weights_only=False)
            self.assertNotIn(b"attnscope", pickle.dumps(model))
            for other in (twin, loaded):
                loss_of(other, batch()).backward()
            self.assertIsNone(monitor.step(0))
            loss_of(model, batch()).backward()
            self.assertIsNotNone(monitor.step(1))
            self.assertEqual(len(monitor.step(1)["values"]["entropy"]) if monitor.step(1) else 2, 2)
        self.assertIsNone(monitor.error)

    def test_nothing_is_kept_alive(self):
        model = Model()
        with Monitor(model, self.path, every=1, rows=8) as monitor:
            for step in range(3):
                loss_of(model, batch()).backward()
                monitor.step(step)
            gc.collect()
            n_before = sum(isinstance(o, torch.Tensor) for o in gc.get_objects())
            for step in range(3, 6):
                loss_of(model, batch()).backward()
                monitor.step(step)
            gc.collect()
            self.assertLessEqual(sum(isinstance(o, torch.Tensor) for o in gc.get_objects()), n_before + 2)


if __name__ == "__main__":
    unittest.main()
