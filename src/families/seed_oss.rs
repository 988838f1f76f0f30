//! Seed-OSS: Llama with biases of queries, keys and values, and a switch of its own for that of the output.

use super::Family;
use super::reading::llama_like::{BiasRule, Recipe};

pub const FAMILY: Family = Family::decoder("seed_oss", "SeedOss", || Recipe {
    qkv_bias: BiasRule::Key("attention_bias", true),
    o_bias: BiasRule::Key("attention_out_bias", false),
    mlp_bias: BiasRule::Key("mlp_bias", false),
    d_head: Some(128),
    ..Recipe::llama()
});
