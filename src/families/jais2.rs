//! Jais 2: Llama with layer norms, biases, and an ungated feed-forward layer of squared relu.

use attnscope_compute::ops::NormKind;

use super::Family;
use super::reading::llama_like::{BiasRule, MlpStore, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("jais2", "Jais2", || Recipe {
    norm: NormStyle {
        kind: NormKind::LayerNorm,
        eps_key: Some("layer_norm_eps"),
        eps: 1e-5,
        has_bias: true,
        ..RMS
    },
    qkv_bias: BiasRule::Key("attention_bias", true),
    o_bias: BiasRule::Key("attention_bias", true),
    mlp_bias: BiasRule::Key("mlp_bias", true),
    activation: ("hidden_act", "relu2"),
    mlp: MlpStore::Plain {
        up: "up_proj",
        down: "down_proj",
    },
    ..Recipe::llama()
});
