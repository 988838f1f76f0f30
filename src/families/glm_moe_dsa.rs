//! GLM 5: latent attention that sees only the keys that an indexer picks; some layers share the picks of an earlier one.

use super::reading::experts::GroupKeys;
use super::reading::experts::{ExpertsKeys, SparseLayers};
use super::reading::indexer::IndexerKeys;
use super::reading::latent::LatentLike;
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::latent("glm_moe_dsa", "GlmMoeDsa", || LatentLike {
    experts: ExpertsKeys {
        groups: Some(GroupKeys::if_stated(2)),
        layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 3),
        ..deepseek_v3::EXPERTS
    },
    indexer: Some(IndexerKeys {
        interleaved: true,
        shares: Some(1),
        ..IndexerKeys::PLAIN
    }),
    eps: 1e-5,
    ..LatentLike::PLAIN
});
