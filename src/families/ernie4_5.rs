//! ERNIE 4.5: Llama whose pairs of rotating dimensions are neighbours, with one switch for all biases.

use super::Family;
use super::reading::llama_like::{BiasRule, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("ernie4_5", "Ernie4_5", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    theta: 500_000.0,
    interleaved: true,
    qkv_bias: BiasRule::Key("use_bias", false),
    o_bias: BiasRule::Key("use_bias", false),
    mlp_bias: BiasRule::Key("use_bias", false),
    is_tied: true,
    d_head: Some(128),
    ..Recipe::llama()
});
