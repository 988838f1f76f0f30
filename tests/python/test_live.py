"""The PyTorch end of a live subject: runs, what-ifs, probes, tokenizers, loading and faults, without the program."""

import json
import os
import socket
import struct
import sys
import tempfile
import textwrap
import threading
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from torch import nn
from torch.nn import functional as F

from attnscope._live.channel import Channel
from attnscope._live.faults import Unusable, told
from attnscope._live.intent import intended_mask
from attnscope._live.loading import Target
from attnscope._live.pytorch import Subject
from attnscope._live.serving import serve
from attnscope._live.tokenizing import Tokenizing

N_HEADS, D_MODEL = 4, 32


class Attention(nn.Module):
    """Causal attention, written in one of several ways."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.qkv, self.out = nn.Linear(D_MODEL, 3 * D_MODEL), nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x):
        n_rows, n, _ = x.shape
        q, k, v = (part.view(n_rows, n, N_HEADS, -1) for part in self.qkv(x).split(D_MODEL, -1))
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        if self.way == "einsum":
            scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
            y = torch.einsum("bhqk,bkhd->bqhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)
            return self.out(y.reshape(n_rows, n, D_MODEL))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if self.way == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
            y = F.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(n_rows, n, D_MODEL))


class Block(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(D_MODEL), Attention(way)

    def forward(self, x):
        return x + self.attn(self.norm(x))


class Model(nn.Module):
    def __init__(self, way="matmul"):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.positions = nn.Embedding(64, D_MODEL), nn.Embedding(32, D_MODEL)
        self.blocks = nn.ModuleList([Block(way) for _ in range(2)])
        self.head = nn.Linear(D_MODEL, 64, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Asked:
    """A request, as the server hands it to the adapter."""

    def __init__(self, **header):
        self.header, self.parts = header, []

    def get(self, key, default=None):
        value = self.header.get(key)
        return default if value is None else value

    def tell(self, *part):
        self.parts.append(part)

    def stop_if_cancelled(self):
        pass


def read(path):
    """{name: tensor} and the metadata of a safetensors file, which is removed."""
    with open(path, "rb") as file:
        data = file.read()
    os.remove(path)
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__")
    kinds = {"F32": torch.float32, "I64": torch.int64}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = bytearray(data[8 + n + begin:8 + n + end])
        tensors[name] = torch.frombuffer(raw, dtype=kinds[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


IDS = [5, 9, 2, 7, 5, 9, 11, 3]
PATTERN, SCORES = "blocks.1.attn.pattern", "blocks.1.attn.scores"


class Runs(unittest.TestCase):
    def run_it(self, subject, **asked):
        return read(subject.run(Asked(ids=IDS, **asked))[1])[0]

    def change(self, subject, key, value, places=None):
        return self.run_it(subject, changes=[{"key": key, "value": value, "places": places}])

    def test_queries_keys_values_and_outputs_are_those_that_made_the_pattern(self):
        for way in ("matmul", "einsum", "sdpa"):
            found = self.run_it(Subject(Model(way)))
            q, k, v, z = (found[f"blocks.1.attn.{name}"] for name in ("rot_q", "rot_k", "v", "z"))
            seen = torch.isfinite(found[SCORES])
            scores = q @ k.mT / 8 ** 0.5
            self.assertLess((scores - found[SCORES])[seen].abs().max(), 1e-5, way)
            self.assertLess((found[PATTERN] @ v - z).abs().max(), 1e-5, way)
            self.assertEqual(found["logits"].shape, (len(IDS), 64))
            self.assertTrue(torch.equal(found["blocks.0.resid_post"], found["blocks.1.resid_pre"]))

    def test_a_forward_call_gives_the_logits_that_it_gives_without_a_recording(self):
        model = Model("einsum")
        with torch.no_grad():
            expected = model(torch.tensor([IDS]))[0]
        self.assertTrue(torch.equal(self.run_it(Subject(model))["logits"], expected))

    def test_memory_that_a_run_takes_over_from_the_last_one_holds_nothing_of_it(self):
        model = Model()
        inner = model.forward

        def forward(ids):  # a person's code may run in this mode, and not in every run
            with torch.inference_mode(len(forward.runs) % 2 == 0):
                forward.runs.append(1)
                return inner(ids)

        forward.runs = []
        model.forward = forward
        subject = Subject(model)
        texts = [IDS, IDS[:5], IDS[3:], IDS[::-1]]
        for ids in texts:
            tensors, metadata = read(subject.run(Asked(ids=ids))[1])
            alone = read(Subject(Model()).run(Asked(ids=ids))[1])[0]
            self.assertEqual(metadata.get("attnscope.skipped"), None)
            self.assertEqual(tensors.keys(), alone.keys())
            for name, tensor in tensors.items():
                self.assertTrue(torch.equal(tensor, alone[name]), name)

    def test_logits_alone_are_those_of_the_whole_trace(self):
        dropped = [{"key": "drop", "value": "zero", "places": [{"layer": "blocks.0.attn", "head": 1}]}]
        for way in ("matmul", "einsum", "sdpa"):
            subject = Subject(Model(way))
            whole = self.run_it(subject)
            for changes in ([], dropped):
                alone = self.run_it(subject, hooks=["logits"], changes=changes)
                self.assertEqual(list(alone), ["logits"])
                self.assertTrue(torch.equal(alone["logits"], self.run_it(subject, changes=changes)["logits"]), way)
            self.assertGreater((alone["logits"] - whole["logits"]).abs().max(), 1e-3)

    def test_changes_of_scores_and_masks_are_what_their_formulas_say(self):
        for way in ("matmul", "einsum", "sdpa"):
            subject = Subject(Model(way))
            plain = self.run_it(subject)
            seen = torch.isfinite(plain[SCORES])
            last, one = [{"layer": "blocks.1.attn"}], [{"layer": "blocks.1.attn", "head": 2}]
            found = self.change(subject, "scale", "none", last)
            self.assertLess((found[SCORES] - plain[SCORES] * 8 ** 0.5)[seen].abs().max(), 1e-4, way)
            self.assertLess((found["blocks.0.attn.pattern"] - plain["blocks.0.attn.pattern"]).abs().max(), 1e-6, way)
            found = self.change(subject, "temperature", "2", one)
            self.assertLess((found[SCORES] * 2 - plain[SCORES])[2][seen[2]].abs().max(), 1e-5, way)
            self.assertLess((found[SCORES] - plain[SCORES])[1][seen[1]].abs().max(), 1e-6, way)
            found = self.change(subject, "softmax_axis", "queries", last)
            self.assertLess((found[PATTERN].sum(1) - 1).abs().max(), 1e-5, way)
            open_heads = [{"key": key, "value": value, "places": last} for key, value in (("softmax_axis", "heads"), ("mask", "none"))]
            found = self.run_it(subject, changes=open_heads)
            self.assertLess((found[PATTERN].sum(0) - 1).abs().max(), 1e-5, way)
            with self.assertRaisesRegex(Unusable, "softmax_axis=heads: its mask is -inf in every head"):
                self.change(subject, "softmax_axis", "heads", last)
            found = self.change(subject, "mask", "none", last)
            self.assertGreater(found[PATTERN].min(), 0, way)
            self.assertLess((found[PATTERN] - (plain["blocks.1.attn.rot_q"] @ plain["blocks.1.attn.rot_k"].mT / 8 ** 0.5).softmax(-1))
                            .abs().max(), 1e-5, way)
            found = self.change(subject, "mask", "window:3", last)
            self.assertEqual((found[PATTERN][0] > 0).sum(-1).tolist(), [1, 2, 3, 3, 3, 3, 3, 3], way)

    def test_a_dropped_head_keeps_its_pattern_and_leaves_the_output(self):
        for way in ("matmul", "einsum", "sdpa"):
            model = Model(way)
            subject = Subject(model)
            plain = self.run_it(subject)
            found = self.change(subject, "drop", "zero", [{"layer": "blocks.1.attn", "head": 2}])
            self.assertLess((found[PATTERN] - plain[PATTERN]).abs().max(), 1e-6, way)
            z = plain["blocks.1.attn.z"].clone()
            z[2] = 0
            with torch.no_grad():
                out = model.blocks[1].attn.out(z.transpose(0, 1).reshape(len(IDS), D_MODEL))
                expected = model.head(plain["blocks.1.resid_pre"] + out)
            self.assertLess((found["logits"] - expected).abs().max(), 1e-4, way)

    def test_a_change_that_cannot_be_made_is_refused_and_the_next_run_is_plain(self):
        subject = Subject(Model())
        plain = self.run_it(subject)
        with self.assertRaisesRegex(Unusable, "qk_norm=on: a live model cannot be run so"):
            self.change(subject, "qk_norm", "on")
        with self.assertRaisesRegex(Unusable, "no attention was changed"):
            self.change(subject, "temperature", "2", [{"layer": "blocks.7.attn"}])
        self.assertTrue(torch.equal(self.run_it(subject)["logits"], plain["logits"]))

    def test_modes_and_parameters_are_left_as_they_were(self):
        model = Model()
        model.train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        self.run_it(Subject(model))
        self.assertTrue(all(module.training for module in model.modules()))
        self.assertTrue(all(torch.equal(value, before[name]) for name, value in model.state_dict().items()))

    def test_a_probe_is_run_with_the_inputs_of_the_model(self):
        tensors, metadata = read(Subject(Model()).run(Asked(ids=IDS, probes=True, mask="causal"))[1])
        self.assertEqual(metadata["attnscope.probe"], "1")
        self.assertLess(tensors["probe.future.moved"].max(), 1e-5)

    def test_a_probe_changes_the_target_of_two_texts_and_not_the_source(self):
        class Translator(Model):
            """Adds what is causal of the target to a mean over the whole source, which every position may know."""

            def forward(self, src, tgt):
                return super().forward(tgt) + self.head(self.tokens(src).mean(1, keepdim=True))

        tensors, _ = read(Subject(Translator()).run(Asked(ids=IDS, probes=True, mask="causal"))[1])
        self.assertLess(tensors["probe.future.moved"].max(), 1e-5)
        self.assertGreater(tensors["probe.future.influence"].max(), 1e-3)
        self.assertLess(tensors["probe.batch.moved"].max(), 1e-4)
        self.assertLess(tensors["probe.length.moved"].max(), 1e-3)

    def test_a_probe_of_two_texts_takes_both_as_they_are_asked(self):
        class Pair(Model):
            """A translator whose two texts must be equally long; its source is added up."""

            def forward(self, src, tgt):
                assert src.shape == tgt.shape, (src.shape, tgt.shape)
                return super().forward(tgt) + self.head(self.tokens(src).mean(1, keepdim=True))

        for given in (None, (torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5, 6]]))):
            subject = Subject(Pair(), inputs=given)
            tensors, _ = read(subject.run(Asked(ids=IDS, target=IDS[::-1], probes=True, mask="causal"))[1])
            self.assertEqual(tensors["tokens"].tolist(), IDS[::-1])
            self.assertLess(tensors["probe.future.moved"].max(), 1e-5)

    def test_a_model_that_leaves_out_the_last_token_itself_is_probed_on_the_others(self):
        class Shifts(nn.Module):
            """Takes a text and its labels in one, as training code does."""

            def __init__(self):
                super().__init__()
                self.inner = Model()

            def forward(self, ids):
                return self.inner(ids[:, :-1])

        tensors, metadata = read(Subject(Shifts()).run(Asked(ids=IDS, probes=True, mask="causal"))[1])
        self.assertEqual(tensors["tokens"].tolist(), IDS[:-1])
        self.assertEqual(json.loads(metadata["attnscope.length.cases"])[0], f"{len(IDS) - 2} of {len(IDS) - 1} tokens")
        self.assertLess(tensors["probe.future.moved"].max(), 1e-5)
        self.assertGreater(tensors["probe.future.influence"].max(), 1e-3)


class Choices(unittest.TestCase):
    def test_a_first_look_needs_neither_a_tokenizer_nor_a_text(self):
        tensors, _ = read(Subject(Model()).run(Asked())[1])
        self.assertGreater(len(tensors["tokens"]), 3)

    def test_inputs_that_came_with_the_model_run_and_their_ids_are_replaced(self):
        class Two(Model):
            def forward(self, ids, scale):
                return super().forward(ids) * scale

        given = (torch.tensor([IDS]), torch.tensor(2.0))
        subject = Subject(Two(), None, given)
        self.assertEqual(read(subject.run(Asked())[1])[0]["tokens"].tolist(), IDS)
        self.assertEqual(read(subject.run(Asked(ids=[1, 2, 3, 4]))[1])[0]["tokens"].tolist(), [1, 2, 3, 4])
        with self.assertRaisesRegex(Unusable, "Two.forward needs ids, scale: return"):
            Subject(Two()).run(Asked(ids=IDS))

    def test_a_model_of_numbers_runs_what_came_with_it_and_says_so(self):
        class Series(nn.Module):
            def __init__(self):
                super().__init__()
                self.inside, self.block = nn.Linear(3, D_MODEL), Block("matmul")

            def forward(self, x):
                return self.block(self.inside(x))

        subject = Subject(Series(), None, torch.randn(1, 9, 3))
        self.assertIn("takes no token ids", subject.about()["lacks"]["text"])
        tensors, _ = read(subject.run(Asked())[1])
        self.assertEqual(next(t for name, t in tensors.items() if name.endswith("pattern")).shape, (4, 9, 9))
        self.assertIsNone(subject.about()["lacks"]["probes"])
        tensors, metadata = read(subject.run(Asked(probes=True, mask="causal"))[1])
        self.assertLess(tensors["probe.future.moved"].max(), 1e-5)
        self.assertGreater(tensors["probe.future.influence"].max(), 0)

    def test_a_causal_model_is_known_by_its_mask_or_its_name(self):
        class Masked(Model):
            def __init__(self):
                super().__init__()
                self.register_buffer("tril", torch.tril(torch.ones(16, 16)))

        class MiniGPT(Model):
            pass

        self.assertEqual(intended_mask(Masked()), ("causal", "causal by the mask that it holds (tril)"))
        self.assertEqual(intended_mask(MiniGPT())[0], "causal")
        self.assertEqual(intended_mask(Model()), (None, None))
        self.assertEqual(intended_mask(MiniGPT(), ["mask"]), (None, None))
        self.assertEqual(intended_mask(Masked(), ["mask"])[0], "causal")
        self.assertEqual(intended_mask(nn.Transformer(16, 2, 1, 1)), (None, None))
        two = Masked()
        two.visual = Model()  # a tower of pictures beside that of texts, whose mask is not its own
        self.assertEqual(intended_mask(two), (None, None))

    def test_tokenizers_of_every_kind_give_the_same_ids(self):
        letters = {letter: idx for idx, letter in enumerate("abc")}
        for tokenizer in (letters, list("abc"), lambda text: [letters[c] for c in text],
                          (lambda text: torch.tensor([[letters[c] for c in text]]), lambda ids: "".join("abc"[i] for i in ids))):
            self.assertEqual(Tokenizing(tokenizer).ids("cab"), [2, 0, 1])
        self.assertEqual(Tokenizing(letters).labels([2, 0, 7]), ["c", "a", "<7>"])
        self.assertEqual(Tokenizing({"the": 0, "king": 1, "<unk>": 2}).ids("the old king"), [0, 2, 1])
        with self.assertRaisesRegex(Unusable, "'d' is not in the vocabulary of 3 tokens"):
            Tokenizing(letters).ids("d")
        with self.assertRaisesRegex(Unusable, "the tokenizer is a int, expected anything with encode"):
            Tokenizing(3)


class Loading(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "written_by_hand.py")

    def tearDown(self):
        self.directory.cleanup()
        sys.modules.pop("written_by_hand", None)

    def target(self, name, text):
        with open(self.path, "w") as file:
            file.write(textwrap.dedent(text))
        return Target(f"{self.path}:{name}")

    def test_functions_objects_and_arguments_are_named(self):
        text = """
            def load(n, word="a"):
                return n, word
            class At:
                here = staticmethod(lambda: 7)
        """
        self.assertEqual(self.target("load(3, word='b')", text).load(), (3, "b"))
        self.assertEqual(self.target("At.here", text).load(), 7)
        with self.assertRaisesRegex(Unusable, "written_by_hand.py has no lode; it has load, At"):
            self.target("lode", text).load()
        with self.assertRaisesRegex(Unusable, "plain literals"):
            self.target("load(__import__('os'))", text)

    def test_what_is_raised_is_told_with_the_persons_own_line(self):
        text = """
            import json
            def load():
                return json.loads("{")
        """
        try:
            self.target("load", text).load()
        except ValueError as error:
            found = told(error)
        self.assertTrue(found["message"].startswith("JSONDecodeError: "))
        self.assertEqual((found["frame"]["line"], found["frame"]["function"]), (4, "load"))
        self.assertEqual(found["frame"]["text"], 'return json.loads("{")')

    def test_a_file_of_a_package_may_import_its_neighbours(self):
        package = os.path.join(self.directory.name, "a_package")
        os.mkdir(package)
        for name, text in (("__init__", ""), ("inner", "VALUE = 5"), ("outer", "from .inner import VALUE")):
            with open(os.path.join(package, f"{name}.py"), "w") as file:
                file.write(text)
        self.assertEqual(Target(os.path.join(package, "outer.py") + ":VALUE").load(), 5)


class Server(unittest.TestCase):
    def test_requests_are_answered_and_faults_do_not_end_the_server(self):
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        subject = Subject(Model(), {letter: idx for idx, letter in enumerate("abcdefgh")}, name="m")
        server = threading.Thread(target=serve, args=(Channel(theirs), lambda: subject), daemon=True)
        server.start()
        channel = Channel(ours)

        def ask(**request):
            channel.send(request)
            while (answer := channel.receive())[0]["kind"] == "part":
                pass
            return answer

        ready, _ = ask(kind="hello", id=1)
        self.assertEqual((ready["kind"], ready["model"], ready["name"]), ("ready", "Model", "m"))
        self.assertEqual(ask(kind="tokens", id=2, text="cab")[0]["ids"], [2, 0, 1])
        failed, _ = ask(kind="run", id=3, ids=[1000])
        self.assertEqual((failed["kind"], failed["id"]), ("failed", 3))
        self.assertIn("self.tokens(ids)", failed["frame"]["text"])
        done, body = ask(kind="run", id=4, text="cabbage")
        self.assertEqual((done["kind"], done["text"]), ("done", "cabbage"))
        self.assertIn(b"blocks.1.attn.pattern", body)
        self.assertIn("is no request of version 1", ask(kind="dance", id=5)[0]["message"])
        channel.send({"kind": "bye"})
        server.join(10)
        self.assertFalse(server.is_alive())


if __name__ == "__main__":
    unittest.main()
