//! OPT: learned positions counted over real tokens, relu, norms before the branches or (350m) after them.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_prompt::PositionRule;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, NormSource,
    PositionTable, ProjectionSpec, Sines, StackSpec, TableSource, TransformSpec,
};

use super::Family;
use super::reading::{
    activation, even_heads, linear_bias_if_stored, note_attention, prefix, tied_head,
};

pub const FAMILY: Family = Family::own("opt", "OPT", read);

/// Rows of the position table before the one for position 0.
const N_ROWS_BEFORE: usize = 2;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    read_as(checkpoint, reader, OptLike::OPT)
}

/// How families built from fairseq's decoder blocks differ.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptLike {
    pub family: &'static str,
    pub bases: &'static [&'static str],
    pub n_layers: &'static str,
    pub n_heads: &'static str,
    pub d_model: &'static str,
    pub d_mlp: &'static str,
    pub activation: (&'static str, &'static str),
    /// The switch that multiplies embeddings by √d_model; on by default.
    pub scales: Option<&'static str>,
    /// OPT's own switches: placement of norms, biases, gains, narrow embeddings.
    pub has_switches: bool,
    /// Sinusoidal positions; learned if `None`. OPT counts positions over real tokens, other families over all tokens.
    pub sines: Option<Sines>,
    pub final_norm: &'static str,
    pub heads: &'static [&'static str],
    /// Prefix of the feed-forward maps.
    pub ffn: &'static str,
    /// Positions count only tokens other than the padding token, from the index after it.
    pub counts_not_pad: bool,
    /// Norms between the heads and the output map, and before the second map of the feed-forward block.
    pub inner_norms: [Option<&'static str>; 2],
    /// The key of epsilon; it is fixed if there is none.
    pub eps_key: Option<&'static str>,
}

impl OptLike {
    /// OPT itself.
    pub const OPT: Self = Self {
        family: FAMILY.model_type,
        bases: &["model.decoder.", "decoder.", ""],
        n_layers: "num_hidden_layers",
        n_heads: "num_attention_heads",
        d_model: "hidden_size",
        d_mlp: "ffn_dim",
        activation: ("activation_function", "relu"),
        scales: None,
        has_switches: true,
        sines: None,
        final_norm: "final_layer_norm",
        heads: &["lm_head.weight"],
        ffn: "",
        counts_not_pad: false,
        inner_norms: [None, None],
        eps_key: None,
    };
}

/// Reads a family built from fairseq's decoder blocks.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: OptLike,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers(like.n_layers)?;
    let n_heads = reader.size("n_heads", like.n_heads)?;
    let d_model = reader.size("d_model", like.d_model)?;
    let d_head = even_heads(reader, like.n_heads, d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", like.d_mlp)?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let activation = activation(reader, like.activation.0, like.activation.1)?;
    let pad = if like.counts_not_pad {
        reader.count_or("pad_token", "pad_token_id", 1)? as u32
    } else {
        0
    };
    let mut switch = |knob, key, default| {
        if like.has_switches {
            reader.flag_or(knob, key, default)
        } else {
            Ok(default)
        }
    };
    let norms_before = switch("norms_before", "do_layer_norm_before", true)?;
    let drops_final = switch("drops_final_norm", "_remove_final_layer_norm", false)?;
    let has_bias = switch("has_bias", "enable_bias", true)?;
    let has_gain = switch("norm_has_gain", "layer_norm_elementwise_affine", true)?;
    let d_embed = if like.has_switches {
        let same = Origin::Derived("d_model, no word_embed_proj_dim".to_owned());
        reader.size_or("d_embed", "word_embed_proj_dim", d_model, same)?
    } else {
        d_model
    };
    let scales = match like.scales {
        Some(key) => reader.flag_or("scales_embedding", key, true)?,
        None => false,
    };
    let eps = match like.eps_key {
        Some(key) => reader.number_or("norm_eps", key, 1e-5)?,
        None => {
            reader.note("norm_eps", "1e-5", Origin::Family);
            1e-5
        }
    };
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, true);
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, like.bases, "embed_tokens.weight");
    let norm_of = |name: &str, width| {
        let stored = |part: &str| has_gain.then(|| format!("{name}.{part}"));
        NormSource {
            bias: stored("bias"),
            ..NormSource::new(NormKind::LayerNorm, eps, width, stored("weight"))
        }
    };
    let norm = |name: &str| norm_of(name, d_model);
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let one = |name: &str, n_in, n_out| {
            super::reading::linear(&format!("{at}.{name}"), n_in, n_out, has_bias)
        };
        let maps = ["q_proj", "k_proj", "v_proj", "out_proj"];
        let [q, k, v, o] = maps.map(|name| one(&format!("self_attn.{name}"), d_model, d_model));
        let inner = |nth: usize, width| {
            like.inner_norms[nth].map(|name| norm_of(&format!("{at}.{name}"), width))
        };
        let projections = ProjectionSpec {
            z_norm: inner(0, d_model),
            ..ProjectionSpec::plain(q, k, v, o)
        };
        let mlp = MlpSpec {
            hidden_norm: inner(1, d_mlp),
            ..MlpSpec::plain(
                one(&format!("{}fc1", like.ffn), d_model, d_mlp),
                one(&format!("{}fc2", like.ffn), d_mlp, d_model),
                activation,
            )
        };
        let of_attention = Some(norm(&format!("{at}.self_attn_layer_norm")));
        let of_mlp = Some(norm(&format!("{at}.final_layer_norm")));
        let plain = BlockSpec::plain(
            attention.clone(),
            projections,
            FeedForward::Dense(Box::new(mlp)),
        );
        if norms_before {
            BlockSpec {
                attn_pre: of_attention,
                mlp_pre: of_mlp,
                ..plain
            }
        } else {
            BlockSpec {
                attn_post: of_attention,
                mlp_post: of_mlp,
                ..plain
            }
        }
    };
    let tokens = TableSource {
        tensor: format!("{base}embed_tokens.weight"),
        n_rows: d_vocab,
        width: d_embed,
    };
    let unembed = tied_head(reader, tensors, like.heads, &tokens.tensor, true)?;
    let is_projected = d_embed != d_model;
    let project = |name: &str, n_in, n_out| {
        is_projected.then(|| linear_bias_if_stored(tensors, &format!("{base}{name}"), n_in, n_out))
    };
    let positions = TableSource {
        tensor: format!("{base}embed_positions.weight"),
        n_rows: n_ctx + N_ROWS_BEFORE,
        width: d_model,
    };
    let embed = EmbedSpec {
        scale: if scales {
            (d_model as f64).sqrt() as f32
        } else {
            1.0
        },
        positions: Some(match like.sines {
            Some(sines) => PositionTable::Sinusoid(sines),
            None => PositionTable::Stored(positions),
        }),
        projection: project("project_in", d_embed, d_model),
        projects_first: true,
        ..EmbedSpec::plain(tokens)
    };
    if like.inner_norms[0].is_some() {
        let said = "between heads and output map, before the second map of feed-forward blocks";
        reader.note("sub_norms", said, Origin::Family);
    }
    let positions = match like.sines {
        Some(_) => "sines and cosines".to_owned(),
        None if like.has_switches => format!("learned, {n_ctx}, over real tokens"),
        None => format!("learned, {n_ctx}"),
    };
    reader.note("positions", positions, Origin::Family);
    let final_norm =
        (norms_before && !drops_final).then(|| norm(&format!("{base}{}", like.final_norm)));
    let blocks = (0..n_layers).map(block).collect();
    let transform = project("project_out", d_model, d_embed).map(|dense| TransformSpec {
        dense,
        activation: None,
        norm: None,
        then: None,
    });
    let head = HeadSpec {
        transform,
        ..HeadSpec::plain(LinearSource::whole(unembed, None, d_embed, d_vocab))
    };
    let stack = StackSpec::only(embed, blocks, final_norm);
    Ok(ModelSpec {
        d_model,
        n_ctx: Some(n_ctx),
        positions: if like.counts_not_pad {
            PositionRule::NotPad { pad }
        } else if like.has_switches {
            PositionRule::RealTokens {
                first: N_ROWS_BEFORE,
            }
        } else {
            PositionRule::Shifted { by: N_ROWS_BEFORE }
        },
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(like.family, stack, Some(head))
    })
}
