"""With rows=0 the monitor's numbers are those of `attnscope report` on the same tokens."""

import math
import os
import unittest

from support import Case, needs, program, report
import torch
from torch import nn

from attnscope import Monitor
from attnscope.statistics import OF_LAYERS

IDS = [5, 9, 2, 17, 33, 9, 2, 40, 11, 8, 21, 9, 2, 17]
TARGET = [0, 7, 31, 12, 7, 31, 22, 18, 4]
TOLERANCE = 1e-4


def grown(model, factor=6.0):
    """Makes attention sharper than it is at the beginning, so that equal numbers mean something."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in name and "wte" not in name and "shared" not in name:
                parameter.mul_(factor)
            elif parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@unittest.skipIf(program() is None, "the attnscope command is not built; its path goes into ATTNSCOPE")
class EqualCase(Case):
    def compare(self, record, found, known=None):
        layers = {}
        for line in self.lines():
            for at, layer in enumerate(line.get("layers", [])):
                layers[layer["stack"], layer["layer"]] = at
        expected = {(layer["stack"], layer["layer"]): layer["heads"] for layer in found["layers"]}
        of_whole = {(layer["stack"], layer["layer"]): layer["stats"] for layer in found["layers"]}
        self.assertEqual(set(layers), set(expected))
        n = 0
        for place, heads in expected.items():
            for name, of_layers in record["values"].items():
                ours = of_layers[layers[place]]
                if name in OF_LAYERS:
                    a, b = ours[0], of_whole[place][name]
                    # None where no module is a block.
                    self.assertTrue(a is None or abs(a - b) <= TOLERANCE, f"{place} {name}: {a} here, {b} in the report")
                    continue
                self.assertEqual(len(ours), len(heads), place)
                for head in heads:
                    # A statistic that has no meaning is NaN or null in the log, and null in the report.
                    a, b = ours[head["head"]], head["stats"][name]
                    a, b = math.nan if a is None else float(a), math.nan if b is None else float(b)
                    same = math.isnan(a) and math.isnan(b) or abs(a - b) <= TOLERANCE * max(1.0, abs(b))
                    self.assertTrue(same, f"{place} head {head['head']} {name}: {a} here, {b} in the report")
                    n += not math.isnan(b)
        self.assertGreater(n, 30)
        return layers

    def check(self, model, inputs, *arguments, checkpoint=None, **options):
        """One training pass over one prompt, against the report on the saved checkpoint."""
        if checkpoint is None:
            checkpoint = os.path.join(self.directory, "model")
            model.save_pretrained(checkpoint)
        model.train()
        with self.quiet(), Monitor(model, self.path, rows=0, statistics="all", **options) as monitor:
            model(**inputs) if isinstance(inputs, dict) else model(inputs)
            record = monitor.step(0)
        self.assertIsNotNone(record)
        return self.compare(record, report(checkpoint, *arguments))


def ids(values=IDS):
    return torch.tensor([values])


def text(values=IDS):
    return "--tokens", ",".join(map(str, values))


@needs("transformers")
class Families(EqualCase):
    def family(self, kind, config, *arguments, inputs=None, impl=("eager", "sdpa"), factor=6.0):
        import transformers

        for implementation in impl:
            with self.subTest(attention=implementation):
                torch.manual_seed(1)
                if os.path.exists(self.path):
                    os.remove(self.path)
                made = getattr(transformers, f"{config.__class__.__name__.removesuffix('Config')}{kind}")
                config._attn_implementation = implementation
                model = grown(made(config), factor)
                self.check(model, inputs or {"input_ids": ids()}, *(arguments or text()))
                values = self.lines()[-1]["values"]
                self.assertTrue(all(v is not None for name in ("head_output_norm", "resid_spread") for v in values[name][0]))

    def test_gpt2(self):
        from transformers import GPT2Config

        self.family("LMHeadModel", GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=50, n_positions=32, resid_pdrop=0,
                                              embd_pdrop=0, attn_pdrop=0))

    def test_llama_with_grouped_keys(self):
        from transformers import LlamaConfig

        self.family("ForCausalLM", LlamaConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=50, max_position_embeddings=64))

    def test_bert(self):
        from transformers import BertConfig

        self.family("ForMaskedLM", BertConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=50,
            max_position_embeddings=64, hidden_dropout_prob=0, attention_probs_dropout_prob=0), factor=8.0)

    def test_bert_with_padding(self):
        from transformers import BertConfig

        mask = [1] * 10 + [0] * 4
        self.family("ForMaskedLM", BertConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=50,
            max_position_embeddings=64, hidden_dropout_prob=0, attention_probs_dropout_prob=0), *text(),
            "--attention-mask", ",".join(map(str, mask)),
            inputs={"input_ids": ids(), "attention_mask": torch.tensor([mask])}, factor=8.0)

    def test_llama_with_padding_on_the_left(self):
        from transformers import LlamaConfig

        mask = [0] * 4 + [1] * 10
        self.family("ForCausalLM", LlamaConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=50, max_position_embeddings=64), *text(), "--attention-mask", ",".join(map(str, mask)),
            inputs={"input_ids": ids(), "attention_mask": torch.tensor([mask])})

    def test_gemma2_with_a_softcap_and_windows(self):
        from transformers import Gemma2Config

        self.family("ForCausalLM", Gemma2Config(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, vocab_size=50, max_position_embeddings=64, sliding_window=5, attn_logit_softcapping=3.0,
            query_pre_attn_scalar=8), impl=("eager",))

    def test_mistral_with_a_window(self):
        from transformers import MistralConfig

        self.family("ForCausalLM", MistralConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, vocab_size=50, max_position_embeddings=64, sliding_window=5))

    def test_bloom_and_mpt_with_alibi(self):
        from transformers import BloomConfig, MptConfig

        self.family("ForCausalLM", BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=50, hidden_dropout=0,
                                               attention_dropout=0), impl=("eager",))
        self.family("ForCausalLM", MptConfig(d_model=32, n_layers=2, n_heads=4, vocab_size=50, max_seq_len=64),
                    impl=("eager",))

    def test_opt_which_scales_its_queries(self):
        from transformers import OPTConfig

        self.family("ForCausalLM", OPTConfig(hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
                                             vocab_size=50, max_position_embeddings=64, word_embed_proj_dim=32, dropout=0.0))

    def test_gpt_oss_with_learned_sinks(self):
        from transformers import GptOssConfig

        self.family("ForCausalLM", GptOssConfig(
            hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, vocab_size=50, num_local_experts=2, num_experts_per_tok=1, sliding_window=5,
            max_position_embeddings=64, layer_types=["sliding_attention", "full_attention"]), impl=("eager",), factor=2.0)

    def test_albert_whose_layers_are_one_module(self):
        from transformers import AlbertConfig

        self.family("ForMaskedLM", AlbertConfig(
            hidden_size=32, embedding_size=16, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
            vocab_size=50, max_position_embeddings=64, hidden_dropout_prob=0, attention_probs_dropout_prob=0), factor=3.0)


@needs("transformers")
class EncoderDecoder(EqualCase):
    def sides(self, model):
        model = grown(model, 4.0)
        inputs = {"input_ids": ids(), "decoder_input_ids": ids(TARGET)}
        found = self.check(model, inputs, *text(), "--target-tokens", ",".join(map(str, TARGET)))
        self.assertEqual({stack for stack, _ in found}, {"encoder", "decoder", "cross"})

    def test_t5(self):
        from transformers import T5Config, T5ForConditionalGeneration

        self.sides(T5ForConditionalGeneration(T5Config(
            d_model=32, d_kv=8, d_ff=48, num_layers=2, n_heads=4, vocab_size=50, dropout_rate=0.0,
            decoder_start_token_id=0)))

    def test_bart(self):
        from transformers import BartConfig, BartForConditionalGeneration

        for implementation in ("eager", "sdpa"):
            if os.path.exists(self.path):
                os.remove(self.path)
            config = BartConfig(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=50,
                                max_position_embeddings=64, dropout=0.0, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                                decoder_start_token_id=0, forced_eos_token_id=None)
            config._attn_implementation = implementation
            self.sides(BartForConditionalGeneration(config))


class Gpt2ByHand(nn.Module):
    """The arithmetic of GPT-2 written out, with its own names of tensors."""

    def __init__(self, n_layers=2, width=32, n_heads=4):
        super().__init__()
        self.n_heads = n_heads
        self.wte, self.wpe, self.ln_f = nn.Embedding(50, width), nn.Embedding(32, width), nn.LayerNorm(width)
        self.h = nn.ModuleList(nn.ModuleDict({
            "ln_1": nn.LayerNorm(width), "ln_2": nn.LayerNorm(width),
            "attn": ByHand(width, n_heads),
            "mlp": nn.ModuleDict({"c_fc": _Conv1D(width, 4 * width), "c_proj": _Conv1D(4 * width, width)})})
            for _ in range(n_layers))

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = x + block["attn"](block["ln_1"](x))
            inner = nn.functional.gelu(block["mlp"]["c_fc"](block["ln_2"](x)), approximate="tanh")
            x = x + block["mlp"]["c_proj"](inner)
        return self.ln_f(x) @ self.wte.weight.T


class _Conv1D(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(n_in, n_out) * 0.15), nn.Parameter(torch.randn(n_out) * 0.1)

    def forward(self, x):
        return x @ self.weight + self.bias


class ByHand(nn.Module):
    """`scores` says how the product of queries and keys is written."""

    scores = "matmul"

    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.c_attn, self.c_proj = _Conv1D(width, 3 * width), _Conv1D(width, width)

    def forward(self, x):
        b, t, c = x.shape
        n, d = self.n_heads, c // self.n_heads
        q, k, v = self.c_attn(x).chunk(3, dim=-1)
        hidden = torch.full((t, t), float("-inf")).triu(1)
        if self.scores == "einsum":
            q, k, v = (y.reshape(b, t, n, d) for y in (q, k, v))
            p = (torch.einsum("bqhd,bkhd->bhqk", q, k) * d ** -0.5 + hidden).softmax(dim=-1)
            z = torch.einsum("bhqk,bkhd->bqhd", p, v)
        elif self.scores == "bmm":
            q, k, v = (y.view(b, t, n, d).transpose(1, 2).reshape(b * n, t, d) for y in (q * d ** -0.5, k, v))
            p = torch.softmax(torch.bmm(q, k.transpose(1, 2)) + hidden, -1)
            z = torch.bmm(p, v).view(b, n, t, d).transpose(1, 2)
        elif self.scores == "transposed":  # [key, query], softmax over keys
            q, k, v = (y.view(b, t, n, d).transpose(1, 2) for y in (q, k, v))
            p = torch.softmax(k @ q.transpose(-1, -2) / d ** 0.5 + hidden.T, dim=-2)
            z = (p.transpose(-1, -2) @ v).transpose(1, 2)
        elif self.scores == "fourth root":  # a finite mask, and the largest score subtracted first
            q, k, v = (y.view(b, t, n, d).transpose(1, 2) for y in (q, k, v))
            s = (q * d ** -0.25) @ (k * d ** -0.25).transpose(-1, -2)
            s = s.masked_fill(hidden < 0, -1e9)
            z = (nn.functional.softmax(s - s.amax(-1, keepdim=True), dim=-1) @ v).transpose(1, 2)
        else:
            q, k, v = (y.view(b, t, n, d).transpose(1, 2) for y in (q, k, v))
            s = (q @ k.transpose(-2, -1) / d ** 0.5).masked_fill(hidden < 0, float("-inf"))
            z = (nn.Softmax(dim=-1)(s) @ v).transpose(1, 2)
        return self.c_proj(z.reshape(b, t, c))


@needs("transformers", "safetensors")
class WrittenByHand(EqualCase):
    def test_every_way_of_writing_a_softmax(self):
        from safetensors.torch import save_file
        from transformers import GPT2Config

        checkpoint = os.path.join(self.directory, "model")
        model = Gpt2ByHand()
        GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=50, n_positions=32, architectures=["GPT2LMHeadModel"]
                   ).save_pretrained(checkpoint)
        save_file(dict(model.state_dict()), os.path.join(checkpoint, "model.safetensors"))
        for scores in ("matmul", "einsum", "bmm", "transposed", "fourth root"):
            with self.subTest(scores=scores):
                if os.path.exists(self.path):
                    os.remove(self.path)
                ByHand.scores = scores
                self.addCleanup(setattr, ByHand, "scores", "matmul")
                self.check(model, ids(), *text(), checkpoint=checkpoint)


class WithTorchEncoder(nn.Module):
    """nn.TransformerEncoder between an embedding and a head."""

    def __init__(self, norm_first):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(50, 32), nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 50)

    def forward(self, ids, mask=None, padding=None):
        x = self.embedding(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.encoder(x, mask=mask, is_causal=mask is not None, src_key_padding_mask=padding))


@needs("safetensors")
class TorchEncoder(EqualCase):
    def saved(self, model, name):
        from safetensors.torch import save_file

        path = os.path.join(self.directory, f"{name}.safetensors")
        save_file(dict(model.state_dict()), path)
        return path

    def test_post_norm_and_pre_norm_causal_and_not(self):
        for norm_first in (False, True):
            for causal in (False, True):
                with self.subTest(norm_first=norm_first, causal=causal):
                    if os.path.exists(self.path):
                        os.remove(self.path)
                    model = grown(WithTorchEncoder(norm_first), 3.0)
                    mask = nn.Transformer.generate_square_subsequent_mask(len(IDS)) if causal else None
                    settings = ["--set", f"mask={'causal' if causal else 'bidirectional'}", "--set", "n_heads=4",
                                "--set", f"norm_first={'true' if norm_first else 'false'}", "--set",
                                "activation=relu", "--set", "embed_scale=1"]
                    self.check(model, {"ids": ids(), "mask": mask}, *text(), *settings,
                               checkpoint=self.saved(model, f"{norm_first}-{causal}"))

    def test_padding(self):
        model = grown(WithTorchEncoder(False), 3.0)
        real = [1] * 9 + [0] * 5
        self.check(model, {"ids": ids(), "padding": torch.tensor([real]) == 0}, *text(), "--attention-mask",
                   ",".join(map(str, real)), "--set", "mask=bidirectional", "--set", "n_heads=4", "--set",
                   "norm_first=false", "--set", "activation=relu", "--set", "embed_scale=1",
                   checkpoint=self.saved(model, "padded"))


if __name__ == "__main__":
    unittest.main()
