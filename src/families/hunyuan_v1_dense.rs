//! Hunyuan: Llama with norms of each head's queries and keys after the rotation.

use super::Family;
use super::reading::llama_like::{BiasRule, NormStyle, QkNorm, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("hunyuan_v1_dense", "HunYuanDenseV1", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    qk_norm: QkNorm::HeadAfterRope,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    ..Recipe::llama()
});
