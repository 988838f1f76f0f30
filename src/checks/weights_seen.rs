//! Results of examining the weights alone, for checks that need no text.

use attnscope_spec::Place;

/// Results on the weights of a checkpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Weights {
    /// Layers, in the order of execution.
    pub layers: Vec<LayerWeights>,
    /// Pairs of layers with equal matrices: the later layer, and the earlier one.
    pub copies: Vec<LayerCopy>,
    /// Matrices, or parts of them, that are exactly 0.
    pub zeros: Vec<ZeroWeights>,
    /// Tensors with values at the limit of their element type.
    pub saturated: Vec<SaturatedTensor>,
    /// Stored tensors that the model never reads, except those known not to be weights.
    pub unread: Vec<UnreadTensor>,
    /// Descriptions of differences between the weight files.
    pub stale_shards: Vec<String>,
    pub n_files: usize,
}

/// Signs of training in one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerWeights {
    pub place: Place,
    /// The largest singular value of any matrix, relative to that of a random matrix with the same entry variance; `None` if
    /// gains or biases prove training, or if there is no matrix.
    pub edge_ratio: Option<f64>,
    /// How far above 1 the ratio of a random matrix of this size can be by chance.
    pub chance: f64,
    pub n_matrices: usize,
    /// Number of gains that are 1 and biases that are 0.
    pub n_neutral: usize,
}

/// Two layers with equal matrices.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerCopy {
    pub place: Place,
    pub of: Place,
    /// The equal tensors.
    pub tensors: Vec<String>,
    /// Whether all matrices of the layers are equal, not only those of a part.
    pub is_whole: bool,
}

/// Weights that are exactly 0.
#[derive(Debug, Clone, PartialEq)]
pub struct ZeroWeights {
    pub place: Place,
    pub tensor: String,
    /// The part of the matrix that is 0; empty for the whole matrix.
    pub part: String,
}

/// A tensor with values at the limit of its element type.
#[derive(Debug, Clone, PartialEq)]
pub struct SaturatedTensor {
    pub place: Place,
    pub tensor: String,
    pub dtype: String,
    /// Number of values at the largest finite number, of either sign.
    pub n_largest: usize,
    pub n_infinite: usize,
    pub n_values: usize,
    pub largest: f64,
}

/// Why a stored tensor that is never read matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnreadKind {
    /// LoRA or other adapters that should be merged into the weights.
    Adapter,
    /// A bias, gain or matrix of a layer that is used.
    OfLayer,
    /// A layer beyond the configured number.
    BeyondLayers,
    /// A stored unembedding, although the configuration ties it to the embedding.
    Unembedding,
    Unknown,
}

/// A stored tensor that is never read.
#[derive(Debug, Clone, PartialEq)]
pub struct UnreadTensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub kind: UnreadKind,
    /// The layer that it belongs to, if its name says so.
    pub place: Place,
}
