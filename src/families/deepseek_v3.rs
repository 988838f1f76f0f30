//! DeepSeek V3: queries, keys and values through latent vectors, experts chosen in groups by sigmoids.

use attnscope_spec::RouterScores;

use super::Family;
use super::reading::bias_rule::BiasRule;
use super::reading::experts::{ExpertsKeys, GroupKeys, SharedKeys, SharedWidth, SparseLayers};
use super::reading::latent::LatentLike;

pub const FAMILY: Family = Family::latent("deepseek_v3", "DeepseekV3", || LatentLike {
    experts: EXPERTS,
    interleaves: Some("rope_interleave"),
    ..LatentLike::PLAIN
});

/// The experts of DeepSeek V3.
pub(super) const EXPERTS: ExpertsKeys = ExpertsKeys {
    n_experts: ["n_routed_experts", "num_local_experts"],
    scores: RouterScores::Sigmoid,
    choice_bias: Some(("gate.e_score_correction_bias", false)),
    groups: Some(GroupKeys {
        n_best: 2,
        n: 8,
        n_kept: 4,
    }),
    normalises: BiasRule::Key("norm_topk_prob", true),
    scale: Some(("routed_scaling_factor", 2.5)),
    shared: Some(SHARED),
    layers: SparseLayers::From("first_k_dense_replace", 3),
    ..ExpertsKeys::PLAIN
};

/// The shared experts of DeepSeek's models, side by side.
pub(super) const SHARED: SharedKeys = SharedKeys {
    name: "shared_experts",
    width: SharedWidth::Times("n_shared_experts", 1),
    gate: None,
};
