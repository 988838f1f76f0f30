//! Rows that hold more than one residual: several streams, and keys and values shared between layers.

use super::feed_forward::FeedForward;
use super::source::{LinearSource, NormSource};

/// Layout of the rows of a stack.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSpec {
    pub d_model: usize,
    /// How the additional streams are created and merged.
    pub streams: Option<StreamMaps>,
    /// Number of columns after the streams, for keys and values kept for later layers.
    pub n_kept: usize,
}

impl RowSpec {
    pub fn n_streams(&self) -> usize {
        1 + self.streams.as_ref().map_or(0, |maps| maps.first.len())
    }

    /// Number of values in a row.
    pub fn width(&self) -> usize {
        self.n_streams() * self.d_model + self.n_kept
    }
}

/// How a block reads and writes a row that holds more than its residual.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockRow {
    pub d_model: usize,
    /// How it mixes the streams; `None` if it only uses the first.
    pub streams: Option<StreamsSpec>,
    /// Number of columns after the streams.
    pub n_kept: usize,
    /// A branch that begins in one block and ends in a later one.
    pub shortcut: Option<Shortcut>,
}

/// A second feed-forward layer whose output joins the residual in a later block (a shortcut). It is kept in the first columns after the
/// streams until then.
#[derive(Debug, Clone, PartialEq)]
pub enum Shortcut {
    /// The layer reads what the block's own feed-forward layer reads.
    Begins(Box<FeedForward>),
    /// What an earlier block kept is added to the output of the block's own feed-forward layer.
    Ends,
}

impl BlockRow {
    /// The feed-forward layer of a shortcut that begins in the block.
    pub fn begun(&self) -> Option<&FeedForward> {
        match &self.shortcut {
            Some(Shortcut::Begins(layer)) => Some(layer),
            Some(Shortcut::Ends) | None => None,
        }
    }

    /// Number of streams of a row; 1 if the block does not mix several.
    pub fn n_streams(&self) -> usize {
        self.streams.as_ref().map_or(1, |streams| streams.n)
    }

    /// The stream that the block works on.
    pub fn active(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.active)
    }
}

/// Keys and values shared between layers. They are stored after their norms, before rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvSharing {
    /// Keeps its keys and values for later layers, from this column on of the kept part of a row.
    Provides(usize),
    /// Reads the keys and values of an earlier layer.
    Reuses {
        layer_idx: usize,
        column: usize,
        /// The layer's own key and value tensors, which a file may hold but nothing reads.
        unread_tensors: Vec<String>,
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
    /// n → n · n: how much of each stream is added to each stream.
    pub predict: LinearSource,
    /// n → n: how much of the block's change is added to each stream, minus 1.
    pub correct: LinearSource,
    /// Multiplies the corrected stream before the per-token branch reads it. // [d_model]
    pub scale: Option<String>,
}

/// How additional streams are created from the embedding, and merged before the final norm.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamMaps {
    /// d_model → d_model, one per additional stream.
    pub first: Vec<LinearSource>,
    /// d_model → d_model, one per additional stream.
    pub last: Vec<LinearSource>,
}

impl StreamsSpec {
    pub fn linears(&self) -> [&LinearSource; 3] {
        [&self.router, &self.predict, &self.correct]
    }
}
