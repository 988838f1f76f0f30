//! The part of Qwen3-Omni that writes codes of speech: Qwen3 with experts, and Qwen2's expert that every token uses.

use super::Family;
use super::reading::llama_like::{
    BiasRule, ExpertsKeys, QkNorm, Recipe, SharedKeys, SharedWidth, SparseLayers,
};

pub const FAMILY: Family =
    Family::decoder("qwen3_omni_moe_talker_text", "Qwen3OmniMoeTalker", || {
        Recipe {
            qk_norm: QkNorm::Head,
            qkv_bias: BiasRule::Key("attention_bias", false),
            o_bias: BiasRule::Key("attention_bias", false),
            experts: Some(ExpertsKeys {
                shared: Some(SharedKeys {
                    name: "shared_expert",
                    width: SharedWidth::Key("shared_expert_intermediate_size"),
                    gate: Some("shared_expert_gate"),
                }),
                layers: SparseLayers::All,
                ..ExpertsKeys::PLAIN
            }),
            forbidden_keys: &[("sliding_window", "this family applies no window")],
            ..Recipe::llama()
        }
    });
