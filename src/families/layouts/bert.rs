//! BERT's names, which RoBERTa shares; the prefix tells the two apart.

use attnscope_compute::error::Result;

use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "BERT (bert.encoder.layer.0.attention.self.query.weight)",
    describe,
};

const PARTS: &[&str] = &[
    "attention.self.query.weight",
    "attention.self.query.bias",
    "attention.self.key.weight",
    "attention.self.key.bias",
    "attention.self.value.weight",
    "attention.self.value.bias",
    "attention.output.dense.weight",
    "attention.output.dense.bias",
    "attention.output.LayerNorm.weight",
    "attention.output.LayerNorm.bias",
    "attention.output.LayerNorm.gamma",
    "attention.output.LayerNorm.beta",
    "intermediate.dense.weight",
    "intermediate.dense.bias",
    "output.dense.weight",
    "output.dense.bias",
    "output.LayerNorm.weight",
    "output.LayerNorm.bias",
    "output.LayerNorm.gamma",
    "output.LayerNorm.beta",
];

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    let probe = |base: &str| format!("{base}encoder.layer.0.attention.self.query.weight");
    let bases = ["bert.", "roberta.", ""];
    let Some(base) = bases.into_iter().find(|base| facts.has(&probe(base))) else {
        return Ok(false);
    };
    let table = |name: &str| format!("{base}embeddings.{name}.weight");
    let [d_vocab, d_model] = facts.matrix(&table("word_embeddings"))?;
    let [n_positions, _] = facts.matrix(&table("position_embeddings"))?;
    let [n_types, _] = facts.matrix(&table("token_type_embeddings"))?;
    let up = format!("{base}encoder.layer.0.intermediate.dense.weight");
    let [d_mlp, _] = facts.matrix(&up)?;
    match base {
        "bert." => facts.by_names("model_type", "bert"),
        "roberta." => facts.by_names("model_type", "roberta"),
        // The names alone do not say how positions are counted, but only BERT has two token types.
        _ if n_types == 2 => facts.by_names("model_type", "bert"),
        _ if facts.overrides.has("family") => {}
        _ => facts.missing.push("family"),
    }
    let before = format!("{base}encoder.layer.");
    facts.layers(
        "num_hidden_layers",
        &before,
        "attention.self.query.weight",
        PARTS,
    )?;
    facts.by_shape("hidden_size", d_model, &table("word_embeddings"), &[])?;
    facts.by_shape("vocab_size", d_vocab, &table("word_embeddings"), &[])?;
    let positions = table("position_embeddings");
    facts.by_shape("max_position_embeddings", n_positions, &positions, &[])?;
    facts.by_shape(
        "type_vocab_size",
        n_types,
        &table("token_type_embeddings"),
        &[],
    )?;
    facts.by_shape("intermediate_size", d_mlp, &up, &[])?;
    facts.needed("n_heads", "num_attention_heads", &["n_heads", "n_head"]);
    Ok(true)
}
