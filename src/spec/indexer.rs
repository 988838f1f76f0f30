//! The indexer of sparse attention: it scores every key for every query, and attention sees only the keys that it picks.

use attnscope_compute::attention::RopeSpec;

use super::source::{LinearSource, NormSource};

/// An indexer (DeepSeek-AI 2025, DeepSeek-V3.2). How many keys it picks is part of the attention's spec.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexerSpec {
    pub n_heads: usize,
    /// Width of its queries, and of its key, which all its heads share.
    pub d_head: usize,
    /// Whether each head's score has a weight of its own, and the weighted scores are summed.
    pub is_weighted: bool,
    pub source: IndexSource,
}

impl IndexerSpec {
    /// Number of values per position: queries, the key, and weights.
    pub fn width(&self) -> usize {
        let n_weights = if self.is_weighted { self.n_heads } else { 0 };
        (self.n_heads + 1) * self.d_head + n_weights
    }
}

/// Where an indexer takes its queries, keys and weights from.
#[derive(Debug, Clone, PartialEq)]
pub enum IndexSource {
    Own {
        maps: Box<IndexMaps>,
        /// Keeps its values for later layers, from this column on of the kept part of a row.
        column: Option<usize>,
    },
    /// Takes the values of an earlier layer, so that both pick the same keys.
    Reuses { layer_idx: usize, column: usize },
}

/// The maps of an indexer, and what is applied to their outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexMaps {
    /// Reads the latent that the attention's queries are projected from; its input, if there is no such latent.
    /// // [n_heads · d_head]
    pub q: LinearSource,
    /// [d_head]
    pub k: LinearSource,
    /// [n_heads]
    pub weights: Option<LinearSource>,
    /// Norms before rope, per head.
    pub q_norm: Option<NormSource>,
    pub k_norm: Option<NormSource>,
    pub rope: Option<RopeSpec>,
}

impl IndexMaps {
    pub(super) fn linears_mut(&mut self) -> impl Iterator<Item = &mut LinearSource> {
        [&mut self.q, &mut self.k]
            .into_iter()
            .chain(&mut self.weights)
    }

    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormSource> {
        self.q_norm.iter_mut().chain(&mut self.k_norm)
    }
}
