//! Flint: Qwen3's attention with sinks, rotation only in layers with a window, and experts chosen by sigmoids.

use attnscope_spec::RouterScores;

use super::Family;
use super::reading::llama_like::{
    BiasRule, ExpertsKeys, QkNorm, Recipe, RopeLayers, SharedKeys, SharedWidth, SparseLayers,
};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("flint", "Flint", || Recipe {
    qk_norm: QkNorm::Head,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    rope_layers: RopeLayers::Windowed,
    window: WindowRule::MustList {
        width: 513,
        has_mixers: false,
    },
    has_sinks: true,
    d_head: Some(128),
    experts: Some(ExpertsKeys {
        scores: RouterScores::Sigmoid,
        normalises: BiasRule::Key("norm_topk_prob", true),
        shared: Some(SHARED),
        layers: SparseLayers::Stepped,
        ..ExpertsKeys::PLAIN
    }),
    ..Recipe::llama()
});

/// The shared expert, which has no gate.
pub(super) const SHARED: SharedKeys = SharedKeys {
    name: "shared_expert",
    width: SharedWidth::Key("shared_expert_intermediate_size"),
    gate: None,
};
