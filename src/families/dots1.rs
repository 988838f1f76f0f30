//! dots.llm1: Qwen3's attention with DeepSeek V3's experts from some layer on.

use super::Family;
use super::deepseek_v3::EXPERTS;
use super::reading::experts::GroupKeys;
use super::reading::llama_like::{BiasRule, ExpertsKeys, QkNorm, Recipe, SparseLayers};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("dots1", "Dots1", || Recipe {
    qk_norm: QkNorm::Head,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    window: WindowRule::FromUnlessNull {
        first_key: "max_window_layers",
        first: 62,
        width: 4096,
    },
    experts: Some(ExpertsKeys {
        groups: Some(GroupKeys::if_stated(2)),
        normalises: BiasRule::Key("norm_topk_prob", false),
        scale: Some(("routed_scaling_factor", 1.0)),
        layers: SparseLayers::From("first_k_dense_replace", 0),
        ..EXPERTS
    }),
    ..Recipe::llama()
});
