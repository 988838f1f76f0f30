//! Command R7B: Command R with windows on three layers of four, and no rotation on the fourth.

use super::Family;
use super::reading::llama_like::{
    BiasRule, FactorRule, NormPlaces, NormStyle, RMS, Recipe, RopeLayers,
};
use super::reading::windows::WindowRule;
use crate::ops::NormKind;

pub const FAMILY: Family = Family::decoder("cohere2", "Cohere2", || Recipe {
    norm: NormStyle {
        kind: NormKind::LayerNorm,
        eps_key: Some("layer_norm_eps"),
        eps: 1e-5,
        ..RMS
    },
    norm_places: NormPlaces::Shared,
    interleaved: true,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    is_tied: true,
    logit_scale: FactorRule::Key("logit_scale", 0.0625),
    rope_layers: RopeLayers::Windowed,
    window: WindowRule::AllBut {
        every: 4,
        every_key: Some("sliding_window_pattern"),
        width: 4096,
    },
    ..Recipe::llama()
});
