//! FlexOlmo: OLMo 2 with experts in every layer.

use super::Family;
use super::reading::llama_like::{BiasRule, ExpertsKeys, NormPlaces, QkNorm, Recipe};

pub const FAMILY: Family = Family::decoder("flex_olmo", "FlexOlmo", || Recipe {
    norm_places: NormPlaces::Output,
    qk_norm: QkNorm::Whole,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    theta: 500_000.0,
    experts: Some(ExpertsKeys {
        d_expert: "intermediate_size",
        ..ExpertsKeys::PLAIN
    }),
    ..Recipe::llama()
});
