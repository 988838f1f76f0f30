"""The callbacks for transformers' Trainer and for Lightning."""

import unittest
import warnings

from support import Case, Model, batch, loss_of, needs
import torch

import attnscope


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.randint(0, 50, (12,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


class Writer:
    """Takes scalars as a SummaryWriter does."""

    def __init__(self):
        self.steps = []

    def add_scalar(self, tag, value, step, walltime=None):
        if tag == "attnscope/loss":
            self.steps.append(step)


@needs("transformers", "accelerate")
class Transformers(Case):
    options = {}

    def test_options_are_those_of_the_monitor(self):
        writer = Writer()
        self.options = {"log_to": writer}
        self.train(True)
        self.assertEqual(writer.steps, [1, 4, 8])

    def train(self, with_monitor, **options):
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

        torch.manual_seed(1)
        model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=50, n_positions=32))
        args = TrainingArguments(self.directory, max_steps=9, per_device_train_batch_size=4, report_to=[], use_cpu=True,
                                 disable_tqdm=True, save_strategy="no", logging_strategy="no", seed=3, **options)
        callback = attnscope.integrations.transformers.MonitorCallback(self.path, every=4, rows=8, **self.options)
        trainer = Trainer(model, args, train_dataset=Sentences(), callbacks=[callback] if with_monitor else [])
        trainer.train()
        return [p.detach().clone() for p in model.parameters()]

    def test_trainer(self):
        for options in ({}, {"gradient_accumulation_steps": 2}):
            with self.subTest(**options):
                plain = self.train(False, **options)
                with self.quiet():
                    watched = self.train(True, **options)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain, watched)))
                records = self.records()[-3:]
                self.assertEqual([r["step"] for r in records], [1, 4, 8])
                for record in records:
                    self.assertAlmostEqual(record["loss"], 3.9, delta=0.6)
                    self.assertEqual(len(record["values"]["entropy"]), 2)


@needs("lightning")
class Lightning(Case):
    options = {}

    def test_options_are_those_of_the_monitor(self):
        writer = Writer()
        self.options = {"log_to": writer}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.train(True, call_parts=False)
        self.assertEqual(writer.steps, [1, 4, 8])

    def train(self, with_monitor, call_parts, **options):
        import lightning

        from attnscope.integrations.lightning import MonitorCallback

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = Model()

            def training_step(self, data, _):
                if not call_parts:
                    return loss_of(self.model, data["input_ids"])
                ids, model = data["input_ids"], self.model
                x = model.embed(ids) + model.place(torch.arange(ids.shape[1]))
                for block in model.blocks:
                    x = block(x)
                logits = model.head(model.norm(x))
                return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

            def validation_step(self, data, _):
                loss_of(self.model, data["input_ids"])

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), lr=1e-3)

        lightning.seed_everything(1, verbose=False)
        module = Module()
        callbacks = [MonitorCallback(self.path, every=4, rows=8, **self.options)] if with_monitor else []
        trainer = lightning.Trainer(max_steps=9, accelerator="cpu", logger=False, enable_checkpointing=False,
                                    enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
                                    val_check_interval=2, default_root_dir=self.directory, **options)
        loader = torch.utils.data.DataLoader(Sentences(), batch_size=4)
        trainer.fit(module, loader, loader)
        return [p.detach().clone() for p in module.parameters()]

    def test_fit(self):
        n = 0
        for call_parts in (False, True):
            for options in ({}, {"accumulate_grad_batches": 2}):
                with self.subTest(call_parts=call_parts, **options), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    plain = self.train(False, call_parts, **options)
                    watched = self.train(True, call_parts, **options)
                    self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain, watched)))
                    records = self.records()[n:]
                    n += len(records)
                    self.assertEqual([r["step"] for r in records], [1, 4, 8])
                    for record in records:
                        self.assertAlmostEqual(record["loss"], 4.0, delta=0.6)
                        self.assertEqual(len(record["values"]["entropy"]), 2)


if __name__ == "__main__":
    unittest.main()
