//! GLM 4.7 Flash: DeepSeek V3's latent attention, with experts from the second layer on.

use super::reading::experts::{ExpertsKeys, GroupKeys, SparseLayers};
use super::reading::latent::LatentLike;
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::latent("glm4_moe_lite", "Glm4MoeLite", || LatentLike {
    experts: ExpertsKeys {
        groups: Some(GroupKeys::if_stated(2)),
        scale: Some(("routed_scaling_factor", 1.8)),
        layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
        ..deepseek_v3::EXPERTS
    },
    interleaves: Some("rope_interleave"),
    eps: 1e-5,
    ..LatentLike::PLAIN
});
