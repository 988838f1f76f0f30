//! Mistral 4: DeepSeek V3's attention, whose queries grow with their position, and experts weighed by a softmax over all.

use attnscope_spec::RouterScores;

use super::reading::experts::{ExpertsKeys, GroupKeys, SparseLayers};
use super::reading::latent::LatentLike;
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::latent("mistral4", "Mistral4", || LatentLike {
    experts: EXPERTS,
    interleaves: Some("rope_interleave"),
    has_share: true,
    grows: true,
    ..LatentLike::PLAIN
});

/// The experts of Mistral 4.
pub(super) const EXPERTS: ExpertsKeys = ExpertsKeys {
    scores: RouterScores::Softmax,
    choice_bias: None,
    groups: Some(GroupKeys::if_stated(2)),
    scale: Some(("routed_scaling_factor", 1.0)),
    layers: SparseLayers::From("first_k_dense_replace", 0),
    ..deepseek_v3::EXPERTS
};
