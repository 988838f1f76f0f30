//! How a picture becomes the rows of tokens, as data.

use attnscope_prompt::Look;

use super::source::LinearSource;

/// How a picture becomes the rows of tokens. An id is the number of a row: that of a learned token, or that of a patch behind them.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchSpec {
    /// What is done to a picture before it is cut.
    pub look: Look,
    /// The map of the values of a patch: channels, rows, columns.
    pub projection: LinearSource,
    /// Learned tokens before the patches, in order.
    pub firsts: Vec<LearnedTokens>,
    pub positions: GridPositions,
}

/// Learned rows that stand for no patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedTokens {
    pub tensor: String,
    pub shape: Vec<usize>,
    pub n: usize,
    /// Whether positions are added to them.
    pub has_positions: bool,
}

/// Positions that are stored for a grid of patches, and for learned tokens before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridPositions {
    pub tensor: String,
    pub shape: Vec<usize>,
    /// Rows before those of the grid.
    pub n_first: usize,
    /// Rows and columns that are stored.
    pub grid: [usize; 2],
    /// What is done where a picture has another grid; `None` where it may not have one.
    pub resampled: Option<Resampling>,
}

/// How stored positions become those of another grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resampling {
    /// Cubic between the four nearest, a = −0.75, whatever the scale.
    Nearest,
    /// Cubic over as many as the scale asks for, a = −0.5.
    Antialiased,
}

impl PatchSpec {
    /// Learned tokens before the patches.
    pub fn n_first(&self) -> usize {
        self.firsts.iter().map(|learned| learned.n).sum()
    }

    /// Width of a row.
    pub fn width(&self) -> usize {
        self.projection.n_out()
    }
}
