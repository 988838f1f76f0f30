//! Sarvam 30B: GLM 4.5 whose heads rotate whole, with queries, keys and values in one tensor.

use super::Family;
use super::glm4_moe::EXPERTS;
use super::reading::expected::Expected;
use super::reading::llama_like::{BiasRule, ExpertsKeys, QkNorm, QkvStore, Recipe};

pub const FAMILY: Family = Family::decoder("sarvam_moe", "SarvamMoE", || Recipe {
    theta: 8_000_000.0,
    rotary_share: Some(1.0),
    qk_norm: QkNorm::Head,
    qkv_bias: BiasRule::Key("attention_bias", false),
    qkv: QkvStore::Stacked,
    d_head: Some(64),
    experts: Some(ExpertsKeys {
        scale: Some(("routed_scaling_factor", 2.5)),
        ..EXPERTS
    }),
    expected_keys: &[("use_qk_norm", Expected::Flag(true))],
    ..Recipe::llama()
});
