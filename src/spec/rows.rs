//! Rows that hold more than one residual: several streams, and keys and values shared between layers.

use super::source::{LinearSource, NormSource};

/// What the rows of a stack hold.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSpec {
    pub d_model: usize,
    /// How further streams begin and end.
    pub streams: Option<StreamMaps>,
    /// Columns behind the streams, for keys and values that layers leave.
    pub n_kept: usize,
}

impl RowSpec {
    pub fn n_streams(&self) -> usize {
        1 + self.streams.as_ref().map_or(0, |maps| maps.first.len())
    }

    /// Values of a row.
    pub fn width(&self) -> usize {
        self.n_streams() * self.d_model + self.n_kept
    }
}

/// What a block does with a row that holds more than its residual.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockRow {
    pub d_model: usize,
    /// How it mixes several streams; the first is the only one where it does not.
    pub streams: Option<StreamsSpec>,
    /// Columns behind the streams.
    pub n_kept: usize,
}

impl BlockRow {
    /// Streams of a row; 1 where the block does not mix several.
    pub fn n_streams(&self) -> usize {
        self.streams.as_ref().map_or(1, |streams| streams.n)
    }

    /// The stream that the block works on.
    pub fn active(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.active)
    }
}

/// Keys and values that layers share. They are kept behind their norms, before they are rotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySharing {
    /// Later layers take them, from these columns of what a row keeps on.
    Left(usize),
    /// They are those of an earlier layer.
    Taken {
        layer_idx: usize,
        column: usize,
        /// Tensors of the layer's own that a file may hold, and nobody reads.
        in_vain: Vec<String>,
    },
}

/// How a block predicts and corrects streams. Both maps read tanh(router(norm(x))).
#[derive(Debug, Clone, PartialEq)]
pub struct StreamsSpec {
    pub n: usize,
    /// The stream that the block works on.
    pub active: usize,
    pub router_norm: NormSource,
    /// d_model → n.
    pub router: LinearSource,
    /// n → n · n: how much of each stream is added to each.
    pub predict: LinearSource,
    /// n → n: how much of what the block changed is added to each stream, less 1.
    pub correct: LinearSource,
    /// Multiplies the corrected stream for the branch of the token. // [d_model]
    pub scale: Option<String>,
}

/// How further streams begin behind the embedding, and how they end before the final norm.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamMaps {
    /// d_model → d_model, one for each further stream.
    pub first: Vec<LinearSource>,
    /// d_model → d_model, one for each further stream.
    pub last: Vec<LinearSource>,
}

impl StreamsSpec {
    pub fn linears(&self) -> [&LinearSource; 3] {
        [&self.router, &self.predict, &self.correct]
    }
}
