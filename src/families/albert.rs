//! ALBERT: BERT whose layers share the weights of a few groups, and whose embeddings are narrower than its residual.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, EmbedSpec, MlpSpec, ModelSpec, PositionTable, ProjectionSpec, StackSpec, TableSource,
};

use super::Family;
use super::reading::masked_head::{MaskedHead, absolute_positions, masked_head, note_head};
use super::reading::{activation, even_heads, layer_norm, linear, note_attention, prefix};

pub const FAMILY: Family = Family::own("albert", "Albert", read);

/// Upper limit of blocks.
const MOST_BLOCKS: usize = 1 << 14;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let key = "num_hidden_groups";
    let n_groups = reader.size_or("n_layer_groups", key, 1, default(key))?;
    let key = "inner_group_num";
    let n_inner = reader.size_or("n_layers_of_group", key, 1, default(key))?;
    if n_groups > n_layers {
        let problem =
            format!("expected at most {n_layers} groups, one per layer, found {n_groups}");
        return Err(Error::config(reader.path(), "num_hidden_groups", problem));
    }
    // Each layer of a group has its own tensors, and is described once for each time it runs.
    let n_blocks = n_layers.saturating_mul(n_inner);
    if n_groups.saturating_mul(n_inner) > tensors.len() || n_blocks > MOST_BLOCKS {
        let problem = format!(
            "{n_groups} groups of {n_inner} layers, run as {n_blocks} blocks, need more than the {} tensors that are stored",
            tensors.len()
        );
        return Err(Error::config(reader.path(), key, problem));
    }
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let d_embed = reader.size("d_embed", "embedding_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let key = "type_vocab_size";
    let n_types = reader.size_or("n_token_types", key, 2, default(key))?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-12)?;
    let activation = activation(reader, "hidden_act", "gelu_new")?;
    absolute_positions(reader)?;
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(
        tensors,
        &["albert.", ""],
        "embeddings.word_embeddings.weight",
    );
    let block = |call_idx: usize| {
        let (layer_idx, inner_idx) = (call_idx / n_inner, call_idx % n_inner);
        let group_idx = layer_idx * n_groups / n_layers;
        let at = format!("{base}encoder.albert_layer_groups.{group_idx}.albert_layers.{inner_idx}");
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps));
        let projections = ProjectionSpec::plain(
            one("attention.query", d_model, d_model),
            one("attention.key", d_model, d_model),
            one("attention.value", d_model, d_model),
            one("attention.dense", d_model, d_model),
        );
        let mlp = MlpSpec::plain(
            one("ffn", d_model, d_mlp),
            one("ffn_output", d_mlp, d_model),
            activation,
        );
        BlockSpec::post_norm(
            attention.clone(),
            projections,
            mlp,
            [norm("attention.LayerNorm"), norm("full_layer_layer_norm")],
        )
    };
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}embeddings.{name}.weight"),
        n_rows,
        width: d_embed,
    };
    let tokens = table("word_embeddings", d_vocab);
    let names = MaskedHead {
        dense: Some("predictions.dense"),
        norm: "predictions.LayerNorm",
        decoder: "predictions.decoder",
        bias: "predictions.bias",
        activation: None,
    };
    let head = masked_head(
        reader,
        tensors,
        ("", names),
        &tokens,
        (d_model, tokens.width),
        activation,
        eps,
    );
    note_head(reader, head.is_some());
    let widening = format!("{base}encoder.embedding_hidden_mapping_in");
    let embed = EmbedSpec {
        positions: Some(PositionTable::Stored(table("position_embeddings", n_ctx))),
        token_types: Some(table("token_type_embeddings", n_types)),
        norm: Some(layer_norm(
            tensors,
            &format!("{base}embeddings.LayerNorm"),
            d_embed,
            eps,
        )),
        projection: Some(linear(&widening, d_embed, d_model, true)),
        ..EmbedSpec::plain(tokens)
    };
    let blocks = (0..n_blocks).map(block).collect();
    let stack = StackSpec::only(embed, blocks, None);
    Ok(ModelSpec {
        d_model,
        n_ctx: Some(n_ctx),
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, head)
    })
}
