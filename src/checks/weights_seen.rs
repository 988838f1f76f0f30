//! What a look at the weights alone showed, for checks that need no text.

use attnscope_spec::Place;

/// What the weights of a checkpoint show.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Weights {
    /// In the order in which they run.
    pub layers: Vec<LayerWeights>,
    /// Pairs of layers with equal matrices: the later one, and the earlier one that it equals.
    pub copies: Vec<LayerCopy>,
    /// Matrices, or parts of them, that are exactly 0.
    pub zeros: Vec<ZeroWeights>,
    /// Tensors with values at the end of what their element type holds.
    pub saturated: Vec<SaturatedTensor>,
    /// Stored tensors that the model never reads, without those that are known to be no weights.
    pub unread: Vec<UnreadTensor>,
    /// What differs between the files that the weights lie in, in words.
    pub stale_shards: Vec<String>,
    pub n_files: usize,
}

/// One layer: whether it is as a random initialisation leaves it.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerWeights {
    pub place: Place,
    /// The largest singular value of any matrix, divided by that of a random matrix with the same entry variance; `None` where
    /// gains or biases show that the layer was trained, or where it has no matrix.
    pub edge_ratio: Option<f64>,
    /// How far above 1 the ratio of a random matrix of this size may lie by chance.
    pub chance: f64,
    pub n_matrices: usize,
    /// Gains that are 1 and biases that are 0.
    pub n_neutral: usize,
}

/// Two layers with equal matrices.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerCopy {
    pub place: Place,
    pub of: Place,
    /// The tensors that are equal.
    pub tensors: Vec<String>,
    /// All matrices of the layers are, not only those of a part.
    pub is_whole: bool,
}

/// Weights that are exactly 0.
#[derive(Debug, Clone, PartialEq)]
pub struct ZeroWeights {
    pub place: Place,
    pub tensor: String,
    /// Empty for the whole matrix: which part.
    pub part: String,
}

/// A tensor with values at the end of its element type.
#[derive(Debug, Clone, PartialEq)]
pub struct SaturatedTensor {
    pub place: Place,
    pub tensor: String,
    pub dtype: String,
    /// Values at the largest finite number, of either sign.
    pub n_largest: usize,
    pub n_infinite: usize,
    pub n_values: usize,
    pub largest: f64,
}

/// Why a stored tensor that is never read matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnreadKind {
    /// Low-rank or other adapters that belong into the weights.
    Adapter,
    /// A bias, gain or matrix of a layer that runs.
    OfLayer,
    /// A layer beyond those that the configuration names.
    BeyondLayers,
    /// An unembedding that is stored, while the configuration ties it to the embedding.
    Unembedding,
    Unknown,
}

/// A stored tensor that is never read.
#[derive(Debug, Clone, PartialEq)]
pub struct UnreadTensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub kind: UnreadKind,
    /// The layer that it belongs to, where its name says so.
    pub place: Place,
}
