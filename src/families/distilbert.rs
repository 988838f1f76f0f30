//! DistilBERT: BERT without segments, under names of its own.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_spec::{
    BlockSpec, EmbedSpec, MlpSpec, ModelSpec, PositionTable, ProjectionSpec, StackSpec, TableSource,
};

use super::Family;
use super::reading::masked_head::{MaskedHead, masked_head, note_head};
use super::reading::{activation, even_heads, layer_norm, linear, note_attention, prefix};

pub const FAMILY: Family = Family::own("distilbert", "DistilBert", read);

/// Fixed; no configuration states it.
const EPS: f64 = 1e-12;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("n_layers")?;
    let n_heads = reader.size("n_heads", "n_heads")?;
    let d_model = reader.size("d_model", "dim")?;
    let d_head = even_heads(reader, "n_heads", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "hidden_dim")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let activation = activation(reader, "activation", "gelu")?;
    // The table is stored in either case; this key only says how it was initialised.
    reader.value("sinusoidal_pos_embds");
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(
        tensors,
        &["distilbert.", ""],
        "embeddings.word_embeddings.weight",
    );
    let block = |layer_idx: usize| {
        let at = format!("{base}transformer.layer.{layer_idx}");
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, EPS));
        let projections = ProjectionSpec::plain(
            one("attention.q_lin", d_model, d_model),
            one("attention.k_lin", d_model, d_model),
            one("attention.v_lin", d_model, d_model),
            one("attention.out_lin", d_model, d_model),
        );
        let mlp = MlpSpec::plain(
            one("ffn.lin1", d_model, d_mlp),
            one("ffn.lin2", d_mlp, d_model),
            activation,
        );
        BlockSpec::post_norm(
            attention.clone(),
            projections,
            mlp,
            [norm("sa_layer_norm"), norm("output_layer_norm")],
        )
    };
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}embeddings.{name}.weight"),
        n_rows,
        width: d_model,
    };
    let tokens = table("word_embeddings", d_vocab);
    let names = MaskedHead {
        dense: Some("vocab_transform"),
        norm: "vocab_layer_norm",
        decoder: "vocab_projector",
        bias: "vocab_projector.bias",
        activation: None,
    };
    let head = masked_head(
        reader,
        tensors,
        ("", names),
        &tokens,
        (d_model, tokens.width),
        activation,
        EPS,
    );
    note_head(reader, head.is_some());
    let embed = EmbedSpec {
        positions: Some(PositionTable::Stored(table("position_embeddings", n_ctx))),
        norm: Some(layer_norm(
            tensors,
            &format!("{base}embeddings.LayerNorm"),
            d_model,
            EPS,
        )),
        ..EmbedSpec::plain(tokens)
    };
    reader.note("positions", format!("learned, {n_ctx}"), Origin::Family);
    let stack = StackSpec::only(embed, (0..n_layers).map(block).collect(), None);
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, head)
    })
}
