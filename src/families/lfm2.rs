//! LFM2: gated convolutions over a few tokens in most layers, attention with norms of heads in the others.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, Mixer, ModelSpec, ProjectionSpec,
    SelfSpec, StackSpec, TableSource,
};

use super::reading::experts::{ExpertsKeys, NUMBERED, gated};
use super::reading::llama_like::Sizes;
use super::reading::rope::{RopeRule, rope};
use super::reading::{activation_named, linear, note_attention, prefix, rms_norm, tied_head};
use super::{Family, lfm3};

pub const FAMILY: Family = Family::own("lfm2", "Lfm2", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    read_as(FAMILY.model_type, checkpoint, reader, None)
}

/// Reads LFM2, with experts in some layers or without.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    experts: Option<ExpertsKeys>,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let Sizes {
        n_layers,
        n_heads,
        n_kv_heads,
        d_model,
        d_head,
        n_ctx,
        d_vocab,
    } = Sizes::read(reader, None)?;
    let eps = reader.number_or("norm_eps", "norm_eps", 1e-5)?;
    let (d_mlp, experts) = match experts {
        Some(keys) => {
            let d_mlp = reader.size("d_mlp", "intermediate_size")?;
            (d_mlp, Some(keys.read(reader, tensors, n_layers)?))
        }
        None => (feed_forward_width(reader)?, None),
    };
    let activation = activation_named(reader, "hidden_act", "silu")?;
    let has_bias = reader.flag_or("conv_bias", "conv_bias", false)?;
    let default = Origin::Default("conv_L_cache".to_owned());
    let n_tokens = reader.size_or("conv_width", "conv_L_cache", 3, default)?;
    let attends = attending_layers(reader, n_layers)?;
    let rule = RopeRule {
        theta: 1e6,
        ..RopeRule::plain(d_head, n_ctx)
    };
    let attention = AttentionSpec {
        rope: Some(rope(reader, rule)?),
        ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, true)
    };
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, &["model.", ""], "embed_tokens.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let norm = |name: &str, width| rms_norm(format!("{at}.{name}.weight"), width, eps);
        let mixer = if attends[layer_idx] {
            let one = |name: &str, n_in, n_out| {
                linear(&format!("{at}.self_attn.{name}"), n_in, n_out, false)
            };
            let (wide, narrow) = (n_heads * d_head, n_kv_heads * d_head);
            Mixer::Attention(Box::new(SelfSpec {
                attention: attention.clone(),
                projections: ProjectionSpec {
                    q_norm: Some(norm("self_attn.q_layernorm", d_head)),
                    k_norm: Some(norm("self_attn.k_layernorm", d_head)),
                    ..ProjectionSpec::plain(
                        one("q_proj", d_model, wide),
                        one("k_proj", d_model, narrow),
                        one("v_proj", d_model, narrow),
                        one("out_proj", wide, d_model),
                    )
                },
                exceptions: Default::default(),
            }))
        } else {
            let mixer = lfm3::convolution(&at, (d_model, n_tokens), has_bias);
            Mixer::Other(Box::new(mixer))
        };
        let at_mlp = format!("{at}.feed_forward");
        let feed_forward = match &experts {
            Some(experts) if experts.are_in(layer_idx) => {
                experts.of_layer(tensors, &at, d_model, (activation, false))
            }
            _ => {
                let mlp = gated(&at_mlp, NUMBERED, d_model, d_mlp, activation, false);
                FeedForward::Dense(Box::new(mlp))
            }
        };
        let mut block = BlockSpec::mixed(mixer, feed_forward);
        block.attn_pre = Some(norm("operator_norm", d_model));
        block.mlp_pre = Some(norm("ffn_norm", d_model));
        block
    };
    let tokens = TableSource {
        tensor: format!("{base}embed_tokens.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    // The older key has the same meaning.
    let is_tied = reader.flag_or("tied_embedding", "tie_embedding", true)?;
    let unembed = tied_head(
        reader,
        tensors,
        &["lm_head.weight"],
        &tokens.tensor,
        is_tied,
    )?;
    let blocks = (0..n_layers).map(block).collect();
    let last = rms_norm(format!("{base}embedding_norm.weight"), d_model, eps);
    let stack = StackSpec::only(EmbedSpec::plain(tokens), blocks, Some(last));
    let head = HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(family, stack, Some(head))
    })
}

/// The width of feed-forward blocks: two thirds of the stated width, rounded up to a multiple, unless this is switched off.
fn feed_forward_width(reader: &mut Reader<'_>) -> Result<usize> {
    let stated = reader.either_size("d_mlp", ["block_ff_dim", "intermediate_size"])?;
    if !reader.flag_or("adjusts_d_mlp", "block_auto_adjust_ff_dim", true)? {
        return Ok(stated);
    }
    let two_thirds = 2 * stated / 3;
    const FACTOR: &str = "block_ffn_dim_multiplier";
    let width = match reader.number_or_none("d_mlp_factor", FACTOR, Some(1.0))? {
        None => two_thirds,
        Some(factor) => {
            let default = Origin::Default("block_multiple_of".to_owned());
            let of = reader.size_or("d_mlp_multiple", "block_multiple_of", 256, default)?;
            let wanted = (factor * two_thirds as f64) as usize;
            let width = wanted.div_ceil(of) * of;
            let origin = Origin::Derived("two thirds of intermediate_size".to_owned());
            reader.note("d_mlp", width, origin);
            width
        }
    };
    if width == 0 {
        let problem = format!(
            "expected feed-forward layers of some width, found 0: two thirds of {stated}, rounded down, times {FACTOR}"
        );
        return Err(Error::config(reader.path(), "intermediate_size", problem));
    }
    Ok(width)
}

/// Which layers attend: those in a list of words or in a list of numbers; all without a list.
fn attending_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    const TYPES: &str = "layer_types";
    let types = reader.words_by_layer(TYPES, n_layers)?;
    let numbers = reader.numbers("full_attn_idxs")?;
    let attends: Vec<bool> = match (types, numbers) {
        (Some(types), _) => {
            let attends = |kind: &String| match kind.as_str() {
                "full_attention" => Ok(true),
                "conv" => Ok(false),
                other => {
                    let problem = format!("expected full_attention or conv, found {other:?}");
                    Err(Error::config(reader.path(), TYPES, problem))
                }
            };
            types.iter().map(attends).collect::<Result<_>>()?
        }
        (None, Some(listed)) => (0..n_layers)
            .map(|layer_idx| listed.contains(&(layer_idx as u64)))
            .collect(),
        (None, None) => vec![true; n_layers],
    };
    let n = attends.iter().filter(|attends| **attends).count();
    let said = format!("{n} of {n_layers}, convolutions in the others");
    reader.note("attending_layers", said, Origin::Key(TYPES.to_owned()));
    Ok(attends)
}
