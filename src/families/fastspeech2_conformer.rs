//! FastSpeech 2 with Conformers: its encoder of phonemes. What tells how long each sounds, and the decoder of frames, are not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{BlockSpec, EmbedSpec, FeedForward, ModelSpec, StackSpec, TableSource};

use super::Family;
use super::reading::conformer::{Conformer, ConformerNames, Distances, EPS, HALF};
use super::reading::{even_heads, note_attention, note_bias, prefix};

pub const FAMILY: Family =
    Family::own("fastspeech2_conformer", "FastSpeech2Conformer", read).leaving_unread(UNREAD);

/// What follows the encoder.
pub(super) const UNREAD: &[&str] = &[
    "criterion.*",
    "decoder.*",
    "duration_predictor.*",
    "energy_embed.*",
    "energy_predictor.*",
    "language_id_embedding.*",
    "num_batches_tracked",
    "pitch_embed.*",
    "pitch_predictor.*",
    "projection.*",
    "speaker_id_embedding.*",
    "speech_decoder_postnet.*",
    "vocoder.*",
];

/// Keys of what follows the encoder.
const ASIDE: [&str; 36] = [
    "decoder_concat_after",
    "decoder_config",
    "decoder_kernel_size",
    "decoder_layers",
    "decoder_linear_units",
    "decoder_normalize_before",
    "decoder_num_attention_heads",
    "duration_predictor_channels",
    "duration_predictor_kernel_size",
    "duration_predictor_layers",
    "encoder_config",
    "encoder_positional_dropout_rate",
    "energy_embed_kernel_size",
    "energy_predictor_channels",
    "energy_predictor_kernel_size",
    "energy_predictor_layers",
    "is_encoder_decoder",
    "num_languages",
    "num_mel_bins",
    "num_speakers",
    "pitch_embed_kernel_size",
    "pitch_predictor_channels",
    "pitch_predictor_kernel_size",
    "pitch_predictor_layers",
    "reduction_factor",
    "speaker_embed_dim",
    "speaking_speed",
    "speech_decoder_postnet_kernel",
    "speech_decoder_postnet_layers",
    "speech_decoder_postnet_units",
    "stop_gradient_from_energy_predictor",
    "stop_gradient_from_pitch_predictor",
    "use_masking",
    "use_weighted_masking",
    "decoder_positional_dropout_rate",
    "speech_decoder_postnet_dropout",
];

/// Reads the encoder, alone or with what makes sound of its frames.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "encoder_num_attention_heads";
    const LONGEST: &str = "max_source_positions";
    let tensors = &checkpoint.tensors;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    for key in ["use_macaron_style_in_conformer", "use_cnn_in_conformer"] {
        if !reader.flag_or("conformer", key, true)? {
            let problem = "expected true: blocks without a part of a Conformer are not read";
            return Err(Error::config(
                reader.path(),
                key,
                format!("{problem}, found false"),
            ));
        }
    }
    super::reading::must_be_off(
        reader,
        "encoder_concat_after",
        "a map of what attention reads and gives is not read",
    )?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
    let d_model = size("d_model", "hidden_size", 384)?;
    let d_mlp = size("d_mlp", "encoder_linear_units", 1536)?;
    let d_vocab = size("d_vocab", "vocab_size", 78)?;
    let n_heads = size("n_heads", HEADS, 2)?;
    let n_wide = size("convolution_width", "encoder_kernel_size", 7)?;
    let mlp_wide = size("mlp_width", "positionwise_conv_kernel_size", 3)?;
    let n_positions = size("n_ctx", LONGEST, 5000)?;
    let n_layers = reader.layers("encoder_layers")?;
    let d_head = even_heads(reader, HEADS, d_model, n_heads)?;
    let is_before = reader.flag_or("pre_norm", "encoder_normalize_before", false)?;
    let conformer = Conformer {
        tensors,
        names: ConformerNames::TALKING,
        d_model,
        d_mlp,
        n_heads,
        n_kv_heads: n_heads,
        d_head,
        n_wide,
        mlp_wide: Some(mlp_wide),
        n_before: n_wide / 2,
        activation: Activation::Silu,
        eps: EPS,
        norms_have_bias: true,
        has_bias: true,
        convolution_has_bias: reader.flag_or("convolution_bias", "convolution_bias", true)?,
        norms_rows: false,
        layer_factors: [1.0, HALF],
        convolution_factors: [1.0; 2],
        distances: Distances::Sines(n_positions),
        rope: None,
        window: None,
        n_positions: Some(n_positions),
    };
    note_attention(reader, &conformer.attention(), Origin::Family);
    note_bias(reader, "sines of the distance, mapped by each layer");
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    reader.remark(
        "its encoder of phonemes is read; how long each sounds, and the decoder of frames, are not"
            .to_owned(),
    );
    let table = "encoder.embed.weight";
    let bases = ["fastspeech2_conformer.", "model.", ""];
    let base = prefix(tensors, &bases, table);
    let blocks = (0..n_layers).map(|layer_idx| {
        let block = conformer.block(&format!("{base}encoder.conformer_layers.{layer_idx}"));
        let block = activated(block);
        if is_before {
            block
        } else {
            norms_behind(block)
        }
    });
    let embed = EmbedSpec {
        scale: (d_model as f32).sqrt(),
        ..EmbedSpec::plain(TableSource {
            tensor: format!("{base}{table}"),
            n_rows: d_vocab,
            width: d_model,
        })
    };
    let stack = StackSpec::only(embed, blocks.collect(), None);
    Ok(ModelSpec {
        n_ctx: Some(n_positions),
        d_vocab,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, None)
    })
}

/// The block with the activation of its feed-forward layers, which is not that of its convolution.
fn activated(mut block: BlockSpec) -> BlockSpec {
    if let Some(conformer) = block.conformer.as_deref_mut() {
        conformer.before.activation = Activation::Relu;
    }
    if let FeedForward::Dense(mlp) = &mut block.feed_forward {
        mlp.activation = Activation::Relu;
    }
    block
}

/// The block with the norms before its branches behind them; that at its end stays.
fn norms_behind(mut block: BlockSpec) -> BlockSpec {
    if let Some(conformer) = block.conformer.as_deref_mut() {
        conformer.before_post = conformer.before_norm.take();
        if let Some(module) = &mut conformer.convolution {
            module.post = module.pre.take();
        }
        conformer.last = block.mlp_post.take();
    }
    block.attn_post = block.attn_pre.take();
    block.mlp_post = block.mlp_pre.take();
    block
}
