//! Persimmon: layer norms, half of each head rotating, fused projections by heads, and the square of relu.

use attnscope_compute::ops::NormKind;

use super::Family;
use super::reading::llama_like::{
    BiasRule, BlockNames, MlpStore, NormStyle, QkNorm, QkvStore, RMS, Recipe,
};

pub const FAMILY: Family = Family::decoder("persimmon", "Persimmon", || Recipe {
    norm: NormStyle {
        kind: NormKind::LayerNorm,
        eps_key: Some("layer_norm_eps"),
        eps: 1e-5,
        has_bias: true,
        ..RMS
    },
    rotary_share: Some(0.5),
    qk_norm: QkNorm::BiasedHeadIf("qk_layernorm", true),
    qkv: QkvStore::PerHead,
    names: BlockNames {
        qkv: "query_key_value",
        o: "dense",
        final_norm: "final_layernorm",
        ..BlockNames::USUAL
    },
    qkv_bias: BiasRule::Always,
    o_bias: BiasRule::Always,
    mlp_bias: BiasRule::Always,
    activation: ("hidden_act", "relu2"),
    mlp: MlpStore::Plain {
        up: "dense_h_to_4h",
        down: "dense_4h_to_h",
    },
    ..Recipe::llama()
});
