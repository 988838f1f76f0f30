//! GLM 4.5: Llama with half of each head rotating, and experts chosen by sigmoids from some layer on.

use attnscope_spec::RouterScores;

use super::Family;
use super::reading::experts::GroupKeys;
use super::reading::llama_like::{
    BiasRule, ExpertsKeys, NormStyle, QkNorm, RMS, Recipe, SharedKeys, SharedWidth, SparseLayers,
};

pub const FAMILY: Family = Family::decoder("glm4_moe", "Glm4Moe", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    rotary_share: Some(0.5),
    qk_norm: QkNorm::HeadIf("use_qk_norm"),
    qkv_bias: BiasRule::Key("attention_bias", false),
    experts: Some(EXPERTS),
    ..Recipe::llama()
});

/// The experts of GLM 4.5.
pub(super) const EXPERTS: ExpertsKeys = ExpertsKeys {
    n_experts: ["n_routed_experts", "num_local_experts"],
    scores: RouterScores::Sigmoid,
    choice_bias: Some(("gate.e_score_correction_bias", false)),
    groups: Some(GroupKeys::if_stated(2)),
    normalises: BiasRule::Key("norm_topk_prob", true),
    scale: Some(("routed_scaling_factor", 1.0)),
    shared: Some(SharedKeys {
        name: "shared_experts",
        width: SharedWidth::Times("n_shared_experts", 1),
        gate: None,
    }),
    layers: SparseLayers::From("first_k_dense_replace", 1),
    ..ExpertsKeys::PLAIN
};
