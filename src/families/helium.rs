//! Helium: Llama whose pairs of rotating dimensions are neighbours.

use super::Family;
use super::reading::llama_like::{BiasRule, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("helium", "Helium", || Recipe {
    norm: NormStyle { eps: 1e-8, ..RMS },
    theta: 100_000.0,
    interleaved: true,
    qkv_bias: BiasRule::Key("attention_bias", false),
    mlp_bias: BiasRule::Key("mlp_bias", false),
    d_head: Some(128),
    ..Recipe::llama()
});
