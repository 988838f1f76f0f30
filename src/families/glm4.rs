//! GLM 4 of 2025: GLM with norms around both branches.

use super::Family;
use super::reading::llama_like::{BiasRule, MlpStore, NormPlaces, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("glm4", "Glm4", recipe);

/// The norms before and behind both branches.
pub(super) const NORMS: [&str; 4] = [
    "input_layernorm",
    "post_self_attn_layernorm",
    "post_attention_layernorm",
    "post_mlp_layernorm",
];

/// How GLM 4 differs from Llama.
pub(super) fn recipe() -> Recipe {
    Recipe {
        norm: NormStyle {
            eps: 1.5625e-7,
            ..RMS
        },
        norm_places: NormPlaces::Around(NORMS),
        rotary_share: Some(0.5),
        interleaved: true,
        qkv_bias: BiasRule::Key("attention_bias", true),
        mlp: MlpStore::FusedGated,
        d_head: Some(128),
        ..Recipe::llama()
    }
}
