"""attnscope.describe: mixtures of experts, however they are chosen and stored."""

import unittest

from mixtures import Chosen, Every, Expert, Mixture, Slab, Stored, Switched
from places import needs_program
from styles import D, Fused
from test_describe import Describing
import torch
from torch import nn


@needs_program()
class DescribeExperts(Describing):
    def test_the_best_two_of_modules(self):
        text = self.exact(Mixture(Chosen(), Chosen()), "[tensors.experts]", "h.{layer}.out.experts.{expert}.up.weight",
                          'scores = "softmax"', "normalises = true", "n_used = 2")
        self.assertNotIn("\nlayers =", text)

    def test_tensors_of_three_axes_beside_an_expert_for_all(self):
        for out_first, axes in ((False, "expert in out"), (True, "expert out in")):
            self.exact(Mixture(Stored(out_first=out_first), Stored(out_first=out_first)), axes, "choice_bias", "shared_gate",
                       "shared_weight", 'scores = "sigmoid"', "scale = 2.5", 'order = "gate up"')

    def test_layers_without_experts(self):
        self.exact(Mixture(Expert(), Chosen()), "1*i+1", 'up = { weight = "h.0.out.up.weight"')

    def test_all_experts_run_on_all_rows(self):
        self.exact(Mixture(Every(soft=False), Every(soft=False)), "normalises = false", "n_used = 2")
        self.exact(Mixture(Every(soft=True), Every(soft=True)), "n_used = 3")

    def test_one_expert_for_each_row(self):
        self.exact(Mixture(Switched(), Switched()), "n_used = 1", "normalises = false")

    def test_experts_that_no_token_chose_are_known_by_name(self):
        found = self.exact(Mixture(Chosen(9), Chosen(9)), "{expert}", example=torch.tensor([[3, 4, 5]]))
        self.assertIn("n_used = 2", found)

    def test_experts_that_run_in_one_product(self):
        for gathers in (False, True):
            for gated in (False, True):
                text = self.exact(Mixture(Slab(gathers, gated), Slab(gathers, gated)), 'axes = "expert in out"', "n_used = 2",
                                  'bias = "h.{layer}.out.into_bias"', "normalises = true")
                self.assertEqual('order = "gate up", per = "unit"' in text, gated)

    def test_weights_without_a_name_are_refused(self):
        class Squared(Chosen):
            def weights(self, x):
                best, chosen = super().weights(x)
                return best ** 2, chosen

        self.refused(Mixture(Squared(), Squared()), "weighed otherwise than by a softmax or a sigmoid")


@needs_program()
class DescribePools(Describing):
    def test_a_mean_without_the_first_rows_and_a_norm_after_it(self):
        class Classifier(Fused):
            def forward(self, ids):
                return self.out(self.after(super().hidden(ids)[:, 2:].mean(1)))

        model = Classifier()
        model.after, model.out = nn.LayerNorm(D), nn.Linear(D, 3)
        self.exact(model, 'pooled = "mean from 2"', "pooled_norm = ")

    def test_a_cap_whose_division_is_written_before_the_tanh(self):
        class Capped(Fused):
            def forward(self, ids):
                return torch.tanh(super().forward(ids) / 7.5) * 7.5

        self.exact(Capped(), "logit_softcap = 7.5")


if __name__ == "__main__":
    unittest.main()
