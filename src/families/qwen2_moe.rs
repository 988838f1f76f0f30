//! Qwen2 with experts: many small ones, one that every token uses, and dense layers where the configuration says.

use super::Family;
use super::reading::llama_like::{
    BiasRule, ExpertsKeys, Recipe, SharedKeys, SharedWidth, SparseLayers,
};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("qwen2_moe", "Qwen2Moe", || Recipe {
    qkv_bias: BiasRule::Key("qkv_bias", true),
    window: WindowRule::EvenLayersBefore("max_window_layers"),
    experts: Some(ExpertsKeys {
        shared: Some(SharedKeys {
            name: "shared_expert",
            width: SharedWidth::Key("shared_expert_intermediate_size"),
            gate: Some("shared_expert_gate"),
        }),
        layers: SparseLayers::Stepped,
        ..ExpertsKeys::PLAIN
    }),
    ..Recipe::llama()
})
.with_once_wider_windows();
