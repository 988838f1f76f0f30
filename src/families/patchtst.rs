//! PatchTST over rows of patches of one channel of a series: pre-norm or post-norm layers, whose norms may be those of batches.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{BlockSpec, FeedForward, MlpSpec, ModelSpec, NormSource, ProjectionSpec};

use super::Family;
use super::reading::{
    activation, even_heads, given_rows, layer_norm, linear, must_be_off, note_attention, prefix,
};

pub const FAMILY: Family = Family::own("patchtst", "PatchTST", read).leaving_unread(&[
    "embedder.*",
    "head.*",
    "num_batches_tracked",
    "positional_encoder.*",
]);

/// Keys of what rows are made of, of training, and of what is predicted.
const ASIDE: [&str; 29] = [
    "channel_consistent_masking",
    "context_length",
    "distribution_output",
    "do_mask_input",
    "head_dropout",
    "init_std",
    "loss",
    "mask_type",
    "mask_value",
    "num_forecast_mask_patches",
    "num_input_channels",
    "num_parallel_samples",
    "num_targets",
    "output_range",
    "patch_length",
    "patch_stride",
    "path_dropout",
    "ff_dropout",
    "pooling_type",
    "positional_dropout",
    "positional_encoding_type",
    "prediction_length",
    "random_mask_ratio",
    "scaling",
    "share_embedding",
    "share_projection",
    "unmasked_channel_indices",
    "use_cls_token",
    "is_encoder_decoder",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "num_attention_heads";
    const NORMS: &str = "norm_type";
    let tensors = &checkpoint.tensors;
    must_be_off(
        reader,
        "channel_attention",
        "attention between channels is not read",
    )?;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_layers = reader.layers("num_hidden_layers")?;
    let d_model = reader.size_or("d_model", "d_model", 128, default("d_model"))?;
    let n_heads = reader.size_or("n_heads", HEADS, 4, default(HEADS))?;
    let d_head = even_heads(reader, HEADS, d_model, n_heads)?;
    let d_mlp = reader.size_or("d_mlp", "ffn_dim", 512, default("ffn_dim"))?;
    let eps = reader.number_or("norm_eps", "norm_eps", 1e-5)?;
    let act = activation(reader, "activation_function", "gelu")?;
    let has_bias = reader.flag_or("mlp_bias", "bias", true)?;
    let is_before = reader.flag_or("pre_norm", "pre_norm", true)?;
    let kind = reader.word_or("norm", NORMS, "batchnorm")?;
    let is_of_batches = match kind.as_str() {
        "batchnorm" => true,
        "layernorm" => false,
        other => {
            let problem = format!("expected \"batchnorm\" or \"layernorm\", found {other:?}");
            return Err(Error::config(reader.path(), NORMS, problem));
        }
    };
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    note_attention(reader, &attention, Origin::Family);
    given_rows::remark(reader, "the map of patches of one channel, with positions,");
    let base = prefix(
        tensors,
        &["model.encoder.", "encoder.", ""],
        "layers.0.self_attn.q_proj.weight",
    );
    let norm = |name: &str| {
        if !is_of_batches {
            return layer_norm(tensors, name, d_model, eps);
        }
        let stored = |what: &str| format!("{name}.batchnorm.{what}");
        NormSource {
            bias: Some(stored("bias")),
            statistics: Some(["running_mean", "running_var"].map(stored)),
            ..NormSource::new(NormKind::Fixed, eps, d_model, Some(stored("weight")))
        }
    };
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let own = |name: &str| linear(&format!("{at}.self_attn.{name}"), d_model, d_model, true);
        let projections =
            ProjectionSpec::plain(own("q_proj"), own("k_proj"), own("v_proj"), own("out_proj"));
        // Between both maps stand an activation and dropout.
        let mlp = MlpSpec::plain(
            linear(&format!("{at}.ff.0"), d_model, d_mlp, has_bias),
            linear(&format!("{at}.ff.3"), d_mlp, d_model, has_bias),
            act,
        );
        let plain = BlockSpec::plain(
            attention.clone(),
            projections,
            FeedForward::Dense(Box::new(mlp)),
        );
        let [first, second] =
            ["norm_sublayer1", "norm_sublayer3"].map(|name| Some(norm(&format!("{at}.{name}"))));
        if is_before {
            BlockSpec {
                attn_pre: first,
                mlp_pre: second,
                ..plain
            }
        } else {
            BlockSpec {
                attn_post: first,
                mlp_post: second,
                ..plain
            }
        }
    };
    let first = format!("{base}layers.0.self_attn.q_proj.weight");
    let blocks = (0..n_layers).map(block).collect();
    let first = (first, d_model);
    Ok(given_rows::model(FAMILY.model_type, first, blocks, None))
}
