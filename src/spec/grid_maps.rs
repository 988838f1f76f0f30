//! What reads other rows than its own inside a block, as data: keys of another grid of a picture's patches than queries, keys of two
//! stacks, and convolutions of a feed-forward layer.

use attnscope_compute::ops::Activation;

use super::block::BlockSpec;
use super::feed_forward::FeedForward;
use super::norm_source::NormSource;
use super::planes::PlaneConvolution;
use super::pools::PooledKeys;
use super::source::LinearSource;

/// How keys and values are read of other rows than queries: mostly, of another grid of patches.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyGrid {
    Coarser(KeyReduction),
    Finer(QueryPooling),
    /// Queries, keys and values each pass through a convolution of their own.
    Convolved(Box<ConvolvedInputs>),
    /// Keys are the rows of the encoder, and behind them those of the layer.
    OfBoth(KeysOfBoth),
    /// Keys are those of the rows, and behind them those of pools.
    Pooled(Box<PooledKeys>),
}

/// How an attention of a decoder sees the rows of the encoder and its own in one softmax (Perceiver Resampler, Alayrac et al. 2022,
/// arXiv 2204.14198). The norm before the attention reads its own rows.
#[derive(Debug, Clone, PartialEq)]
pub struct KeysOfBoth {
    /// A norm of the encoder's rows.
    pub norm: NormSource,
}

impl KeyGrid {
    /// Rows and columns of keys, given those of queries.
    pub fn to(&self, grid: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Coarser(reduction) => reduction.to(grid),
            Self::Finer(pooling) => grid.map(|n| n * pooling.side),
            Self::Convolved(inputs) => inputs.keys.convolution.to(grid),
            Self::OfBoth(_) | Self::Pooled(_) => grid,
        }
    }

    /// The norm of the encoder's rows, where keys are of both stacks.
    pub fn of_both(&self) -> Option<&KeysOfBoth> {
        match self {
            Self::OfBoth(both) => Some(both),
            Self::Coarser(_) | Self::Finer(_) | Self::Convolved(_) | Self::Pooled(_) => None,
        }
    }

    /// The keys of pools, where such stand behind those of the rows.
    pub fn pooled(&self) -> Option<&PooledKeys> {
        match self {
            Self::Pooled(pooled) => Some(pooled),
            Self::Coarser(_) | Self::Finer(_) | Self::Convolved(_) | Self::OfBoth(_) => None,
        }
    }

    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        match self {
            Self::Coarser(reduction) => reduction.words(),
            Self::Finer(pooling) => pooling.words(),
            Self::Convolved(inputs) => inputs.words(),
            Self::OfBoth(_) => "rows of the encoder before its own".to_owned(),
            Self::Pooled(pooled) => pooled.words(),
        }
    }
}

/// The convolutions that an attention reads its patches through (Wu et al. 2021, arXiv 2103.15808). Learned tokens before the patches
/// pass by.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolvedInputs {
    /// Leaves as many queries as there are patches.
    pub queries: ConvolvedInput,
    pub keys: ConvolvedInput,
    /// As many as keys.
    pub values: ConvolvedInput,
}

/// A convolution over patches, and a norm behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvolvedInput {
    pub convolution: PlaneConvolution,
    pub norm: NormSource,
}

impl ConvolvedInputs {
    /// Each of them with its name.
    pub fn each(&self) -> [(&'static str, &ConvolvedInput); 3] {
        [
            ("queries", &self.queries),
            ("keys", &self.keys),
            ("values", &self.values),
        ]
    }

    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let each = self.each();
        let each = each.map(|(name, of)| format!("{name}: {}", of.convolution.words()));
        each.join(", ")
    }
}

/// How queries are pooled of the finer grid that keys have (Ryali et al. 2023, arXiv 2306.00989). A row of the block holds the patches of
/// a square side by side, row after row, and is what [`Joining::SideBySide`](super::Joining) gives. The norm before the attention, and
/// its maps, read each patch by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryPooling {
    /// Rows, and columns, of keys to one query: the largest values of a square of queries are kept.
    pub side: usize,
    /// Makes the residual of normed patches, of which the largest values of a square are kept too.
    pub residual: LinearSource,
}

impl QueryPooling {
    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let side = self.side;
        format!("patches of which {side} × {side} make a query")
    }
}

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
    /// How the block's keys are read of another grid; `None` if they are those of its positions.
    pub fn key_grid(&self) -> Option<&KeyGrid> {
        self.own()?.projections.key_grid.as_deref()
    }

    /// How the block's queries and residual are pooled of a finer grid; `None` if they are those of its rows.
    pub fn query_pooling(&self) -> Option<&QueryPooling> {
        self.own()?.projections.query_pooling()
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
