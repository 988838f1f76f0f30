//! DeepSeek V3.2: DeepSeek V3 whose attention sees only the keys that an indexer picks.

use super::reading::experts::{ExpertsKeys, SparseLayers};
use super::reading::indexer::IndexerKeys;
use super::reading::latent::LatentLike;
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::latent("deepseek_v32", "DeepseekV32", || LatentLike {
    experts: ExpertsKeys {
        layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 3),
        ..deepseek_v3::EXPERTS
    },
    indexer: Some(IndexerKeys {
        interleaved: false,
        ..IndexerKeys::PLAIN
    }),
    ..LatentLike::PLAIN
});
