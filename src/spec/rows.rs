//! Rows that hold more than one residual: several streams, and keys and values shared between layers.

use super::feed_forward::FeedForward;
use super::hyper::{FoldSpec, HyperSpec};
use super::norm_source::NormSource;
use super::side_stream::KeptStart;
use super::source::LinearSource;

/// Layout of the rows of a stack.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSpec {
    pub d_model: usize,
    /// How the additional streams are created and merged.
    pub streams: Option<StreamEnds>,
    /// Number of columns after the streams, for keys and values kept for later layers.
    pub n_kept: usize,
    /// What these columns hold before the first block.
    pub first: KeptStart,
}

impl RowSpec {
    pub fn n_streams(&self) -> usize {
        self.streams.as_ref().map_or(1, StreamEnds::n)
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
    /// Attention reads the residual and, beside it, the kept columns.
    pub beside: bool,
    /// A branch that begins in one block and ends in a later one.
    pub shortcut: Option<Shortcut>,
    /// Set if the block first adds the state beside its residual, which is the kept part of a row.
    pub join: Option<Join>,
}

/// What becomes of two states of a row where the second is added to the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// The second stays as it is.
    Adds,
    /// The second becomes what the first was.
    AddsAndSwaps,
}

impl Join {
    /// Adds the second state to the first. // both: [row, d_model]
    pub fn apply(self, first: &mut [f32], second: &mut [f32]) {
        for (first, second) in first.iter_mut().zip(second) {
            let was = *first;
            *first += *second;
            if self == Self::AddsAndSwaps {
                *second = was;
            }
        }
    }
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
    /// What a shortcut does in the block, in a word.
    pub fn shortcut_word(&self) -> &'static str {
        match self.shortcut {
            Some(Shortcut::Begins(_)) => "begins",
            Some(Shortcut::Ends) => "ends",
            None => "none",
        }
    }

    /// The feed-forward layer of a shortcut that begins in the block.
    pub fn begun(&self) -> Option<&FeedForward> {
        match &self.shortcut {
            Some(Shortcut::Begins(layer)) => Some(layer),
            Some(Shortcut::Ends) | None => None,
        }
    }

    /// The streams of a block that works on one of them.
    pub fn predicted(&self) -> Option<&PredictedStreams> {
        match &self.streams {
            Some(StreamsSpec::Predicted(streams)) => Some(streams),
            Some(StreamsSpec::Connected(_)) | None => None,
        }
    }

    /// The hyper-connections of a block that works on all streams.
    pub fn connected(&self) -> Option<&HyperSpec> {
        match &self.streams {
            Some(StreamsSpec::Connected(hyper)) => Some(hyper),
            Some(StreamsSpec::Predicted(_)) | None => None,
        }
    }

    /// Number of streams of a row; 1 if the block does not mix several.
    pub fn n_streams(&self) -> usize {
        self.streams.as_ref().map_or(1, StreamsSpec::n)
    }

    /// How the block mixes the streams, in words.
    pub fn stream_rule(&self) -> String {
        match &self.streams {
            None => "none".to_owned(),
            Some(StreamsSpec::Predicted(_)) => "alternating updates".to_owned(),
            Some(StreamsSpec::Connected(hyper)) => hyper.words(),
        }
    }

    /// The stream that the block works on.
    pub fn active(&self) -> usize {
        self.predicted().map_or(0, |streams| streams.active)
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
    /// Adds the values of an earlier layer to its own, times a stored number: a value residual (Zhou et al. 2024, arXiv 2410.17897).
    AddsValues {
        layer_idx: usize,
        column: usize,
        /// One value, without axes.
        share: String,
    },
}

/// How a block reads and writes several streams.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamsSpec {
    /// It works on one, from which it predicts and corrects all (AltUp).
    Predicted(Box<PredictedStreams>),
    /// Its branches read and write all (hyper-connections).
    Connected(Box<HyperSpec>),
}

impl StreamsSpec {
    pub fn n(&self) -> usize {
        match self {
            Self::Predicted(streams) => streams.n,
            Self::Connected(hyper) => hyper.n,
        }
    }
}

/// How a block predicts and corrects streams. Both maps read tanh(router(norm(x))).
#[derive(Debug, Clone, PartialEq)]
pub struct PredictedStreams {
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

/// How several streams begin and end.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEnds {
    Mapped(StreamMaps),
    /// All begin as the embedding, and one rule folds them before the final norm.
    Copied {
        n: usize,
        fold: FoldSpec,
    },
}

impl StreamEnds {
    pub fn n(&self) -> usize {
        match self {
            Self::Mapped(maps) => 1 + maps.first.len(),
            Self::Copied { n, .. } => *n,
        }
    }

    /// The published name of the rule.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mapped(_) => "AltUp",
            Self::Copied { .. } => "hyper-connections",
        }
    }
}

/// How additional streams are created from the embedding, and merged before the final norm.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamMaps {
    /// d_model → d_model, one per additional stream.
    pub first: Vec<LinearSource>,
    /// d_model → d_model, one per additional stream.
    pub last: Vec<LinearSource>,
}

impl PredictedStreams {
    pub fn linears(&self) -> [&LinearSource; 3] {
        [&self.router, &self.predict, &self.correct]
    }
}
