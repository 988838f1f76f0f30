//! The part of Qwen3-Omni that writes the further codes of a moment: Qwen3 in which each position has a table of codes of its own.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, TableSource};

use super::Family;
use super::reading::llama_like::{self, BiasRule, QkNorm, Recipe};

/// Each position has a head of its own.
pub const FAMILY: Family = Family::own(NAME, "Qwen3OmniMoeTalkerCodePredictor", read)
    .leaving_unread(&["lm_head.*", "codec_embedding.*"]);

const NAME: &str = "qwen3_omni_moe_talker_code_predictor";

/// The tables of all positions, one after another.
const TABLES: &str = "embed_tokens.weight";

/// Joins the tables of positions, which are stored apart, into one.
pub(super) fn join_tables(tensors: &mut Tensors) {
    for base in ["", "model."] {
        let name = |idx: usize| format!("{base}codec_embedding.{idx}.weight");
        let names: Vec<String> = (0..)
            .map(name)
            .take_while(|name| tensors.contains(name))
            .collect();
        tensors.join(&names, &format!("{base}{TABLES}"));
    }
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const TYPES: &str = "layer_types";
    let n_layers = reader.layers("num_hidden_layers")?;
    let words = reader.words_by_layer(TYPES, n_layers)?.unwrap_or_default();
    if let Some(word) = words.iter().find(|word| *word != "full_attention") {
        let problem = format!("expected full_attention, found {word:?}");
        return Err(Error::config(reader.path(), TYPES, problem));
    }
    let recipe = Recipe {
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        qk_norm: QkNorm::Head,
        d_head: Some(128),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(NAME, checkpoint, reader, &recipe)?;
    const GROUPS: &str = "num_code_groups";
    let n_groups = reader.size_or("n_books", GROUPS, 32, Origin::Default(GROUPS.to_owned()))?;
    let (n_tables, n_each) = (n_groups.saturating_sub(1).max(1), spec.d_vocab);
    let n_rows = n_tables.checked_mul(n_each).ok_or_else(|| {
        let problem = format!("{n_tables} tables of {n_each} codes are more than can be counted");
        Error::config(reader.path(), GROUPS, problem)
    })?;
    let embed = &mut spec.stacks[0].embed;
    embed.by_position = Some(n_each);
    embed.tokens = TableSource {
        n_rows,
        ..embed.tokens.clone()
    };
    spec.n_ctx = spec.n_ctx.map(|n_ctx| n_ctx.min(n_tables));
    spec.head = None;
    spec.is_causal_lm = false;
    reader.forget(&["unembedding", "tied_unembedding"]);
    reader.remark(
        "run on codes alone, each from the table of its position: the state of the talker and the first code, which stand before them, and a head for each position are left out"
            .to_owned(),
    );
    Ok(spec)
}
