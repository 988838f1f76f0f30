//! VideoPrism's tower of captions: caps of scores, and a learned row that stands behind a text, whose last state sums it up.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_spec::{ModelSpec, PositionTable, TableSource};

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, BlockNames, FactorRule, MlpStore, NormPlaces, NormStyle, RMS, Recipe,
    RopeLayers,
};
use super::reading::prefix;

pub const FAMILY: Family = Family::own("videoprism_text_model", "VideoPrismTextModel", read);

/// Prefixes of the tower: alone, or inside a model of two.
const BASES: [&str; 2] = ["", "text_model."];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const WORDS: &str = "embeddings.token_embedding.weight";
    let base = prefix(&checkpoint.tensors, &BASES, WORDS);
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: Some("layer_norm_eps"),
            adds_one: true,
            has_bias: true,
            ..RMS
        },
        norm_places: NormPlaces::BeforeNamed(["layernorm_before", "layernorm_after"]),
        rope_layers: RopeLayers::Never,
        qkv_bias: BiasRule::Key("qkv_bias", true),
        o_bias: BiasRule::Always,
        mlp_bias: BiasRule::Always,
        mlp: MlpStore::Plain {
            up: "fc1",
            down: "fc2",
        },
        names: BlockNames {
            attn: "attention",
            final_norm: "layernorm",
            ..BlockNames::USUAL
        },
        activation: ("hidden_act", "relu"),
        embed_scale: FactorRule::RootWidth,
        score_cap: Some(("attn_logit_softcapping", 50.0)),
        base: Some(base),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let (d_model, n_rows) = (spec.d_model, spec.n_ctx.unwrap_or(64));
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}embeddings.{name}"),
        n_rows,
        width: d_model,
    };
    let embed = &mut spec.stacks[0].embed;
    embed.tokens.tensor = format!("{base}{WORDS}");
    embed.positions = Some(PositionTable::Stored(table("position_embedding", n_rows)));
    embed.summary = Some(table("cls_emb", 1));
    reader.note("positions", format!("stored, {n_rows}"), Origin::Family);
    reader.value("apply_l2norm");
    let summary = embed.tokens.n_rows;
    // Rows of positions are what limits a text; the summary has none.
    spec.n_ctx = Some(n_rows);
    spec.head = None;
    spec.is_causal_lm = false;
    reader.forget(&["unembedding", "tied_unembedding"]);
    reader.remark(format!(
        "transformers puts a learned row behind every text, whose last state sums it up: here it is token {summary}, which --tokens takes"
    ));
    Ok(spec)
}
