//! Moonshine: convolutions over samples, and an encoder and a decoder that turn most of each query and key by position.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::{EmbedSpec, ModelSpec, SoundStem, Stack, StemConvolution, TableSource};

use super::Family;
use super::reading::rope::{RopeRule, rope};
use super::reading::sound_writer::{self, Side};
use super::reading::{activation, equal_heads, layer_norm, note_attention, prefix, wave_like};

pub const FAMILY: Family = Family::own("moonshine", "Moonshine", read);

/// The share of a head that turns, if the configuration does not state it.
const TURNING: f64 = 0.9;

/// Widths and strides of the convolutions.
const WIDTHS: [usize; 3] = [127, 7, 3];
const STRIDES: [usize; 3] = [64, 3, 2];

/// Epsilon of the norm behind the first convolution.
const EPS: f64 = 1e-5;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let has_bias = reader.flag_or("attention_bias", "attention_bias", false)?;
    // Zeros that heads are padded with change nothing but the speed.
    reader.value("pad_head_dim_to_multiple_of");
    let base = prefix(tensors, &["model.", ""], "encoder.conv1.weight");
    let mut side = |stack: Stack| -> Result<Side<'_>> {
        let is_decoder = stack == Stack::Decoder;
        let (name, knobs, usual) = if is_decoder {
            ("decoder", ["decoder n_heads", "decoder n_kv_heads"], "silu")
        } else {
            ("encoder", ["encoder n_heads", "encoder n_kv_heads"], "gelu")
        };
        let heads = format!("{name}_num_attention_heads");
        let n_layers = reader.layers(&format!("{name}_num_hidden_layers"))?;
        let of_keys = format!("{name}_num_key_value_heads");
        let [n_heads, d_head] = equal_heads(reader, [&heads, &of_keys], knobs, d_model)?;
        let rule = RopeRule {
            share: TURNING,
            share_key: Some("partial_rotary_factor"),
            interleaved: true,
            ..RopeRule::plain(d_head, n_ctx)
        };
        let side = Side {
            tensors,
            base: format!("{base}{name}."),
            stack,
            n_layers,
            n_heads,
            n_kv_heads: n_heads,
            d_head,
            d_model,
            d_mlp,
            activation: activation(reader, &format!("{name}_hidden_act"), usual)?,
            has_bias,
            output_has_bias: false,
            norms_have_bias: false,
            is_gated: is_decoder,
            rope: Some(rope(reader, rule)?),
            last_norm: if is_decoder { "norm" } else { "layer_norm" },
        };
        note_attention(reader, &side.attention(), Origin::Family);
        Ok(side)
    };
    let (encoder, decoder) = (side(Stack::Encoder)?, side(Stack::Decoder)?);
    let rule = wave_like::rule(checkpoint, reader, (&WIDTHS, &STRIDES), 1)?;
    let at = |nth: usize| format!("{base}encoder.conv{}", nth + 1);
    let sizes = [1, d_model, 2 * d_model, d_model];
    let convolution = |nth: usize| StemConvolution {
        weight: format!("{}.weight", at(nth)),
        bias: (nth > 0).then(|| format!("{}.bias", at(nth))),
        n_in: sizes[nth],
        n_out: sizes[nth + 1],
        is_gated: false,
        n_wide: WIDTHS[nth],
        stride: STRIDES[nth],
        padding: [0; 2],
        norm: None,
        activation: (nth == 0).then_some(Activation::Tanh),
        last_norm: (nth == 0)
            .then(|| layer_norm(tensors, &format!("{base}encoder.groupnorm"), d_model, EPS)),
    };
    let places = TableSource {
        tensor: format!("{}.weight", at(0)),
        n_rows: rule.n_positions(),
        width: d_model,
    };
    let hearing = encoder.stack(EmbedSpec {
        sound: Some(Box::new(SoundStem {
            convolutions: (0..WIDTHS.len()).map(convolution).collect(),
            ..SoundStem::plain(rule, Activation::Gelu)
        })),
        ..EmbedSpec::plain(places)
    });
    let writing = decoder.stack(EmbedSpec::plain(TableSource {
        tensor: format!("{base}decoder.embed_tokens.weight"),
        n_rows: d_vocab,
        width: d_model,
    }));
    let both = (checkpoint, reader);
    sound_writer::whole(FAMILY.model_type, both, [hearing, writing], (n_ctx, false))
}
