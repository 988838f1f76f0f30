//! Additions to the query, key and value maps of some attentions: latent vectors, and learned vectors per distance.

use super::embed::Sines;
use super::norm_source::NormSource;
use super::source::{LinearSource, TableSource};

/// Queries, keys and values projected through narrow latent vectors (DeepSeek-AI 2024, arXiv 2405.04434).
#[derive(Debug, Clone, PartialEq)]
pub struct LatentSpec {
    /// Hidden → the latent that queries are projected from; if `None`, queries are projected from the input.
    pub q: Option<(LinearSource, NormSource)>,
    /// Queries and the gate of heads read the latent behind its norm and, after it, the latent before its norm.
    pub q_reads_both: bool,
    /// Hidden → the latent that keys and values are projected from.
    pub kv: LinearSource,
    pub kv_norm: NormSource,
    /// Hidden → the part of a key that all heads share, which rotates; `None` if there is no such part.
    pub shared_key: Option<LinearSource>,
    pub shared_key_norm: Option<NormSource>,
    pub shared: Option<LatentSharing>,
}

/// Where the latent of keys and values goes to, or comes from, with the part of keys that all heads share, before it rotates. They
/// are kept in a row, from this column on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatentSharing {
    Leaves {
        column: usize,
    },
    /// The maps to the latent and its norm are those of the layer that leaves it.
    Takes {
        layer_idx: usize,
        column: usize,
    },
}

/// Learned growth of queries with their position, by head: each is multiplied by scale · ln(position + 1) + bias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadGrowth {
    /// [head] each
    pub scale: String,
    pub bias: String,
    pub n_heads: usize,
}

impl HeadGrowth {
    /// The stored vectors, with their names.
    pub fn vectors(&self) -> [(&'static str, &String); 2] {
        [("scale", &self.scale), ("bias", &self.bias)]
    }
}

/// Learned factors of scores by head: e to the power of a stored value, but at most so large.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadScales {
    /// [head, 1, 1]
    pub logarithms: String,
    pub n_heads: usize,
    pub most: f32,
}

impl HeadScales {
    /// The shape of the stored values.
    pub fn shape(&self) -> Vec<usize> {
        vec![self.n_heads, 1, 1]
    }
}

/// Values by both distances and head.
#[derive(Debug, Clone, PartialEq)]
pub enum PairValues {
    /// [step in rows · step in columns, head]
    Stored(TableSource),
    /// A small network makes them of both distances.
    Made(Box<MadeValues>),
}

/// A network that makes a value by head of a distance in rows and one in columns, each on a logarithmic scale: most · sigmoid(down(relu(up))).
#[derive(Debug, Clone, PartialEq)]
pub struct MadeValues {
    /// 2 → hidden.
    pub up: LinearSource,
    /// hidden → n_heads.
    pub down: LinearSource,
    /// The numbers of distances in rows and in columns.
    pub n_steps: [usize; 2],
    /// The distance that is read as 8: the farthest in a window, in training or here.
    pub farthest: usize,
    pub most: f32,
}

/// A bias of keys: e^(strength · softplus(map of all values of the key's position)), for each head of keys.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueBiasSource {
    /// n_kv_heads · d_value → n_kv_heads.
    pub map: LinearSource,
    /// [n_kv_heads]
    pub strengths: String,
}

/// Vectors per distance.
#[derive(Debug, Clone, PartialEq)]
pub enum DistanceRows {
    /// Learned ones.
    Stored(TableSource),
    /// Sines and cosines of the distance query − key; the first row is that of −n_rows / 2.
    Sines {
        n_rows: usize,
        width: usize,
        order: Sines,
    },
    /// Learned ones of all heads, as keys. Distances beyond the table share its first or its last row.
    Shared {
        /// [distance, d_head]
        table: TableSource,
        n_heads: usize,
        /// The row of distance 0.
        middle: usize,
        /// Whether rows are in the order of the distance key − query, not query − key.
        is_reversed: bool,
        /// Number of distances to either side.
        span: usize,
        /// Whether texts with farther distances than the table has are refused.
        limits: bool,
    },
}

impl DistanceRows {
    /// Whether there are vectors up to some distance, and no text may have farther ones.
    pub fn limits(&self) -> bool {
        match self {
            Self::Stored(_) => false,
            Self::Sines { .. } => true,
            Self::Shared { limits, .. } => *limits,
        }
    }

    /// The table, if the vectors are learned.
    pub fn table(&self) -> Option<&TableSource> {
        match self {
            Self::Stored(table) | Self::Shared { table, .. } => Some(table),
            Self::Sines { .. } => None,
        }
    }
}

/// Two biases of queries (Dai et al. 2019, arXiv 1901.02860).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryBiases {
    /// The bias of the map of queries, which meets keys; `None` if it meets vectors of distances as well. // [head, d_head]
    pub of_keys: Option<String>,
    /// Meets vectors of distances in its place, or beside it. // [head, d_head]
    pub of_distances: String,
    pub n_heads: usize,
    pub d_head: usize,
}

/// Vectors per distance, and the maps that turn them into keys and queries.
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeSource {
    pub embeddings: DistanceRows,
    pub norm: Option<NormSource>,
    /// Maps them to keys, which are multiplied with queries.
    pub key: Option<LinearSource>,
    /// Maps them to queries, which are multiplied with keys.
    pub query: Option<LinearSource>,
    /// Set if queries meet keys and distances with biases of their own.
    pub biases: Option<QueryBiases>,
}

impl RelativeSource {
    /// Vectors that queries meet as they are stored.
    pub fn plain(embeddings: DistanceRows) -> Self {
        Self {
            embeddings,
            norm: None,
            key: None,
            query: None,
            biases: None,
        }
    }
}

/// Vectors per distance in rows and in columns of a picture, shared by all heads, or values of each head. An empty place of a window holds the biases of the
/// maps of keys and values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepSource {
    /// Of rows and of columns; `None` if distances add nothing. // [step, d_head] each
    pub tables: Option<[TableSource; 2]>,
    /// Values in place of vectors.
    pub pairs: Option<PairValues>,
    /// Whether some windows reach beyond the picture.
    pub has_empty_places: bool,
}

/// Factors of a learned bias by distance, computed from what an attention reads.
#[derive(Debug, Clone, PartialEq)]
pub enum BiasGate {
    /// One factor of each query and head: a · (b · scale − 1) + 2, where a and b are the sigmoids of two sums of a map of the head's
    /// part of the input.
    Shares(ShareGate),
    /// How much of each profile of distances each query and head has: the outputs of a map. They grow with the position as queries do.
    Profiles(ProfileGate),
    /// The values of all buckets of distances, which have no table: the outputs of a map. // d_model → bucket · n_heads
    Values(ProfileGate),
}

/// The gate that gives one factor of each query and head.
#[derive(Debug, Clone, PartialEq)]
pub struct ShareGate {
    /// The map of one head's part, the same for all: the first half of its outputs are summed for a, the others for b.
    pub map: LinearSource,
    /// [1, head, 1, 1]
    pub scales: String,
    pub n_heads: usize,
}

/// The map to the share of each profile, or to the value of each bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileGate {
    /// d_model → n_heads · profile
    pub map: LinearSource,
}

impl ShareGate {
    /// The shape of the stored scales.
    pub fn scales_shape(&self) -> Vec<usize> {
        vec![1, self.n_heads, 1, 1]
    }
}

impl BiasGate {
    pub fn map(&self) -> &LinearSource {
        match self {
            Self::Shares(gate) => &gate.map,
            Self::Profiles(gate) | Self::Values(gate) => &gate.map,
        }
    }

    pub fn map_mut(&mut self) -> &mut LinearSource {
        match self {
            Self::Shares(gate) => &mut gate.map,
            Self::Profiles(gate) | Self::Values(gate) => &mut gate.map,
        }
    }

    /// Number of values that the gate reads of each row.
    pub fn d_model(&self) -> usize {
        match self {
            Self::Shares(gate) => gate.n_heads * gate.map.n_in,
            Self::Profiles(gate) | Self::Values(gate) => gate.map.n_in,
        }
    }
}
