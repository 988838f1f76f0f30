"""attnscope.describe: models as people write them, described from one forward pass and run natively."""

import os
import unittest

from places import needs_program
from support import Case
import torch
from torch import nn
import torch.nn.functional as F

import attnscope
from attnscope import _program
from attnscope._describe.judging import _loaded
from pairs import sines
from styles import D, H, V, Einsum, Encoder, Fused, HeadModules, Llama, OverHeads, Parallel, rotated_as_complex, rotated_by_halves, rotated_in_bfloat16

N = 12


def shaken(model):
    """Parameters that are not their first values: biases that are not 0, gains that are not 1."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            size = 0.3 if p.dim() > 1 else 0.2
            p.copy_(torch.randn(p.shape, generator=draw) * size + (1 if p.dim() == 1 and p.mean() > 0.5 else 0))
    return model.eval()


class Describing(Case):
    """A test that describes models in a directory of its own."""

    def described(self, model, example=None):
        if example is None:
            example = torch.randint(0, V, (1, N), generator=torch.Generator().manual_seed(1))
        self.out = os.path.join(self.directory, "out")
        return attnscope.describe(model, example, self.out)

    def exact(self, model, *words, example=None):
        found = self.described(shaken(model), example)
        self.assertTrue(found.exact, repr(found))
        self.assertLess(found.logits["relative"], 1e-4)
        self.assertLess(found.patterns["absolute"], 1e-5)
        self.assertLessEqual(len(repr(found).splitlines()), 6)
        with open(os.path.join(self.out, "attnscope.toml"), encoding="utf-8") as file:
            text = file.read()
        for word in words:
            self.assertIn(word, text)
        return text

    def refused(self, model, *words, example=None):
        found = self.described(shaken(model), example)
        self.assertFalse(found.exact)
        self.assertFalse(os.path.exists(os.path.join(self.out, "attnscope.toml")))
        self.assertLessEqual(len(repr(found).splitlines()), 6)
        for word in words:
            self.assertIn(word, repr(found))
        return found


@needs_program()
class Describes(Describing):
    def test_a_model_at_its_first_values_is_described_with_its_gains_and_biases(self):
        model = Fused().eval()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        found = self.described(model)
        self.assertTrue(found.exact, repr(found))
        self.assertTrue(all(torch.equal(value, before[name]) for name, value in model.state_dict().items()))
        with open(os.path.join(self.out, "attnscope.toml"), encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn("= {}", text)
        # Later values of the same training open with the same description.
        shaken(model)
        torch.save(model.state_dict(), os.path.join(self.out, "step_100.pt"))
        os.remove(os.path.join(self.out, "model.safetensors"))
        trace = os.path.join(self.out, "trace.safetensors")
        _program.run(["trace", os.path.join(self.out, "step_100.pt"), "--tokens", "5,9,2,7", "--hooks", "logits", "--output", trace])
        with torch.no_grad():
            own = model(torch.tensor([[5, 9, 2, 7]]))
        own = own[0] if own.dim() == 3 else own
        self.assertLess((_loaded(trace)["logits"] - own).abs().max(), 1e-4)

    def test_a_monitor_writes_the_description_of_its_model_beside_its_log(self):
        model, log = Fused().train(), os.path.join(self.directory, "run.jsonl")
        torch.manual_seed(7)
        expected = torch.rand(3)
        torch.manual_seed(7)
        attnscope.Monitor(model, log, example=torch.randint(0, V, (2, N), generator=torch.Generator().manual_seed(1))).close()
        self.assertTrue(torch.equal(torch.rand(3), expected))
        self.assertTrue(model.training)
        with open(os.path.join(self.directory, "attnscope.toml"), encoding="utf-8") as file:
            self.assertIn("tokens = ", file.read())

    def test_a_nanogpt_keeps_its_names(self):
        text = self.exact(Fused(), 'qkv = { weight = "h.{layer}.c_attn.weight"', 'positions = "wpe.weight"', 'activation = "gelu"')
        self.assertNotIn("unembed", text)  # tied

    def test_norms_and_maps_without_biases(self):
        self.exact(Fused(bias=False), 'attn_pre = "h.{layer}.l1.weight"')

    def test_weights_stored_with_inputs_first(self):
        self.exact(Fused(turned=True), 'axes = "in out"')

    def test_logits_of_the_last_position_alone(self):
        self.exact(Fused(last=True))

    def test_one_module_per_head_with_a_scale_of_its_own(self):
        self.exact(HeadModules(), "heads.{head}.query.weight", "scale = 0.176776695")

    def test_a_softmax_over_queries_is_said_as_it_is(self):
        self.exact(HeadModules(dim=-2), 'softmax_axis = "queries"')

    def test_a_softmax_over_heads_is_said_as_it_is(self):
        self.exact(OverHeads(), 'softmax_axis = "heads"', 'mask = "bidirectional"')

    def test_hidden_keys_that_get_a_share_of_each_head_are_refused(self):
        self.refused(OverHeads(hides=True), "the softmax runs over heads, and gives keys that a mask hides the same share in each")

    def test_attention_without_an_output_map(self):
        self.assertNotIn("\no = ", self.exact(HeadModules(projects=False)))

    def test_a_feed_forward_layer_without_a_second_map(self):
        text = self.exact(HeadModules(has_down=False), "up = ")
        self.assertNotIn("\ndown = ", text)

    def test_rotary_positions_by_halves_with_shared_keys(self):
        self.exact(Llama(rotated_by_halves), "n_kv_heads = 2", "rope_theta = 10000.0", "rope_interleaved = false", "gate = ")

    def test_rotary_positions_as_complex_numbers(self):
        self.exact(Llama(rotated_as_complex, n_kv_heads=1), "rope_theta = 500000.0", "rope_interleaved = true")

    def test_norms_of_queries_and_keys(self):
        self.exact(Llama(rotated_by_halves, n_kv_heads=4, norms_heads=True), "q_norm = ", "k_norm = ")

    def test_norms_of_queries_and_keys_that_are_turned_already(self):
        model = Llama(rotated_by_halves, norms_heads=True, norms_turned=True)
        self.exact(model, "q_norm = ", "k_norm = ", 'positions = "rotary"', "norms_after_rope = true")
        # As in nanochat: a turn changes no length, so that without gains the order says nothing.
        model = Llama(rotated_by_halves, norms_heads=True, norms_turned=True, has_gains=False)
        self.assertNotIn("norms_after_rope", self.exact(model, 'positions = "rotary"'))

    def test_rotary_tables_of_fewer_bits(self):
        told = ('rope_precision = "bfloat16"', "rope_theta = 100000.0", 'rope_direction = "backward"')
        self.assertNotIn("norms_after_rope", self.exact(Llama(rotated_in_bfloat16), *told))
        # Rounded turns change lengths: so the order is told without gains too.
        model = Llama(rotated_in_bfloat16, norms_heads=True, norms_turned=True, has_gains=False)
        self.exact(model, *told, "norms_after_rope = true")

    def test_torch_encoder_layers_before_and_after_norms(self):
        for first in (False, True):
            with self.quiet():
                text = self.exact(Encoder(first), 'embed_scale = "sqrt_d"', 'positions = "sines"', 'mask = "causal"')
            self.assertIn("attn_pre" if first else "attn_post", text)

    def test_sequences_along_the_first_axis(self):
        with self.quiet():
            self.exact(Encoder(batch_first=False), 'activation = "relu"')

    def test_heads_as_an_axis_of_einsum(self):
        self.exact(Einsum(), 'axes = "head in out"', 'activation = "gelu_new"', 'positions = "W_pos"')

    def test_attention_alone_without_a_scale(self):
        text = self.exact(Einsum(has_mlp=False, scale=1.0), 'scale = "none"')
        self.assertNotIn("up = ", text)

    def test_parallel_branches_with_one_norm_alibi_and_a_turned_table(self):
        self.exact(Parallel(), 'block = "parallel"', 'positions = "alibi"', 'axes = "column row"', 'activation = "relu2"',
                   'order = "q k v", per = "head"')

    def test_parallel_branches_with_norms_of_their_own(self):
        self.exact(Parallel(shares_norm=False, projects=False, activation=F.silu), 'activation = "silu"')

    def test_a_classifier_of_the_mean(self):
        class Classifier(Fused):
            def forward(self, ids):
                return self.out(super().hidden(ids).mean(1))

        model = Classifier()
        model.out = nn.Linear(D, 3)
        self.exact(model, 'pooled = "mean"')

    def test_classifiers_of_other_pools(self):
        def largest(x, _):
            return x.max(dim=1)[0]

        def of_real(x, ids):
            counts = (ids != 0).unsqueeze(-1).float()
            return (x * counts).sum(dim=1) / counts.sum(dim=1).clamp(min=1)

        def smallest(x, _):
            return x.min(dim=1)[0]

        class Classifier(Fused):
            def forward(self, ids):
                return self.out(self.pool(super().hidden(ids), ids))

        for pool, word in ((smallest, None), (largest, "max"), (of_real, "mean")):
            model = Classifier()
            model.out, model.pool = nn.Linear(D, 3), pool
            if word:
                self.exact(model, f'pooled = "{word}"')
            else:
                self.refused(model, "neither a mean nor a maximum")

    def test_positions_that_are_counted_over_real_tokens(self):
        class Counted(Fused):
            def forward(self, ids):
                places = torch.arange(1, ids.shape[1] + 1).expand_as(ids).masked_fill(ids == 0, 0)
                return self.head(self.blocks(self.wte(ids) + self.wpe(places)))

        self.exact(Counted(), "without", example=(torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]]),))

    def test_input_that_is_no_ids(self):
        class Series(Fused):
            def forward(self, x):
                return self.head(self.blocks(self.into(x)))

        def model(into):
            model = Series()
            model.into = into
            return model

        text = self.exact(model(nn.Linear(5, D)), 'values = { weight = "into.weight", bias = "into.bias" }', "unembed",
                          example=torch.randn(3, N, 5))
        self.assertNotIn("tokens", text)
        # More than one map: the rows of the example are its tokens.
        self.exact(model(nn.Sequential(nn.Linear(5, D), nn.ReLU(), nn.Linear(D, D))), "reads no token ids", example=torch.randn(1, N, 5))

    def test_rows_of_numbers_with_positions_beside_the_bias_of_their_map(self):
        class Series(Fused):
            def forward(self, x):
                h = self.into(x) + (self.places[:x.shape[1]] if self.is_computed else self.wpe(torch.arange(x.shape[1])))
                return self.out(self.blocks(h).mean(1) if self.pools else self.blocks(h))

        for is_computed, pools, words in ((False, False, ['positions = "wpe.weight"']), (True, True, ['positions = "sines"', "pooled"])):
            model = Series()
            model.into, model.out, model.is_computed, model.pools = nn.Linear(5, D), nn.Linear(D, 3), is_computed, pools
            model.places = sines(64, D)
            self.exact(model, 'bias = "into.bias"', *words, example=torch.randn(1, N, 5))

    def test_a_row_of_a_batch_is_taken_alone(self):
        self.exact(Fused(), example=torch.randint(0, V, (3, N)))

    def test_arguments_by_name(self):
        self.exact(Fused(), example={"ids": torch.randint(0, V, (1, N))})

    def test_an_activation_without_a_name_is_refused_with_its_place(self):
        found = self.refused(Parallel(activation=lambda x: torch.sin(x)), "activation", "aten.sin")
        self.assertIn("styles.py:" if "styles" in found.unnamed[0] else "test_describe.py:", found.unnamed[0])

    def test_a_mask_after_the_softmax_is_refused(self):
        class Masked(HeadModules):
            def pattern(self, scores, n):
                return scores.softmax(-1) * torch.ones(n, n).tril()

        self.refused(Masked(), "do not sum to 1")

    def test_a_mask_that_multiplies_scores_is_refused(self):
        class Masked(HeadModules):
            def pattern(self, scores, n):
                return (scores * torch.ones(n, n).tril()).softmax(-1)

        self.refused(Masked(), "a mask multiplies them")

    def test_rows_of_a_batch_that_see_each_other_are_refused(self):
        class Batch(Fused):
            def forward(self, ids):
                x = self.hidden(ids)
                return self.head(x + x.mean((0, 1), keepdim=True))

        self.refused(Batch(), "see each other", example=torch.randint(0, V, (2, N)))

    def test_a_model_that_looks_at_its_text_is_not_exact(self):
        class Looks(Fused):
            def forward(self, ids):
                logits = super().forward(ids)
                return logits if int(ids[0, 0]) == 3 else -logits

        ids = torch.tensor([[3, 9, 2, 20, 7, 1, 8, 4]])
        self.refused(Looks(), "in another order", example=ids)

    def test_a_model_that_draws_numbers_is_an_error(self):
        class Drops(Fused):
            def forward(self, ids):
                return super().forward(ids) + torch.randn(1)

        with self.assertRaisesRegex(ValueError, "draws random numbers"):
            self.described(Drops())

    def test_a_directory_of_others_is_left_alone(self):
        os.makedirs(os.path.join(self.directory, "out"))
        with open(os.path.join(self.directory, "out", "config.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        with self.assertRaisesRegex(ValueError, "expected a new or empty directory, found config.json"):
            self.described(Fused())

    def test_the_mode_of_the_model_is_kept(self):
        model = shaken(Fused()).train()
        self.described(model)
        self.assertTrue(all(module.training for module in model.modules()))


if __name__ == "__main__":
    unittest.main()
