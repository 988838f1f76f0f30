"""attnscope.describe: what is added to scores, what stands beside them, and what multiplies the outputs of heads."""

import os
import unittest

from biases import (Biased, Buckets, Computed, Distances, Gated, Grid, OfText, Pairs, Shifted, Sinks, Slopes, SomeHeads, Vectors,
                    back)
from pairs import SOURCES, TARGETS, Hand, Heads
from places import needs_program
from styles import D, H, V, Llama, rotated_by_halves
from test_describe import Describing
import torch

from attnscope import _program
from attnscope._describe.judging import _loaded


class OnLongerTexts(Describing):
    def differs_on(self, model, n):
        """How far the described model is from the model on a text of another length."""
        ids = torch.randint(0, V, (1, n), generator=torch.Generator().manual_seed(5))
        trace = os.path.join(self.directory, "trace.safetensors")
        _program.run(["trace", self.out, "--tokens", ",".join(map(str, ids[0].tolist())), "--hooks", "logits", "--output", trace,
                      "--force"])
        with torch.no_grad():
            return float((_loaded(trace)["logits"] - model(ids)[0]).abs().max())


@needs_program()
class DescribesWhatIsAdded(OnLongerTexts):
    def test_buckets_of_distances_that_all_layers_share(self):
        model = Biased(lambda: Buckets(8, 11), shared=True)
        self.exact(model, 'bias = { weight = "bias.rows.weight", by = "buckets", max_distance = 11 }')
        self.assertLess(self.differs_on(model, 30), 1e-4)

    def test_buckets_of_each_layer_to_both_sides(self):
        self.exact(Biased(lambda: Buckets(8, 9, both=True), causal=False), "layers.{layer}.bias.rows.weight", "max_distance = 9 }")
        self.exact(Biased(lambda: Buckets(8, 9, both=True)), "both_sides = true")

    def test_buckets_times_a_number_are_a_copy(self):
        self.exact(Biased(lambda: Buckets(8, 11, factor=3.0), shared=True), "score_bias: bias.rows.weight times 3: a copy")

    def test_buckets_of_a_short_text_take_the_distance_that_the_code_says(self):
        model = Biased(lambda: Buckets(32, 40), shared=True)
        self.exact(model, "max_distance = 40", "40 is what the code says. Describe the model with a longer example")
        self.assertLess(self.differs_on(model, 60), 1e-4)

    def test_a_value_for_each_distance(self):
        model = Biased(lambda: Distances(5))
        self.exact(model, 'weight = "layers.{layer}.bias.values", by = "distances", own = 5, counts = "key - query", axes = "head row"')
        self.assertLess(self.differs_on(model, 30), 1e-4)

    def test_a_value_for_each_distance_that_heads_share(self):
        self.exact(Biased(lambda: Distances(5, per_head=False), causal=False), "with a column for each head: a copy")

    def test_slopes_that_are_learned(self):
        model = Biased(Slopes)
        self.exact(model, 'bias = { weight = "layers.{layer}.bias.slopes", by = "slopes" }')
        self.assertLess(self.differs_on(model, 30), 1e-4)

    def test_slopes_of_some_heads(self):
        self.exact(Biased(SomeHeads, causal=True), 'bias = { weight = "score_bias", by = "slopes" }')
        model = Biased(SomeHeads, shared=True, causal=False)
        self.exact(model, 'bias = { weight = "score_bias", by = "slopes" }')
        self.assertLess(self.differs_on(model, 30), 1e-4)

    def test_slopes_beside_a_rotation(self):
        model = Biased(SomeHeads, shared=True)
        for layer in model.layers:
            layer.turned = rotated_by_halves
        self.exact(model, 'positions = "rotary"', 'by = "slopes"')
        self.assertLess(self.differs_on(model, 30), 1e-4)

    def test_a_value_for_each_query_and_key(self):
        self.exact(Biased(lambda: Pairs(H, 16, 16)), 'bias = { weight = "layers.{layer}.bias.table", by = "pairs" }')
        model = Biased(lambda: Pairs(16, 16), shared=True, causal=False)
        self.exact(model, 'bias = { weight = "bias.table", by = "pairs" }')
        self.assertLess(self.differs_on(model, 16), 1e-4)
        with self.assertRaisesRegex(_program.CommandError, "16"):
            self.differs_on(model, 17)

    def test_places_of_a_grid(self):
        self.exact(Biased(lambda: Grid(3, 4, False), causal=False), 'by = "grid", grid = [3, 4] }')
        self.exact(Biased(lambda: Grid(1, 11, True), causal=False), 'by = "grid", grid = [1, 11], first_token = true }')

    def test_an_encoder_and_a_decoder_with_buckets_of_their_own(self):
        class Far(Heads):
            def __init__(self, both):
                super().__init__()
                self.far = Buckets(8, 9, both)

            def added_to(self, scores):
                return scores + self.far(scores.shape[-1])

        model = Hand((2, 1))
        for layer in (*model.encoder, *model.decoder):
            layer.own = Far(both=not layer.crosses)
        draw = torch.Generator().manual_seed(2)
        text = self.exact(model, 'bias = { weight = "encoder.{layer}.own.far.rows.weight", by = "buckets", max_distance = 9 }',
                          example=(torch.randint(0, SOURCES, (1, 13), generator=draw), torch.randint(0, TARGETS, (1, 11), generator=draw)))
        self.assertEqual(text.count("by = "), 2)

    def test_what_a_network_computes_is_a_copy_for_as_many_positions(self):
        self.exact(Biased(Computed), 'weight = "blocks.{layer}.score_bias", by = "pairs"', "of the first 12 positions")

    def test_what_depends_on_the_text_is_refused(self):
        found = self.refused(Biased(OfText), "depends on the text")
        self.assertIn("biases.py:", found.unnamed[0])


@needs_program()
class DescribesVectorsOfDistances(OnLongerTexts):
    def test_a_vector_for_each_distance_that_heads_share(self):
        for causal in (True, False):
            model = Biased(lambda: Vectors(5, D // H), causal=causal)
            self.exact(model, 'relative = { weight = "blocks.{layer}.relative", own = 5', "layers.0.bias.table times 2.8284")
            self.assertLess(self.differs_on(model, 30), 1e-4)
        model = Biased(lambda: Vectors(5, D // H, scaled=True))
        self.exact(model, 'relative = { weight = "layers.{layer}.bias.table", own = 5, counts = "key - query" }')
        self.assertLess(self.differs_on(model, 30), 1e-4)

    def test_vectors_that_are_shifted_into_place(self):
        model = Biased(lambda: Shifted(20))
        self.exact(model, 'relative = { weight = "layers.{layer}.bias.rows.weight", own = 19, counts = "key - query" }')
        self.assertLess(self.differs_on(model, 20), 1e-4)

    def test_vectors_that_are_made_of_sines_and_meet_queries_with_a_bias_of_their_own(self):
        model = Biased(lambda: Shifted(20, is_made=True))
        self.exact(model, "query_bias = ", "limits = true", "of the distances −11 to 11, by head, that queries meet: a copy")
        with self.assertRaisesRegex(_program.CommandError, "12"):
            self.differs_on(model, 13)

    def test_vectors_of_distances_beside_something_else_are_refused(self):
        class Both(Vectors):
            def forward(self, q, k):
                return super().forward(q, k) - 0.1 * (back(q.shape[2]) ** 2).abs()

        self.refused(Biased(lambda: Both(5, D // H)), "and something else is too")


@needs_program()
class DescribesSinks(Describing):
    def test_a_learned_score_beside_the_keys_of_a_row(self):
        self.exact(Sinks(), 'sinks = "blocks.{layer}.sinks"')

    def test_a_row_that_is_divided_by_one_more(self):
        self.exact(Sinks(is_learned=False), "blocks.{layer}.sinks: a score of 0 beside the keys of each row")


@needs_program()
class DescribesGates(Describing):
    def test_a_sigmoid_for_each_value_of_the_heads(self):
        self.exact(Gated(), 'out_gate = { weight = "blocks.{layer}.gate.weight", bias = "blocks.{layer}.gate.bias" }')

    def test_a_sigmoid_for_each_head(self):
        self.exact(Gated(n_gates=H), 'out_gate = { weight = "blocks.{layer}.gate.weight"')

    def test_norms_with_gains_of_each_head(self):
        for n_kv_heads in (H, 2):
            self.exact(Gated(n_kv_heads=n_kv_heads), 'q_norm = { weight = "blocks.{layer}.q_gain", per = "head"',
                       'k_norm = { weight = "blocks.{layer}.k_gain", per = "head"')

    def test_norms_that_heads_share_say_nothing_of_heads(self):
        self.assertNotIn('per = "head"', self.exact(Llama(rotated_by_halves, norms_heads=True), "q_norm = "))


if __name__ == "__main__":
    unittest.main()
