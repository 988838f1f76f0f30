"""attnscope.describe: branches in any order and side by side, heads that read each other, keys and angles of other kinds."""

import os
import unittest

from branches import (Attends, Batched, Blocks, Branches, Cached, ClassReads, Differs, Feeds, FirstValues, Flash, Largest, Multiplied,
                      OfLatents, OfLength, OnGrid, OneMap, PassesByBoth, Placed, Squashed, Talking, Together, TurnedTalking, WithKey,
                      squashing)
from places import needs_program
from styles import D, V
from test_describe import Describing
import torch
from torch import nn

from attnscope import _program
from attnscope._describe.judging import _loaded


class OnOtherTexts(Describing):
    def differs_on(self, model, n):
        """How far the described model is from the model on a text of another length, as a part of the largest logit."""
        ids = torch.randint(0, V, (1, n), generator=torch.Generator().manual_seed(5))
        trace = os.path.join(self.directory, "trace.safetensors")
        _program.run(["trace", self.out, "--tokens", ",".join(map(str, ids[0].tolist())), "--hooks", "logits", "--output", trace,
                      "--force"])
        with torch.no_grad():
            own = model(ids)[0]
        return float((_loaded(trace)["logits"] - own).abs().max() / own.abs().max())

    def exact_elsewhere(self, model, *words, n=17):
        text = self.exact(model, *words)
        self.assertLess(self.differs_on(model, n), 1e-4)
        return text


@needs_program()
class DescribesOrders(OnOtherTexts):
    def test_a_feed_forward_layer_on_either_side_of_attention(self):
        model = Branches(Feeds(0.5), Attends(), Feeds(0.5), Feeds(0.5), Attends(), Feeds(0.5))
        self.exact_elsewhere(model, 'attention_layers = "1 4"', 'feed_forward_layers = "0 2 3 5"',
                             'qkv = { weight = "layers.{layer}.qkv.weight"', 'up = { weight = "layers.{layer}.up.weight"')

    def test_attention_first_and_feed_forward_layers_last(self):
        self.exact_elsewhere(Branches(Attends(), Attends(), Feeds(), Attends(), Feeds(), Feeds()), 'attention_layers = "0 1 3"')

    def test_branches_that_take_turns_are_layers_of_both(self):
        text = self.exact_elsewhere(Branches(Attends(), Feeds(), Attends(), Feeds()), "n_layers = 2",
                                    'up = { weight = "layers.{2*layer+1}.up.weight"')
        self.assertNotIn("attention_layers", text)

    def test_blocks_of_which_some_have_no_attention(self):
        self.exact_elsewhere(Blocks(), "n_layers = 3", 'attention_layers = "1 2"',
                             'qkv = { weight = "blocks.{layer}.attention.qkv.weight"')


@needs_program()
class DescribesBranchesAtOnce(OnOtherTexts):
    def test_attentions_and_feed_forward_layers_with_norms_of_their_own(self):
        for stacks in (False, True):
            model = Branches(*(Together(kind(), kind(), stacks=stacks) for kind in (Attends, Feeds, Attends, Feeds)))
            self.exact_elsewhere(model, "n_heads = 8", "n_layers = 2")

    def test_one_map_of_attention_and_feed_forward_layer(self):
        self.exact_elsewhere(Branches(OneMap(), OneMap()), 'block = "parallel"', 'activation = "silu"')


@needs_program()
class DescribesBatchNorms(OnOtherTexts):
    def test_a_batch_norm_after_each_branch_is_in_the_maps(self):
        self.exact_elsewhere(Batched(Attends(), Feeds(), Attends(), Feeds()), "the residual is multiplied between branches")

    def test_a_batch_norm_beside_other_norms_is_refused(self):
        self.refused(Batched(Attends(), Feeds(), Attends(), Feeds(), norms=lambda: nn.LayerNorm(D)), "norms of their own")


@needs_program()
class DescribesValueResiduals(OnOtherTexts):
    def test_values_of_the_first_layer_are_added_to_those_of_later_ones(self):
        text = self.exact_elsewhere(FirstValues(), 'first_values = "blocks.{layer}.first_values"', "n_layers = 3")
        self.assertNotIn("blocks.0.first_values", text)

    def test_shares_of_them_that_each_layer_learns(self):
        self.exact_elsewhere(FirstValues(shares="learned"), 'first_values = "share.{layer}"')


@needs_program()
class DescribesResiduals(OnOtherTexts):
    def test_a_residual_that_is_multiplied_before_a_branch_is_added(self):
        for width, after in ((1, False), (D, False), (1, True)):
            model = Multiplied(Attends(), Feeds(), Attends(), Feeds(), width=width, after=after)
            self.exact_elsewhere(model, 'attn_residual = "times.{2*layer}"', 'mlp_residual = "times.{2*layer+1}"')


@needs_program()
class DescribesPlaces(OnOtherTexts):
    def test_rows_that_are_added_to_the_input_of_queries_and_keys(self):
        for of, keys in ((("q", "k"), ("q_places", "k_places")), ("q", ("q_places",)), ("k", ("k_places",))):
            model = Branches(Placed(True, of), Feeds(), Placed(True, of), Feeds())
            text = self.exact_elsewhere(model, *(f'{key} = "layers.{{2*layer}}.places.weight"' for key in keys))
            self.assertEqual(text.count("_places = "), len(keys))

    def test_rows_of_sines_that_are_added_to_the_input_of_queries_and_keys(self):
        self.exact(Branches(Placed(False), Feeds(), Placed(False), Feeds()), 'q_places = "places"', 'k_places = "places"')


@needs_program()
class DescribesLatents(OnOtherTexts):
    def test_keys_and_values_of_a_narrow_vector_with_a_norm(self):
        for narrows in (True, False):
            model = Branches(OfLatents(narrows), Feeds(), OfLatents(narrows), Feeds())
            text = self.exact_elsewhere(model, "[tensors.latent]", "d_rotary = 4", "d_value = 7",
                                        'kv_shared = { weight = "layers.{2*layer}.to_latent.weight", order = "kv shared_key"')
            self.assertEqual("q_norm = " in text, narrows)

    def test_dimensions_that_all_heads_share_by_a_map_of_their_own(self):
        model = Branches(OfLatents(joins_maps=False), Feeds(), OfLatents(joins_maps=False), Feeds())
        self.exact_elsewhere(model, 'kv = "layers.{2*layer}.to_latent.weight"', 'shared_key = "layers.{2*layer}.to_shared.weight"')

    def test_keys_that_share_no_dimensions(self):
        text = self.exact_elsewhere(Branches(OfLatents(shares_keys=False), Feeds()), 'kv = "layers.0.to_latent.weight"')
        self.assertNotIn("shared_key", text)


@needs_program()
class DescribesTanhs(OnOtherTexts):
    def test_a_tanh_in_the_place_of_every_norm(self):
        text = self.exact_elsewhere(squashing(Attends(), Feeds(), Attends(), Feeds()), 'kind = "tanh", alpha = "norm.alpha"',
                                    'kind = "tanh", alpha = "layers.{2*layer+1}.norm.alpha"')
        self.assertNotIn("norm_eps", text)

    def test_a_tanh_beside_norms(self):
        model = Branches(Attends(), Feeds(), Attends(), Feeds())
        model.norm = Squashed()
        self.exact_elsewhere(model, 'norm = "layer"', 'kind = "tanh", alpha = "norm.alpha"')


@needs_program()
class DescribesMixedHeads(OnOtherTexts):
    def test_heads_that_read_each_others_scores_and_patterns(self):
        for before, after in ((True, False), (False, True), (True, True)):
            model = Branches(Talking(before, after), Feeds(), Talking(before, after), Feeds())
            self.exact_elsewhere(model, "heads read each other's scores or patterns", "n_kv_heads = 1", 'scale = "none"')

    def test_a_constant_in_the_pattern_is_refused(self):
        self.refused(Branches(Talking(False, True, constant=True), Feeds()), "do not sum to 1")

    def test_heads_that_are_mixed_after_a_norm_are_refused(self):
        found = self.refused(Branches(TurnedTalking(True, False), Feeds()), "heads are mixed, and their queries are normed or turned")
        self.assertIn("branches.py:", found.unnamed[0])


@needs_program()
class DescribesKeys(OnOtherTexts):
    def test_a_key_of_zeros_is_a_sink(self):
        self.exact_elsewhere(Branches(WithKey(False), Feeds(), WithKey(False), Feeds()), "a score of 0 beside the keys of each row")

    def test_a_learned_key_is_refused(self):
        self.refused(Branches(WithKey(True), Feeds()), "keys that are no positions of the text")

    def test_the_keys_of_the_largest_scores(self):
        self.exact_elsewhere(Branches(Largest(), Feeds(), Largest(), Feeds()), "top_keys = 3")

    def test_angles_of_rows_and_columns_are_a_table(self):
        for interleaved in (False, True):
            model = Branches(OnGrid(4, interleaved), Feeds(), OnGrid(4, interleaved), Feeds())
            self.exact(model, 'angles = "angles"', 'positions = "rotary"', f"rope_interleaved = {str(interleaved).lower()}")
            self.assertLess(self.differs_on(model, 7), 1e-4)
            with self.assertRaisesRegex(_program.CommandError, "12"):
                self.differs_on(model, 13)

    def test_angles_that_depend_on_the_length_are_refused(self):
        self.refused(Branches(OfLength(4, True), Feeds()), "differs from the model on a shorter text")

    def test_a_fused_kernel_that_the_model_asks_for(self):
        self.exact_elsewhere(Branches(Flash(), Feeds()), 'mask = "causal"')

    def test_a_cache_in_a_plain_attribute(self):
        model = Branches(Cached(), Feeds(), Cached(), Feeds())
        self.exact_elsewhere(model, "n_layers = 2")
        self.assertEqual(type(model.layers[0].cache), torch.Tensor)


@needs_program()
class DescribesOutputs(Describing):
    def test_a_pooled_row_may_be_what_the_model_gives(self):
        self.exact(Branches(Attends(), Feeds(), head="mean"), 'pooled = "mean"', "pooled_norm", "unembed")

    def test_outputs_of_length_1(self):
        self.exact(Branches(Attends(), Feeds(), head="embedding"), "the model gives the logits divided by their length")


@needs_program()
class Refuses(Describing):
    def test_the_difference_of_two_softmaxes(self):
        self.refused(Branches(Differs(), Feeds()), "one pattern is made of 2 products of queries and keys", "branches.py")

    def test_values_of_the_first_layer_in_shares_of_each_token(self):
        self.refused(FirstValues(shares="of tokens"), "values of an earlier layer", "branches.py")

    def test_a_residual_that_passes_by_both_branches_of_a_layer(self):
        self.refused(Branches(PassesByBoth(), PassesByBoth()), "through another map before a residual sum", "branches.py")

    def test_a_token_of_its_own_that_reads_the_others(self):
        self.refused(ClassReads(), "(class attention)", "branches.py", example=torch.randn(1, 9, 5))


if __name__ == "__main__":
    unittest.main()
