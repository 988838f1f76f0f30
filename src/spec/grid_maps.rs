//! What reads the grid of a picture's patches inside a block, as data: coarser keys, and convolutions of a feed-forward layer.

use attnscope_compute::ops::Activation;

use super::block::BlockSpec;
use super::feed_forward::FeedForward;
use super::planes::PlaneConvolution;
use super::source::{LinearSource, NormSource};

/// How keys and values are read of a coarser grid than queries (spatial reduction, Wang et al. 2021, arXiv 2102.12122): the input of
/// the attention passes through a convolution over its patches.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyReduction {
    /// Set if the means of this many bins of rows, and of columns, are taken before.
    pub n_bins: Option<usize>,
    pub convolution: PlaneConvolution,
    /// A norm of each row behind the convolution.
    pub norm: NormSource,
    /// Follows the norm.
    pub activation: Option<Activation>,
}

impl KeyReduction {
    /// Rows and columns of keys, given those of queries.
    pub fn to(&self, grid: [usize; 2]) -> [usize; 2] {
        self.convolution.to(self.n_bins.map_or(grid, |n| [n; 2]))
    }

    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let bins = match self.n_bins {
            Some(n) => format!("means of {n} × {n} bins, "),
            None => String::new(),
        };
        let activation = match self.activation {
            Some(activation) => format!(", {activation}"),
            None => String::new(),
        };
        format!("{bins}convolution {}{activation}", self.convolution.words())
    }
}

/// A convolution over the grid of patches of the hidden vectors of a feed-forward layer, before its activation (Mix-FFN, Xie et al.
/// 2021, arXiv 2105.15203).
#[derive(Debug, Clone, PartialEq)]
pub struct HiddenConvolution {
    /// Comes before the convolution.
    pub before: Option<Activation>,
    pub convolution: PlaneConvolution,
}

impl HiddenConvolution {
    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let words = self.convolution.words();
        match self.before {
            Some(before) => format!("{before}, {words}"),
            None => words,
        }
    }
}

impl BlockSpec {
    /// How the block's keys are read of a coarser grid; `None` if they are those of its positions.
    pub fn key_reduction(&self) -> Option<&KeyReduction> {
        self.own()?.projections.reduced.as_deref()
    }

    /// Whether a row of the feed-forward layer depends on the patches around it.
    pub fn mixes_in_feed_forward(&self) -> bool {
        self.feed_forward.mixes_patches()
    }
}

impl FeedForward {
    /// Whether a row depends on others: through a convolution over the patches of a picture, or over rows.
    pub fn mixes(&self) -> bool {
        self.mixes_patches() || self.mixes_rows()
    }

    fn mixes_patches(&self) -> bool {
        matches!(self, Self::Dense(mlp) if mlp.convolution.is_some())
    }

    /// Whether a map reads the rows around each.
    pub fn mixes_rows(&self) -> bool {
        let reads = |map: &LinearSource| map.over_rows().is_some();
        matches!(self, Self::Dense(mlp) if reads(&mlp.up) || reads(&mlp.down))
    }
}
