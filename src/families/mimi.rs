//! Mimi: the transformer of a codec, behind its convolutions and before its codes; of both halves, that of the encoder.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_spec::{FeedForward, ModelSpec};

use super::Family;
use super::reading::llama_like::{BiasRule, MlpStore, NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;
use super::reading::{given_rows, prefix};

pub const FAMILY: Family = Family::own("mimi", "Mimi", read).leaving_unread(&[
    "conv.bias",
    "conv.weight",
    "decoder_transformer.*",
    "downsample.*",
    "latent_proj.weight",
    "quantizer.*",
    "seanet.*",
    "upsample.*",
]);

/// Prefixes of the transformers: in the whole codec, and in its halves.
const BASES: [&str; 4] = [
    "encoder.encoder_transformer.",
    "encoder_transformer.",
    "decoder.decoder_transformer.",
    "decoder_transformer.",
];

/// What of a configuration concerns the parts around the transformer.
const AROUND: [&str; 29] = [
    "audio_channels",
    "codebook_dim",
    "codebook_size",
    "compress",
    "decoder_config",
    "dilation_growth_rate",
    "encoder_config",
    "frame_rate",
    "kernel_size",
    "last_kernel_size",
    "latent_dim",
    "latent_stride",
    "layer_scale_initial_scale",
    "normalize",
    "num_filters",
    "num_quantizers",
    "num_residual_layers",
    "num_semantic_quantizers",
    "pad_mode",
    "residual_kernel_size",
    "sampling_rate",
    "trim_right_ratio",
    "upsample_groups",
    "upsampling_ratios",
    "use_causal_conv",
    "use_conv_shortcut",
    "use_streaming",
    "vector_quantization_hidden_dimension",
    "_frame_rate",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let base = prefix(
        &checkpoint.tensors,
        &BASES,
        "layers.0.self_attn.q_proj.weight",
    );
    let bias = BiasRule::Key("attention_bias", false);
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: Some("norm_eps"),
            eps: 1e-5,
            has_bias: true,
            ..RMS
        },
        qkv_bias: bias,
        o_bias: bias,
        mlp: MlpStore::Plain {
            up: "fc1",
            down: "fc2",
        },
        activation: ("hidden_act", "gelu"),
        window: WindowRule::Always(Some(250)),
        base: Some(base),
        ..Recipe::llama()
    };
    let both = (checkpoint, &mut *reader);
    let made_by = ("the convolutions of the codec", false);
    let mut spec = given_rows::read_layers(FAMILY.model_type, both, &recipe, made_by)?;
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        let gain = |of: &str| format!("{base}layers.{layer_idx}.{of}_layer_scale.scale");
        if let Some(own) = block.own_mut() {
            let o = &mut own.projections.o;
            *o = o.clone().times(gain("self_attn"));
        }
        if let FeedForward::Dense(mlp) = &mut block.feed_forward {
            mlp.down = mlp.down.clone().times(gain("mlp"));
        }
    }
    for key in AROUND {
        reader.value(key);
    }
    Ok(spec)
}
