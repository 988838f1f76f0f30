//! What stands beside the maps of queries, keys and values in some attentions: latent vectors, and learned vectors of distances.

use super::source::{LinearSource, NormSource, TableSource};

/// Queries, keys and values through narrow latent vectors (DeepSeek-AI 2024, arXiv 2405.04434).
#[derive(Debug, Clone, PartialEq)]
pub struct LatentSpec {
    /// Hidden → the latent that queries are projected from; queries come from the input where there is none.
    pub q: Option<(LinearSource, NormSource)>,
    /// Hidden → the latent that keys and values are projected from.
    pub kv: LinearSource,
    pub kv_norm: NormSource,
    /// Hidden → the part of a key that all heads share, and that rotates.
    pub shared_key: LinearSource,
}

/// Learned vectors of distances, and the maps that make keys and queries of them.
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeSource {
    pub embeddings: TableSource,
    pub norm: Option<NormSource>,
    /// Makes what queries are multiplied with.
    pub key: Option<LinearSource>,
    /// Makes what keys are multiplied with.
    pub query: Option<LinearSource>,
}
