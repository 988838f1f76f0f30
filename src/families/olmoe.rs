//! OLMoE: OLMo 2's norms of queries and keys, norms before the branches, and experts in every layer.

use super::Family;
use super::reading::llama_like::{BiasRule, ExpertsKeys, NormStyle, QkNorm, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("olmoe", "Olmoe", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    qk_norm: QkNorm::Whole,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    experts: Some(ExpertsKeys {
        d_expert: "intermediate_size",
        ..ExpertsKeys::PLAIN
    }),
    forbidden_keys: &[("clip_qkv", "clipping after a norm is not read")],
    ..Recipe::llama()
});
