//! GLM 4: Llama with half of each head rotating in interleaved pairs, and gate and up in one tensor.

use super::Family;
use super::reading::llama_like::{BiasRule, MlpStore, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("glm", "Glm", || Recipe {
    norm: NormStyle {
        eps: 1.5625e-7,
        ..RMS
    },
    rotary_share: Some(0.5),
    interleaved: true,
    qkv_bias: BiasRule::Key("attention_bias", true),
    mlp: MlpStore::FusedGated,
    d_head: Some(128),
    ..Recipe::llama()
});
