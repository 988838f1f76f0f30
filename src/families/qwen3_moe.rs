//! Qwen3 with experts in most layers.

use super::Family;
use super::reading::llama_like::{BiasRule, ExpertsKeys, QkNorm, Recipe, SparseLayers};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("qwen3_moe", "Qwen3Moe", || Recipe {
    qk_norm: QkNorm::Head,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    window: WindowRule::AllIfEnabled,
    experts: Some(ExpertsKeys {
        layers: SparseLayers::Stepped,
        ..ExpertsKeys::PLAIN
    }),
    ..Recipe::llama()
});
