//! The text part of Cosmos 3 Edge: Llama without gates, whose feed-forward layers square what a ReLU leaves.

use super::Family;
use super::reading::llama_like::{BiasRule, MlpStore, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("cosmos3_edge_text", "Cosmos3EdgeText", || Recipe {
    theta: 1e8,
    norm: NormStyle { eps: 1e-5, ..RMS },
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    mlp_bias: BiasRule::Key("mlp_bias", false),
    activation: ("hidden_act", "relu2"),
    mlp: MlpStore::Plain {
        up: "up_proj",
        down: "down_proj",
    },
    d_head: Some(128),
    ..Recipe::llama()
});
