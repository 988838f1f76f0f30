//! OLMo 2: Llama with norms on the output of each branch, and of whole queries and keys.

use super::Family;
use super::reading::llama_like::{BiasRule, NormPlaces, NormStyle, QkNorm, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("olmo2", "Olmo2", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    norm_places: NormPlaces::Output,
    qk_norm: QkNorm::Whole,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    ..Recipe::llama()
});
