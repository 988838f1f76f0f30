//! Granite: Llama with stated factors for embeddings, scores, branches and logits.

use super::Family;
use super::reading::llama_like::{BiasRule, FactorRule, Recipe, ScorePower};

pub const FAMILY: Family = Family::decoder("granite", "Granite", recipe);

/// Granite's differences from Llama, shared by the models with and without experts.
pub(super) fn recipe() -> Recipe {
    Recipe {
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        embed_scale: FactorRule::Key("embedding_multiplier", 1.0),
        branch_scale: FactorRule::Key("residual_multiplier", 1.0),
        logit_scale: FactorRule::InverseKey("logits_scaling", 1.0),
        score_factor: Some(("attention_multiplier", ScorePower::AsIs)),
        ..Recipe::llama()
    }
}
