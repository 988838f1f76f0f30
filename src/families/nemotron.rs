//! Nemotron: layer norms whose gains are stored as what is added to 1, no gate, and the square of relu.

use attnscope_compute::ops::NormKind;

use super::Family;
use super::reading::llama_like::{BiasRule, MlpStore, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("nemotron", "Nemotron", || Recipe {
    norm: NormStyle {
        kind: NormKind::LayerNorm,
        eps_key: Some("norm_eps"),
        eps: 1e-5,
        adds_one: true,
        has_bias: true,
        ..RMS
    },
    rotary_share: Some(0.5),
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    mlp_bias: BiasRule::Key("mlp_bias", false),
    activation: ("hidden_act", "relu2"),
    mlp: MlpStore::Plain {
        up: "up_proj",
        down: "down_proj",
    },
    ..Recipe::llama()
});
