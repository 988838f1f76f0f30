//! Code World Model: Llama with windows on three layers of four, the first of each four without.

use super::Family;
use super::reading::llama_like::{BiasRule, NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("cwm", "Cwm", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    theta: 1e6,
    d_head: Some(128),
    mlp_bias: BiasRule::Key("mlp_bias", false),
    window: WindowRule::AllButFirst {
        every: 4,
        width: 8192,
    },
    requires_rope_parameters: true,
    ..Recipe::llama()
});
