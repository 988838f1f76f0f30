"""attnscope.describe: heads of several layers, and norms, activations and widths in the middle of a branch."""

import unittest

from branches import Attends, Branches, Feeds
from ends import ActivatesTwice, Before, Convolves, Ends, Latent, Narrow, NormsHeads, NormsHidden, Numbers, Others, Registers, TimesOnes
from places import needs_program
from styles import D, V
from test_describe import Describing
from test_describe_branches import OnOtherTexts
import torch
from torch import nn

from attnscope import _program


@needs_program()
class DescribesEnds(Describing):
    def test_a_head_with_a_hidden_layer_of_any_width(self):
        for width in (20, D, 50):
            self.exact(Ends(nn.Linear(D, width), nn.ReLU(), nn.Linear(width, 7)), 'head_dense = { weight = "tail.0.weight"',
                       'head_activation = "relu"')

    def test_a_hidden_layer_that_is_normed(self):
        self.exact(Ends(nn.Linear(D, 20), nn.Tanh(), nn.LayerNorm(20), nn.Linear(20, 7), last=1), 'head_norm = { weight = "tail.2.weight"')

    def test_an_activation_before_the_only_map_of_a_head(self):
        self.exact(Ends(nn.ReLU(), nn.Linear(D, V)), 'head_activation = "relu"', "head_dense = ")

    def test_logits_of_the_last_positions_chosen_before_the_head_or_after_it(self):
        self.exact(Ends(nn.Linear(D, V), last=3))
        self.exact(Ends(nn.Linear(D, V), after=3))

    def test_some_rows_of_a_model_that_gives_its_normed_residual(self):
        self.exact(Ends(nn.Identity(), after=1), 'head = "none"', "final_norm")
        self.exact(Ends(nn.Identity(), after=3), 'head = "none"', "final_norm")

    def test_the_mean_of_rows_that_are_not_the_last(self):
        self.exact(Registers(), 'pooled = "mean from 3"', "in the order 6 7 8 0 1 2 3 4 5", example=torch.randn(1, 6, 5))

    def test_the_mean_of_rows_that_are_not_the_last_of_a_causal_model_is_refused(self):
        self.refused(Registers(causal=True), "not the last ones", example=torch.randn(1, 6, 5))

    def test_attention_that_the_rows_of_the_example_would_hide_is_refused(self):
        self.refused(Before(), "would be lost in the rows of the example", "branches.py", example=torch.randn(1, 6, 5))

    def test_a_head_of_three_maps_is_refused_by_name(self):
        head = nn.Linear(D, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 7)
        self.refused(Ends(*head), "the head has more than two maps", "ends.py")


@needs_program()
class DescribesMiddles(OnOtherTexts):
    def test_an_activation_behind_both_maps_of_a_feed_forward_layer(self):
        self.exact_elsewhere(Branches(Attends(), ActivatesTwice()), 'out_activation = "gelu"')

    def test_a_norm_between_the_maps_of_a_feed_forward_layer(self):
        self.exact_elsewhere(Branches(Attends(), NormsHidden()), 'hidden_norm = { weight = "layers.1.inner.weight"')
        self.exact_elsewhere(Branches(Attends(), NormsHidden(True), Attends(), NormsHidden(True)), "gate = ", "hidden_norm = ")

    def test_convolutions_that_read_one_position_each(self):
        self.exact_elsewhere(Branches(Attends(), Convolves()), 'up = { weight = "layers.1.up.weight"')

    def test_norms_of_what_heads_give(self):
        self.exact_elsewhere(Branches(NormsHeads(), Feeds()), 'z_norm = { weight = "layers.0.inner.weight"')
        self.exact_elsewhere(Branches(NormsHeads(True), Feeds()), 'z_norm = { weight = "layers.0.inner.weight"', 'per = "head"')

    def test_values_of_another_width_than_queries(self):
        self.exact_elsewhere(Branches(Narrow(), Feeds(), Narrow(), Feeds()), "d_value = 4", 'order = "q k v"')
        self.exact_elsewhere(Branches(Narrow(11), Feeds()), "d_value = 11")

    def test_latent_attention_with_a_rotated_part_that_all_heads_share(self):
        self.exact_elsewhere(Branches(Latent(), Feeds()), "d_head = 12", "d_value = 6", "d_rotary = 4")

    def test_a_mask_of_any_form_is_a_table_and_accuses_nothing(self):
        self.exact(Branches(Others(), Feeds(), Others(), Feeds()), 'mask = "bidirectional"', 'by = "pairs"',
                   "which keys the first 12 queries see")
        try:
            said = _program.run(["check", self.out, "--tokens", "5,9,2,7,1,3"])
        except _program.CommandError as error:
            said = error.stdout.encode()
        self.assertIn(b"checks run", said)
        self.assertNotIn(b"saturated-dtype", said)
        self.assertNotIn(b"nan-or-inf", said)

    def test_masks_of_ones_change_nothing(self):
        self.exact_elsewhere(TimesOnes(Attends(), Feeds(), Attends(), Feeds()), "n_layers = 2")


@needs_program()
class DescribesSeries(Describing):
    def test_an_encoder_and_a_decoder_of_numbers_on_their_rows(self):
        with self.quiet():
            text = self.exact(Numbers(), "the encoder reads no token ids", "the decoder reads no token ids",
                              example=(torch.randn(1, 9, 5), torch.randn(1, 6, 5)))
        self.assertIn("[tensors.encoder]", text)

    def test_an_encoder_of_numbers_and_a_decoder_of_ids(self):
        with self.quiet():
            text = self.exact(Numbers(rows=False), "the encoder reads no token ids", 'tokens = "target.weight"',
                              example=(torch.randn(1, 9, 5), torch.randint(0, V, (1, 6))))
        self.assertNotIn("the decoder reads no", text)


if __name__ == "__main__":
    unittest.main()
