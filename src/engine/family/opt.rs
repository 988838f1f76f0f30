//! OPT: learned positions counted over real tokens, relu, norms before the branches or (350m) after them.

use super::Family;
use super::reading::{
    activation, even_heads, linear_bias_if_stored, note_attention, prefix, tied_head,
};
use crate::attention::AttentionSpec;
use crate::checkpoint::{Checkpoint, Origin, Reader};
use crate::error::Result;
use crate::model::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, NormSource,
    PositionTable, ProjectionSpec, StackSpec, TableSource, TransformSpec,
};
use crate::ops::NormKind;
use crate::prompt::PositionRule;

pub const FAMILY: Family = Family {
    model_type: "opt",
    architecture: "OPT",
    read,
};

/// Rows of the position table before the one for position 0.
const N_ROWS_BEFORE: usize = 2;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "ffn_dim")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let same = Origin::Derived("d_model, no word_embed_proj_dim".to_owned());
    let d_embed = reader.size_or("d_embed", "word_embed_proj_dim", d_model, same)?;
    let activation = activation(reader, "activation_function", "relu")?;
    let norms_before = reader.flag_or("norms_before", "do_layer_norm_before", true)?;
    let drops_final = reader.flag_or("drops_final_norm", "_remove_final_layer_norm", false)?;
    let has_bias = reader.flag_or("has_bias", "enable_bias", true)?;
    let has_gain = reader.flag_or("norm_has_gain", "layer_norm_elementwise_affine", true)?;
    reader.note("norm_eps", "1e-5", Origin::Family);
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, true);
    note_attention(reader, &attention, Origin::Family);

    let bases = ["model.decoder.", "decoder.", ""];
    let base = prefix(tensors, &bases, "embed_tokens.weight");
    let norm = |name: &str| {
        let stored = |part: &str| has_gain.then(|| format!("{name}.{part}"));
        NormSource {
            bias: stored("bias"),
            ..NormSource::new(NormKind::LayerNorm, 1e-5, d_model, stored("weight"))
        }
    };
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let one = |name: &str, n_in, n_out| {
            super::reading::linear(&format!("{at}.{name}"), n_in, n_out, has_bias)
        };
        let projections = ProjectionSpec::plain(
            one("self_attn.q_proj", d_model, d_model),
            one("self_attn.k_proj", d_model, d_model),
            one("self_attn.v_proj", d_model, d_model),
            one("self_attn.out_proj", d_model, d_model),
        );
        let mlp = MlpSpec::plain(
            one("fc1", d_model, d_mlp),
            one("fc2", d_mlp, d_model),
            activation,
        );
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
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens.tensor, true)?;
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
        positions: Some(PositionTable::Stored(positions)),
        projection: project("project_in", d_embed, d_model),
        projects_first: true,
        ..EmbedSpec::plain(tokens)
    };
    let origin = Origin::Family;
    reader.note(
        "positions",
        format!("learned, {n_ctx}, over real tokens"),
        origin,
    );
    let final_norm =
        (norms_before && !drops_final).then(|| norm(&format!("{base}final_layer_norm")));
    let blocks = (0..n_layers).map(block).collect();
    let transform = project("project_out", d_model, d_embed).map(|dense| TransformSpec {
        dense,
        activation: None,
        norm: None,
    });
    let head = HeadSpec {
        transform,
        ..HeadSpec::plain(LinearSource::whole(unembed, None, d_embed, d_vocab))
    };
    let stack = StackSpec::only(embed, blocks, final_norm);
    Ok(ModelSpec {
        d_model,
        n_ctx: Some(n_ctx),
        positions: PositionRule::RealTokens {
            first: N_ROWS_BEFORE,
        },
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, Some(head))
    })
}
