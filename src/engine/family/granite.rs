//! Granite: Llama with stated factors for embeddings, scores, branches and logits.

use super::Family;
use super::reading::llama_like::{self, BiasRule, FactorRule, Recipe, ScorePower};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "granite",
    architecture: "Granite",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        embed_scale: FactorRule::Key("embedding_multiplier", 1.0),
        branch_scale: FactorRule::Key("residual_multiplier", 1.0),
        logit_scale: FactorRule::InverseKey("logits_scaling", 1.0),
        score_factor: Some(("attention_multiplier", ScorePower::AsIs)),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
