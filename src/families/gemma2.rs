//! Gemma 2: Gemma with norms around both branches, caps on scores and logits, windows on every second layer.

use super::Family;
use super::reading::llama_like::{
    BiasRule, FactorRule, NormPlaces, NormStyle, RMS, Recipe, ScorePower,
};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("gemma2", "Gemma2", recipe);

/// How Gemma 2 differs from Llama.
pub(super) fn recipe() -> Recipe {
    Recipe {
        norm: NormStyle {
            adds_one: true,
            ..RMS
        },
        norm_places: NormPlaces::AROUND,
        embed_scale: FactorRule::RootWidth,
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        is_tied: true,
        d_head: Some(256),
        score_factor: Some(("query_pre_attn_scalar", ScorePower::InverseRoot)),
        score_cap: Some(("attn_logit_softcapping", 50.0)),
        logit_cap: Some(("final_logit_softcapping", 30.0)),
        window: WindowRule::AllBut {
            every: 2,
            every_key: None,
            width: 4096,
        },
        ..Recipe::llama()
    }
}
