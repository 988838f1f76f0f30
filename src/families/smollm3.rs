//! SmolLM 3: Llama in which every fourth layer does not rotate.

use super::Family;
use super::reading::llama_like::{BiasRule, Recipe, RopeLayers};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("smollm3", "SmolLM3", || Recipe {
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    mlp_bias: BiasRule::Key("mlp_bias", false),
    theta: 2e6,
    is_tied: true,
    rope_layers: RopeLayers::Listed("no_rope_layers", 4),
    window: WindowRule::WhereZero("no_rope_layers", 4),
    ..Recipe::llama()
});
