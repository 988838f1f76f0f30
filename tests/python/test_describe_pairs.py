"""attnscope.describe: encoder–decoders as people write them, described from one forward pass and run natively."""

import unittest

from places import needs_program
from test_describe import Describing
import torch
from torch import nn

from pairs import HEADS, TARGETS, WIDTH, Hand, Heads, Layer, Torch


def texts(n_source=9, n_target=7, n_rows=1):
    draw = torch.Generator().manual_seed(1)
    return (torch.randint(3, TARGETS, (n_rows, n_source), generator=draw),
            torch.randint(3, TARGETS, (n_rows, n_target), generator=draw))


@needs_program()
class Pairs(Describing):
    def pair(self, model, *words, example=None):
        return self.exact(model, "[tensors.cross]", "[tensors.encoder]", *words, example=example or texts())

    def test_torch_transformer_with_norms_after_and_before(self):
        for first in (False, True):
            with self.quiet():
                text = self.pair(Torch(norm_first=first), 'order = "q k v"', 'embed_scale = "sqrt_d"', "start_token = ")
            self.assertIn("\npre = " if first else "\npost = ", text)

    def test_torch_transformer_with_the_batch_second_and_stacks_of_other_heights(self):
        source, target = texts(n_rows=2)
        with self.quiet():
            self.pair(Torch((1, 3), batch_first=False, activation="gelu"), "[tensors.encoder.set]\nn_layers = 1",
                      example=(source.T, target.T))

    def test_torch_transformer_without_biases_of_one_layer(self):
        with self.quiet():
            self.pair(Torch((1, 1), bias=False, norm_first=True))

    def test_written_by_hand_with_norms_before_and_after(self):
        self.pair(Hand(), 'positions = "sines"', 'k = { weight = "decoder.{layer}.other.key.weight"')
        self.pair(Hand(pre=False, final=False), 'post = { weight = "decoder.{layer}.norms.1.weight"')

    def test_keys_fused_with_values_without_biases(self):
        self.pair(Hand(joined=True, bias=False), 'kv = { weight = "decoder.{layer}.other.to_kv.weight", order = "k v"')

    def test_one_layer_whose_keys_and_values_are_one_map(self):
        self.pair(Hand((1, 1), joined=True, pre=False, final=False))

    def test_shared_and_tied_tables(self):
        text = self.pair(Hand(shared=True, tied=True, scaled=True), 'embed_scale = "sqrt_d"')
        self.assertEqual(text.count('tokens = "source.weight"'), 2)
        self.assertNotIn("unembed", text)

    def test_tables_of_positions_of_each_stack(self):
        self.pair(Hand(learned=True), 'positions = "places.0"', 'positions = "places.1"')

    def test_a_source_longer_than_the_table_of_targets(self):
        model = Hand(learned=True)
        model.places = nn.ParameterList(nn.Parameter(torch.randn(n, WIDTH)) for n in (24, 10))
        self.pair(model, 'positions = "places.0"', example=texts(n_source=20))

    def test_heads_that_share_keys_and_a_scale_of_their_own(self):
        self.pair(Hand(n_kv=2, scale=1.0), "n_kv_heads = 2", 'scale = "none"')

    def test_rms_norms(self):
        self.pair(Hand(norm=nn.RMSNorm), 'norm = "rms"')

    def test_a_decoder_without_a_causal_mask_is_said_as_it_is(self):
        self.pair(Hand(causal=False), 'mask = "bidirectional"')

    def test_padding_that_the_text_does_not_hold_is_named(self):
        found = self.described(Hand(padding=1).eval(), texts())
        self.assertTrue(found.exact, repr(found))
        self.assertIn("without id 1", repr(found))

    def test_padding_in_the_example_is_refused(self):
        source, target = texts()
        source[0, -2:] = 1
        self.refused(Hand(padding=1), "without padding", example=(source, target))

    def test_rotary_positions_of_both_stacks_beside_tables(self):
        def turned(x):
            angles = torch.arange(x.shape[-2])[:, None] / 10_000 ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1])
            a, b = x.chunk(2, -1)
            return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

        class Rotary(Heads):
            def forward(self, x, memory, mask):
                q, k, v = (self.cut(part(x), HEADS) for part in (self.query, self.key, self.value))
                seen = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
                z = nn.functional.scaled_dot_product_attention(turned(q), turned(k), v, seen)
                return self.out(z.transpose(1, 2).flatten(2))

        model = Hand(learned=True)
        for layer in (*model.encoder, *model.decoder):
            layer.own = Rotary()
        self.pair(model, 'positions = "rotary"', 'positions = "places.0"')

    def test_arguments_by_name_and_a_batch(self):
        source, target = texts(n_rows=3)
        self.pair(Hand(), example={"target": target, "source": source})

    def test_a_target_without_its_last_token_and_a_row_of_logits_for_each_token_of_the_batch(self):
        class Shifted(Hand):
            def forward(self, source, target):
                return super().forward(source, target[:, :-1]).flatten(0, 1)

        self.pair(Shifted(), example=texts(n_rows=2))

    def test_a_module_of_two_names_keeps_its_parameters(self):
        model = Hand(shared=True).eval()
        before = model.source.weight
        self.described(model, texts())
        self.assertIs(model.source.weight, before)
        self.assertIs(type(model.target.weight.data), torch.Tensor)

    def test_heads_that_are_joined_without_their_axis_put_back_are_refused(self):
        model = Hand()
        for layer in model.encoder:
            layer.own.forward = lambda x, memory, mask, own=layer.own: own.out(torch.nn.functional.scaled_dot_product_attention(
                *(own.cut(part(x), 4) for part in (own.query, own.key, own.value))).reshape(x.shape))
        self.refused(model, "joined across positions", example=texts())

    def test_one_text_for_both_sides(self):
        ids = texts()[1]
        self.pair(Hand(shared=True), example=(ids, ids))

    def test_layers_of_the_decoder_that_attend_to_different_layers_of_the_encoder_are_refused(self):
        class Ladder(Hand):
            def forward(self, source, target):
                shown, n = self.seen(source), target.shape[1]
                memory, x = self.embed(self.source, self.places[0], source), self.embed(self.target, self.places[1], target)
                for below, layer in zip(self.encoder, self.decoder):
                    memory = below(memory, None, shown, None)
                    x = layer(x, memory, torch.ones(n, n, dtype=torch.bool).tril(), shown)
                return self.head(self.ends[1](x))

        self.refused(Ladder(), "different layers of the encoder", example=texts())

    def test_stacks_without_token_ids_are_described_on_their_rows(self):
        class Series(Hand):
            def seen(self, ids):
                return torch.ones(1, 1, 1, ids.shape[1], dtype=torch.bool)

        model, rows = Series(), torch.randn(1, 9, 5)
        model.source = nn.Linear(5, WIDTH)
        text = self.pair(model, "the encoder reads no token ids", example=(rows, texts()[1]))
        self.assertNotIn("the decoder reads no", text)
        model = Series()
        model.source, model.target = nn.Linear(5, WIDTH), nn.Linear(2, WIDTH)
        self.pair(model, "the encoder reads no token ids", "the decoder reads no token ids", example=(rows, torch.randn(1, 7, 2)))

    def test_a_batch_second_with_masks_of_padding_whose_batch_is_first(self):
        class Masked(Torch):
            def forward(self, source, target, hidden):
                mask = nn.Transformer.generate_square_subsequent_mask(len(target))
                return self.head(self.both(self.embed(self.source, source), self.embed(self.target, target), tgt_mask=mask,
                                           src_key_padding_mask=hidden, memory_key_padding_mask=hidden))

        source, target = texts(n_rows=2)
        with self.quiet():
            self.pair(Masked(batch_first=False), example=(source.T, target.T, source == 1))

    def test_a_decoder_that_reads_norms_of_the_encoder_in_each_layer_is_refused(self):
        class Normed(Layer):
            def forward(self, x, memory, mask, open_mask):
                return super().forward(x, memory if memory is None else nn.functional.layer_norm(memory * self.norms[0].weight, [WIDTH]),
                                       mask, open_mask)

        model = Hand()
        model.decoder = nn.ModuleList(Normed(True, True, nn.LayerNorm) for _ in range(2))
        self.refused(model, "key", example=texts())

    def test_a_layer_of_the_decoder_without_attention_to_the_encoder_is_refused(self):
        model = Hand()
        model.decoder[1] = Layer(False, True, nn.LayerNorm)
        self.refused(model, "layer 1 of the decoder does not attend to the encoder", example=texts())

    def test_attention_to_the_encoder_along_the_wrong_axis_is_refused(self):
        model = Hand()
        for layer in model.decoder:
            layer.other.forward = lambda x, memory, mask, own=layer.other: own.out(
                (own.query(x)[:, None] * own.key(memory)[:, :, None]).softmax(1).sum(1))
        self.refused(model, example=texts())


if __name__ == "__main__":
    unittest.main()
