//! Mellum 2: Qwen3 with experts and windows in layers that lists name; layers with a window rotate by a base of their own.

use super::Family;
use super::reading::llama_like::{BiasRule, ExpertsKeys, LocalRope, QkNorm, Recipe, SparseLayers};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("mellum", "Mellum", || Recipe {
    qk_norm: QkNorm::Head,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    d_head: Some(128),
    theta: 500_000.0,
    local_rope: Some(LocalRope {
        theta_key: None,
        theta: 10_000.0,
    }),
    window: WindowRule::Listed(1024),
    experts: Some(ExpertsKeys {
        normalises: BiasRule::Key("norm_topk_prob", true),
        layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 0),
        ..ExpertsKeys::PLAIN
    }),
    ..Recipe::llama()
});
