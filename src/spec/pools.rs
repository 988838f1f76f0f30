//! Keys of pools: behind the keys of all tokens stands one for each pool of some tokens, which one softmax sees together with those of the
//! tokens nearby.

use attnscope_compute::attention::RopeSpec;

use super::norm_source::NormSource;
use super::source::LinearSource;

/// Keys of pools (compressed keys, DeepSeek-AI 2026, DeepSeek-V4). Which queries see a pool is part of the attention's mask. Its key is its value too, and turns with the position of its first token.
#[derive(Debug, Clone, PartialEq)]
pub struct PooledKeys {
    /// Tokens of a pool, as in the mask.
    pub size: usize,
    pub source: PoolSource,
    /// Set if an indexer picks among the pools; how many is part of the attention's spec.
    pub picks: Option<Box<PoolPicks>>,
}

/// What makes one vector of the tokens of a pool: norm(Σ share · value), where shares are, column by column, a softmax over the pool of
/// what a map of each token gives, and of a stored value of its place in the pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolSource {
    /// // [d], or [2 · d] if pools overlap
    pub values: LinearSource,
    /// As wide as values.
    pub shares: LinearSource,
    /// // [place, width of values]
    pub places: String,
    /// Of d values.
    pub norm: NormSource,
}

impl PoolSource {
    /// Width of what a pool becomes.
    pub fn width(&self) -> usize {
        self.norm.width
    }

    /// Whether a pool is made of the tokens of the pool before it too: the first half of their columns counts there, the second in their
    /// own pool.
    pub fn overlaps(&self) -> bool {
        self.values.n_out() == 2 * self.width()
    }

    fn linears_mut(&mut self) -> [&mut LinearSource; 2] {
        [&mut self.values, &mut self.shares]
    }
}

/// An indexer of pools: Σ over its heads of weight · max(0, q·k), where k is a vector of the pool made for it alone.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolPicks {
    pub n_heads: usize,
    /// Reads what the attention's queries are made of. // [n_heads · d_head]
    pub q: LinearSource,
    /// Weights of heads. // [n_heads]
    pub weights: LinearSource,
    pub keys: PoolSource,
    /// Turns its queries, and its keys.
    pub rope: RopeSpec,
}

impl PooledKeys {
    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let overlap = |source: &PoolSource| {
            if source.overlaps() {
                "of two pools"
            } else {
                "of its tokens"
            }
        };
        let own = overlap(&self.source);
        match &self.picks {
            Some(picks) => format!(
                "keys of tokens, then of pools, each made {own}; {} index heads of {} pick pools by keys made {}",
                picks.n_heads,
                picks.keys.width(),
                overlap(&picks.keys)
            ),
            None => format!("keys of tokens, then of pools, each made {own}"),
        }
    }

    /// The maps, mutable.
    pub(super) fn linears_mut(&mut self) -> impl Iterator<Item = &mut LinearSource> {
        let picks = self.picks.as_deref_mut().map(|picks| {
            let of_keys = picks.keys.linears_mut();
            [&mut picks.q, &mut picks.weights]
                .into_iter()
                .chain(of_keys)
        });
        let own = self.source.linears_mut().into_iter();
        own.chain(picks.into_iter().flatten())
    }

    /// The norms, mutable.
    pub(super) fn norms_mut(&mut self) -> impl Iterator<Item = &mut NormSource> {
        let picks = self.picks.as_deref_mut();
        [&mut self.source.norm]
            .into_iter()
            .chain(picks.map(|picks| &mut picks.keys.norm))
    }

    /// What makes vectors of pools, each with its name.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&'static str, &PoolSource)> {
        let picks = self.picks.as_deref();
        [("pools", &self.source)]
            .into_iter()
            .chain(picks.map(|picks| ("index_pools", &picks.keys)))
    }
}
