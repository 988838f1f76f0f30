//! GPT-NeoX (Pythia): part of each head rotates, branches run side by side, fused projections per head.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, ProjectionSpec,
    StackSpec, TableSource,
};

use super::Family;
use super::reading::rope::{RopeRule, rope};
use super::reading::{
    activation, even_heads, grouped, layer_norm, linear, note_attention, prefix, tied_head,
};

pub const FAMILY: Family = Family::own("gpt_neox", "GPTNeoX", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = NeoxLike {
        family: FAMILY.model_type,
        bases: &["gpt_neox.", ""],
        share: 0.25,
        mlp_times: None,
        has_switches: true,
        last_bias: None,
    };
    read_as(checkpoint, reader, like)
}

/// How families of GPT-NeoX's kind differ.
#[derive(Debug, Clone, Copy)]
pub(super) struct NeoxLike {
    pub family: &'static str,
    pub bases: &'static [&'static str],
    /// The share of a head that rotates if none is stated.
    pub share: f64,
    /// The key of d_mlp / d_model, with its default; `None` if d_mlp is stated.
    pub mlp_times: Option<(&'static str, usize)>,
    /// Switches for biases and for branches side by side, and an untied head; otherwise neither, and a tied one.
    pub has_switches: bool,
    /// Name of the bias of attention's output, which only the last layer has.
    pub last_bias: Option<&'static str>,
}

/// Reads a family of GPT-NeoX's kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: NeoxLike,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    if let Some(other) = reader
        .value("head_dim")
        .filter(|other| other.as_u64() != Some(d_head as u64))
    {
        let problem = format!("expected {d_head}, as hidden_size and heads have it, found {other}");
        return Err(Error::config(reader.path(), "head_dim", problem));
    }
    let d_mlp = match like.mlp_times {
        Some((key, default)) => {
            let origin = Origin::Default(key.to_owned());
            d_model * reader.size_or("d_mlp_per_d_model", key, default, origin)?
        }
        None => reader.size("d_mlp", "intermediate_size")?,
    };
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?;
    let activation = activation(reader, "hidden_act", "gelu")?;
    let mut switch = |knob, key| {
        if like.has_switches {
            reader.flag_or(knob, key, true)
        } else {
            Ok(false)
        }
    };
    let has_bias = switch("attention_bias", "attention_bias")?;
    let is_parallel = switch("parallel_branches", "use_parallel_residual")?;
    let theta_key = match reader.value("rotary_emb_base") {
        Some(_) => "rotary_emb_base",
        None => "rope_theta",
    };
    let rule = RopeRule {
        share: like.share,
        share_key: Some("rotary_pct"),
        theta_key,
        ..RopeRule::plain(d_head, n_ctx)
    };
    let attention = AttentionSpec {
        rope: Some(rope(reader, rule)?),
        ..AttentionSpec::plain(n_heads, n_heads, d_head, true)
    };
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, like.bases, "embed_in.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let fused = linear(
            &format!("{at}.attention.query_key_value"),
            d_model,
            3 * d_model,
            has_bias,
        );
        let [q, k, v] = grouped(&fused, 1, d_head);
        let mut o = linear(&format!("{at}.attention.dense"), d_model, d_model, has_bias);
        let last_bias = like.last_bias.filter(|_| layer_idx + 1 == n_layers);
        o.bias = last_bias.map(|name| format!("{at}.{name}")).or(o.bias);
        let mlp_bias = like.has_switches;
        let mlp = MlpSpec::plain(
            linear(&format!("{at}.mlp.dense_h_to_4h"), d_model, d_mlp, mlp_bias),
            linear(&format!("{at}.mlp.dense_4h_to_h"), d_mlp, d_model, mlp_bias),
            activation,
        );
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps));
        BlockSpec {
            attn_pre: norm("input_layernorm"),
            mlp_pre: norm("post_attention_layernorm"),
            is_parallel,
            ..BlockSpec::plain(
                attention.clone(),
                ProjectionSpec::plain(q, k, v, o),
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let tokens = TableSource {
        tensor: format!("{base}embed_in.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let heads = ["embed_out.weight", "lm_head.weight"];
    let unembed = tied_head(reader, tensors, &heads, &tokens.tensor, !like.has_switches)?;
    let final_norm = layer_norm(tensors, &format!("{base}final_layer_norm"), d_model, eps);
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(EmbedSpec::plain(tokens), blocks, Some(final_norm));
    let head = HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(like.family, stack, Some(head))
    })
}
