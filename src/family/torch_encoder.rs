//! Layers of `torch.nn.TransformerEncoderLayer` between a table of tokens and, perhaps, a head; keys are its arguments.

use super::Family;
use super::reading::{
    activation, even_heads, layer_norm_bias_if_stored, linear_bias_if_stored, note_attention,
    stacked,
};
use crate::attention::AttentionSpec;
use crate::checkpoint::{Checkpoint, Origin, Reader};
use crate::error::{Error, Result};
use crate::model::{
    BlockSpec, EmbedSpec, FeedForward, GateRule, HeadSpec, LinearSource, MlpSpec, ModelSpec,
    PositionTable, ProjectionSpec, StackSpec, TableSource,
};

pub const FAMILY: Family = Family {
    model_type: "torch_encoder",
    architecture: "TorchEncoder",
    read,
};

/// The key and the value of a part that is not there.
const NONE: &str = "none";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_layers")?;
    let n_heads = reader.size("n_heads", "nhead")?;
    let d_model = reader.size("d_model", "d_model")?;
    let d_head = even_heads(reader, "nhead", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "dim_feedforward")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?;
    let activation = activation(reader, "activation", "relu")?;
    let is_norm_first = reader.flag_or("norm_first", "norm_first", false)?;
    let embed_scale = reader.number_or("embed_scale", "embed_scale", 1.0)?;
    let is_causal = reader.flag_or("mask", "is_causal", false)?;
    let layers = reader.word_or("layers", "layers", "layers.")?;
    let tokens = reader.word_or("tokens", "tokens", "embedding.weight")?;
    let mut named = |knob: &'static str| -> Result<Option<String>> {
        let name = reader.word_or(knob, knob, NONE)?;
        Ok(Some(name).filter(|name| name != NONE))
    };
    let positions = named("positions")?;
    let final_norm = named("final_norm")?;
    let head = named("head")?;
    let n_ctx = match &positions {
        None => None,
        Some(_) => Some(reader.size("n_ctx", "max_len")?),
    };
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, is_causal);
    note_attention(reader, &attention, Origin::Family);
    if n_layers > tensors.len() {
        let problem = format!("expected at most one layer per tensor, found {n_layers}");
        return Err(Error::config(reader.path(), "num_layers", problem));
    }

    let block = |layer_idx: usize| {
        let at = format!("{layers}{layer_idx}");
        let attn = format!("{at}.self_attn");
        let bias = Some(format!("{attn}.in_proj_bias")).filter(|bias| tensors.contains(bias));
        let weight = format!("{attn}.in_proj_weight");
        let fused = LinearSource::whole(weight, bias, d_model, 3 * d_model);
        let [q, k, v] = stacked(&fused, [d_model; 3]);
        let one = |name: &str, n_in, n_out| {
            linear_bias_if_stored(tensors, &format!("{at}.{name}"), n_in, n_out)
        };
        let o = one("self_attn.out_proj", d_model, d_model);
        let mlp = MlpSpec {
            up: one("linear1", d_model, d_mlp),
            gate: None,
            down: one("linear2", d_mlp, d_model),
            activation,
            gate_rule: GateRule::Product,
        };
        let norm = |name: &str| {
            let name = format!("{at}.{name}");
            Some(layer_norm_bias_if_stored(tensors, &name, d_model, eps))
        };
        let mut block = BlockSpec::plain(
            attention.clone(),
            ProjectionSpec::plain(q, k, v, o),
            FeedForward::Dense(Box::new(mlp)),
        );
        if is_norm_first {
            (block.attn_pre, block.mlp_pre) = (norm("norm1"), norm("norm2"));
        } else {
            (block.attn_post, block.mlp_post) = (norm("norm1"), norm("norm2"));
        }
        block
    };
    let embed = EmbedSpec {
        scale: embed_scale as f32,
        positions: positions.map(|tensor| {
            PositionTable::Stored(TableSource {
                tensor,
                n_rows: n_ctx.unwrap_or(0),
                width: d_model,
            })
        }),
        ..EmbedSpec::plain(TableSource {
            tensor: tokens,
            n_rows: d_vocab,
            width: d_model,
        })
    };
    let norm = final_norm.map(|name| layer_norm_bias_if_stored(tensors, &name, d_model, eps));
    let stack = StackSpec::only(embed, (0..n_layers).map(block).collect(), norm);
    let head =
        head.map(|name| HeadSpec::plain(linear_bias_if_stored(tensors, &name, d_model, d_vocab)));
    Ok(ModelSpec {
        n_ctx,
        is_causal_lm: is_causal && head.is_some(),
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, head)
    })
}
