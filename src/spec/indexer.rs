//! The indexer of sparse attention: it scores every key for every query, and attention sees only the keys that it picks.

use attnscope_compute::attention::RopeSpec;

use super::projected::HeadGrowth;
use super::source::{LinearSource, NormSource};

/// An indexer (DeepSeek-AI 2025, DeepSeek-V3.2). How many keys it picks is part of the attention's spec.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexerSpec {
    pub n_heads: usize,
    /// Width of its queries, and of its key, which all its heads share.
    pub d_head: usize,
    /// Whether each head's score has a weight of its own, and the weighted scores are summed.
    pub is_weighted: bool,
    /// Whether keys are pooled: each is followed by as many values, of which shares are made.
    pub is_pooled: bool,
    pub source: IndexSource,
}

impl IndexerSpec {
    /// Number of values of a key, with those of which its shares are made.
    pub fn d_key(&self) -> usize {
        if self.is_pooled {
            2 * self.d_head
        } else {
            self.d_head
        }
    }

    /// Number of values per position: queries, the key, and weights.
    pub fn width(&self) -> usize {
        let n_weights = if self.is_weighted { self.n_heads } else { 0 };
        self.n_heads * self.d_head + self.d_key() + n_weights
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
    /// A norm of what queries are projected from.
    pub q_pre: Option<NormSource>,
    pub q_growth: Option<Box<HeadGrowth>>,
    /// Norms before rope, per head.
    pub q_norm: Option<NormSource>,
    pub k_norm: Option<NormSource>,
    pub rope: Option<RopeSpec>,
    pub pools: Option<PoolMaps>,
}

/// What the shares of keys in their pool's key are made of: a map of the input, and a vector for each place in a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolMaps {
    /// Tokens of a pool.
    pub size: usize,
    /// [d_head]
    pub shares: LinearSource,
    /// [size, d_head]
    pub places: String,
}

impl IndexMaps {
    pub(super) fn linears_mut(&mut self) -> impl Iterator<Item = &mut LinearSource> {
        [&mut self.q, &mut self.k]
            .into_iter()
            .chain(&mut self.weights)
            .chain(self.pools.iter_mut().map(|pools| &mut pools.shares))
    }

    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormSource> {
        let queries = self.q_pre.iter_mut().chain(&mut self.q_norm);
        queries.chain(&mut self.k_norm)
    }
}
