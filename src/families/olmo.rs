//! OLMo: Llama with layer norms that have no parameters, and queries, keys and values clipped where a limit is stated.

use attnscope_compute::ops::NormKind;

use super::Family;
use super::reading::llama_like::{BiasRule, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("olmo", "Olmo", || Recipe {
    norm: NormStyle {
        kind: NormKind::LayerNorm,
        eps_key: None,
        eps: 1e-5,
        has_gain: false,
        ..RMS
    },
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    clips_qkv: true,
    ..Recipe::llama()
});
