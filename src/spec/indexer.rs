//! The indexer of sparse attention: it scores every key for every query, and attention sees only the keys that it picks.

use attnscope_compute::attention::RopeSpec;

use super::norm_source::NormSource;
use super::projected::HeadGrowth;
use super::source::LinearSource;

/// An indexer (DeepSeek-AI 2025, DeepSeek-V3.2). How many keys it picks is part of the attention's spec.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexerSpec {
    pub n_heads: usize,
    /// Width of its queries, and of its key, which all its heads share.
    pub d_head: usize,
    /// Whether the scores of all heads, those below 0 left out, are summed, each with its weight.
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
    /// Weights of heads; without the map, all heads of a weighted sum count alike. // [n_heads]
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

/// How the key of a pool follows from the keys in it.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolMaps {
    /// A weighted mean of keys behind norm and rope; shares are made of a map of the input, and a vector for each place in a pool.
    Weighted {
        /// Tokens of a pool.
        size: usize,
        /// [d_head]
        shares: Box<LinearSource>,
        /// [size, d_head]
        places: String,
    },
    /// The mean of keys; norm and rope come behind it, at the position of the pool's first token.
    Mean { size: usize },
}

impl PoolMaps {
    /// The map that shares are made of.
    pub fn shares(&self) -> Option<&LinearSource> {
        match self {
            Self::Weighted { shares, .. } => Some(shares),
            Self::Mean { .. } => None,
        }
    }
}

impl IndexMaps {
    pub(super) fn linears_mut(&mut self) -> impl Iterator<Item = &mut LinearSource> {
        [&mut self.q, &mut self.k]
            .into_iter()
            .chain(&mut self.weights)
            .chain(self.pools.iter_mut().filter_map(|pools| match pools {
                PoolMaps::Weighted { shares, .. } => Some(&mut **shares),
                PoolMaps::Mean { .. } => None,
            }))
    }

    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormSource> {
        let queries = self.q_pre.iter_mut().chain(&mut self.q_norm);
        queries.chain(&mut self.k_norm)
    }
}
