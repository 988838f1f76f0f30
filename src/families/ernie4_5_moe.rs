//! ERNIE 4.5 with experts: between two layers, weighed by a softmax, and chosen with a bias.

use super::Family;
use super::reading::llama_like::{
    BiasRule, ExpertsKeys, NormStyle, RMS, Recipe, SharedKeys, SharedWidth, SparseLayers,
};

const BIAS: BiasRule = BiasRule::Key("use_bias", false);

pub const FAMILY: Family = Family::decoder("ernie4_5_moe", "Ernie4_5_Moe", recipe);

/// How ERNIE 4.5 with experts differs from Llama.
pub(super) fn recipe() -> Recipe {
    Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        theta: 500_000.0,
        interleaved: true,
        qkv_bias: BIAS,
        o_bias: BIAS,
        mlp_bias: BIAS,
        is_tied: true,
        experts: Some(EXPERTS),
        ..Recipe::llama()
    }
}

/// Its experts.
pub(super) const EXPERTS: ExpertsKeys = ExpertsKeys {
    n_experts: ["moe_num_experts", "num_experts"],
    n_used: "moe_k",
    choice_bias: Some(("moe_statics.e_score_correction_bias", true)),
    normalises: BiasRule::Always,
    least_sum: Some(("moe_norm_min", 1e-12)),
    shared: Some(SharedKeys {
        name: "shared_experts",
        width: SharedWidth::Times("moe_num_shared_experts", 2),
        gate: None,
    }),
    layers: SparseLayers::Between,
    ..ExpertsKeys::PLAIN
};
