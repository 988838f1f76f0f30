//! The decoder of WavTokenizer: codes of sound, over which one head attends between convolutions. What makes codes of a sound, and a sound
//! of the last states, is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{
    BlockSpec, ChainStep, FeedForward, LinearSource, ModelSpec, NormSource, PlaneConvolution,
    ProjectionSpec, TableSource,
};

use super::Family;
use super::reading::chained::{Chained, activated, group_norm, line};
use super::reading::{layer_norm, linear, note_attention};

pub const FAMILY: Family =
    Family::own("wavtokenizer", "WavTokenizerModel", read).leaving_unread(UNREAD);

/// What makes codes of a sound, and what makes a sound of the last states.
const UNREAD: &[&str] = &[
    "encoder_model.encoder.*",
    "encoder_model.quantizer.codebook.cluster_size",
    "encoder_model.quantizer.codebook.embed_avg",
    "encoder_model.quantizer.codebook.inited",
    "head.*",
];

/// Keys of the encoder, and of what makes a sound.
const ASIDE: [&str; 16] = [
    "audio_channels",
    "compress",
    "dilation_growth_rate",
    "hidden_size",
    "kernel_size",
    "last_kernel_size",
    "norm_type",
    "num_filters",
    "num_lstm_layers",
    "num_residual_layers",
    "pad_mode",
    "residual_kernel_size",
    "sampling_rate",
    "upsampling_ratios",
    "use_causal_conv",
    "use_conv_shortcut",
];

/// Rows that the first convolution reads, and those of its later blocks.
const WIDE: usize = 7;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    const LAYERS: &str = "decoder_num_layers";
    const GROUPS: &str = "decoder_attention_num_groups";
    let default = |key: &str| Origin::Default(key.to_owned());
    let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
    let tokens = TableSource {
        tensor: "encoder_model.quantizer.codebook.embed".to_owned(),
        n_rows: size("d_vocab", "codebook_size", 4096)?,
        width: size("d_embed", "codebook_dim", 512)?,
    };
    let width = size("d_decoder", "decoder_hidden_size", 768)?;
    let d_mlp = size("d_mlp", "decoder_intermediate_size", 2304)?;
    let n_layers = size("n_convolution_layers", LAYERS, 12)?;
    let n_conditions = size("n_conditions", "adanorm_num_embeddings", 4)?;
    let n_groups = size("n_groups", GROUPS, 32)?;
    let eps = reader.number_or("norm_eps", "norm_eps", 1e-6)?;
    if !width.is_multiple_of(n_groups) {
        let problem = format!("{n_groups} groups do not divide a width of {width}");
        return Err(Error::config(reader.path(), GROUPS, problem));
    }
    if n_layers > tensors.len() {
        let problem = format!(
            "more layers than the {} tensors that are stored",
            tensors.len()
        );
        return Err(Error::config(reader.path(), LAYERS, problem));
    }
    let norm = |at: &str| group_norm(at, (n_groups, eps), width);
    let by_condition = |at: &str| {
        let gain = Some(format!("{at}.scale.weight"));
        NormSource {
            bias: Some(format!("{at}.shift.weight")),
            gain_shape: vec![n_conditions, width],
            has_conditions: true,
            ..NormSource::new(NormKind::LayerNorm, eps, width, gain)
        }
    };
    let around = |at: &str, n_wide: usize| {
        ChainStep::Convolution(PlaneConvolution {
            n_in: width,
            ..line(at, width, n_wide)
        })
    };
    let residual = |nth: usize| {
        let at = format!("backbone.pos_net.{nth}");
        let half = |nth: usize| {
            let normed = activated(norm(&format!("{at}.norm{nth}")), Activation::Silu);
            normed
                .into_iter()
                .chain([around(&format!("{at}.conv{nth}"), 3)])
        };
        ChainStep::residual(width, half(1).chain(half(2)).collect())
    };
    let mut stack = Chained::new(tokens.width);
    stack.convolve(line("backbone.embed", width, WIDE));
    stack.extend([0, 1].map(residual));
    let attention = AttentionSpec::plain(1, 1, width, false);
    note_attention(reader, &attention, Origin::Family);
    let at = "backbone.pos_net.2";
    let [q, k, v, o] = ["q", "k", "v", "proj_out"].map(|name| {
        let (weight, bias) = (format!("{at}.{name}.weight"), format!("{at}.{name}.bias"));
        LinearSource::of_patch(weight, Some(bias), vec![width, 1], width)
    });
    stack.block(BlockSpec {
        attn_pre: Some(norm(&format!("{at}.norm"))),
        ..BlockSpec::plain(
            attention,
            ProjectionSpec::plain(q, k, v, o),
            FeedForward::None,
        )
    });
    stack.extend([3, 4].map(residual));
    stack.push(ChainStep::Norm(Box::new(norm("backbone.pos_net.5"))));
    stack.push(ChainStep::Norm(Box::new(by_condition("backbone.norm"))));
    for layer in 0..n_layers {
        let at = format!("backbone.convnext.{layer}");
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let down = map("pwconv2", d_mlp, width).times(format!("{at}.gamma"));
        let steps = vec![
            ChainStep::Convolution(PlaneConvolution {
                n_in: width,
                is_by_channel: true,
                ..line(&format!("{at}.dwconv"), width, WIDE)
            }),
            ChainStep::Norm(Box::new(by_condition(&format!("{at}.norm")))),
            ChainStep::Map(Box::new(map("pwconv1", width, d_mlp))),
            ChainStep::Activation(Activation::Gelu),
            ChainStep::Map(Box::new(down)),
        ];
        stack.push(ChainStep::residual(width, steps));
    }
    let last = layer_norm(tensors, "backbone.final_layer_norm", width, eps);
    stack.push(ChainStep::Norm(Box::new(last)));
    reader.remark("its decoder is read, from codes: give --tokens".to_owned());
    Ok(stack.of_tokens(FAMILY.model_type, tokens))
}
