//! Gemma 3: Gemma 2 with norms of queries and keys, no caps, and a rotary base of its own for windowed layers.

use super::Family;
use super::reading::llama_like::{
    BiasRule, FactorRule, LocalRope, NormPlaces, NormStyle, QkNorm, RMS, Recipe, ScorePower,
};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("gemma3_text", "Gemma3", recipe);

/// How Gemma 3 differs from Llama.
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
        qk_norm: QkNorm::Head,
        score_cap: Some(("attn_logit_softcapping", 0.0)),
        logit_cap: Some(("final_logit_softcapping", 0.0)),
        theta: 1e6,
        local_rope: Some(LocalRope {
            theta_key: Some("rope_local_base_freq"),
            theta: 10_000.0,
        }),
        window: WindowRule::AllBut {
            every: 6,
            every_key: Some("sliding_window_pattern"),
            width: 4096,
        },
        both_sides: Some("use_bidirectional_attention"),
        // transformers stores this key and does not apply it.
        forbidden_keys: &[("attn_logit_softcapping", "this family caps no scores")],
        ..Recipe::llama()
    }
}
