//! Gemma: gains stored as what is added to 1, embeddings scaled by the root of their width, one gated layer with gelu.

use super::Family;
use super::reading::llama_like::{BiasRule, FactorRule, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("gemma", "Gemma", || Recipe {
    norm: NormStyle {
        adds_one: true,
        ..RMS
    },
    embed_scale: FactorRule::RootWidth,
    activation: ("hidden_act", "gelu_pytorch_tanh"),
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    is_tied: true,
    d_head: Some(256),
    ..Recipe::llama()
});
