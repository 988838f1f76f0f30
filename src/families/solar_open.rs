//! Solar Open: Llama with the experts of GLM 4.5 in every layer.

use super::Family;
use super::glm4_moe::EXPERTS;
use super::reading::llama_like::{BiasRule, ExpertsKeys, NormStyle, RMS, Recipe, SparseLayers};

pub const FAMILY: Family = Family::decoder("solar_open", "SolarOpen", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    theta: 1e6,
    d_head: Some(128),
    qkv_bias: BiasRule::Key("attention_bias", false),
    experts: Some(ExpertsKeys {
        layers: SparseLayers::All,
        ..EXPERTS
    }),
    ..Recipe::llama()
});
