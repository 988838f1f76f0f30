//! Additions to the query, key and value maps of some attentions: latent vectors, and learned vectors per distance.

use super::source::{LinearSource, NormSource, TableSource};

/// Queries, keys and values projected through narrow latent vectors (DeepSeek-AI 2024, arXiv 2405.04434).
#[derive(Debug, Clone, PartialEq)]
pub struct LatentSpec {
    /// Hidden → the latent that queries are projected from; if `None`, queries are projected from the input.
    pub q: Option<(LinearSource, NormSource)>,
    /// Hidden → the latent that keys and values are projected from.
    pub kv: LinearSource,
    pub kv_norm: NormSource,
    /// Hidden → the rotary part of a key, shared by all heads.
    pub shared_key: LinearSource,
}

/// Learned vectors per distance, and the maps that turn them into keys and queries.
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeSource {
    pub embeddings: TableSource,
    pub norm: Option<NormSource>,
    /// Maps them to keys, which are multiplied with queries.
    pub key: Option<LinearSource>,
    /// Maps them to queries, which are multiplied with keys.
    pub query: Option<LinearSource>,
}
