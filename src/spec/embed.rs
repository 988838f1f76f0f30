//! How tokens become the input of the first block, as data: tables, positions, norms.

use super::patches::PatchSpec;
use super::source::{LinearSource, NormSource, TableSource};
use super::stem::SoundStem;

/// How tokens become the input of the first block.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedSpec {
    /// Where tokens are patches of a picture, the kernel that makes their rows, one for each token; where a sound is heard, the
    /// first tensor that hears it, and how many places there are.
    pub tokens: TableSource,
    /// How rows come of a picture, where tokens are its patches.
    pub patches: Option<Box<PatchSpec>>,
    /// How rows come of a sound, where no token is read.
    pub sound: Option<Box<SoundStem>>,
    /// Multiplies the rows of tokens.
    pub scale: f32,
    /// A token whose rows are zero.
    pub dropped: Option<DroppedToken>,
    pub positions: Option<PositionTable>,
    /// Segment embeddings; row 0 is added to every token.
    pub token_types: Option<TableSource>,
    pub norm: Option<NormSource>,
    /// The norm stands before positions are added, not after.
    pub norms_before_positions: bool,
    /// Brings embeddings to the width of the residual, where they have another.
    pub projection: Option<LinearSource>,
    /// The projection comes before positions and norm, not after them.
    pub projects_first: bool,
    /// The norm comes after the projection.
    pub norms_projected: bool,
}

impl EmbedSpec {
    /// Rows of a table, nothing added.
    pub fn plain(tokens: TableSource) -> Self {
        Self {
            tokens,
            patches: None,
            sound: None,
            scale: 1.0,
            dropped: None,
            positions: None,
            token_types: None,
            norm: None,
            norms_before_positions: false,
            projection: None,
            projects_first: false,
            norms_projected: false,
        }
    }
}

/// A token that is left out of embeddings, as dropout does; the others are multiplied by what was left in training over what is
/// left in the text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DroppedToken {
    /// `None` where the vocabulary has no such token.
    pub token: Option<u32>,
    /// The share of tokens that were left out in training.
    pub share: f32,
}

/// Positions that are added to embeddings.
#[derive(Debug, Clone, PartialEq)]
pub enum PositionTable {
    /// Stored rows.
    Stored(TableSource),
    /// Sines and cosines of falling frequencies (Vaswani et al. 2017).
    Sinusoid(Sines),
}

impl PositionTable {
    /// Positions that are stored; nothing limits those that are computed.
    pub fn n_rows(&self) -> Option<usize> {
        match self {
            Self::Stored(table) => Some(table.n_rows),
            Self::Sinusoid(_) => None,
        }
    }
}

/// Where sines and cosines stand in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sines {
    /// All sines, then all cosines.
    Halves,
    /// All sines, then all cosines, whose last frequency is 1/10,000 itself.
    HalvesToEnd,
    /// A sine and the cosine of the same frequency side by side.
    Interleaved,
}
