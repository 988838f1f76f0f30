//! How tokens become the input of the first block, as data: tables, positions, norms.

use attnscope_compute::ops::Activation;

use super::chain::Chain;
use super::norm_source::NormSource;
use super::patches::{PatchMap, PatchSpec};
use super::rounded::WeightFormat;
use super::source::{LinearSource, TableSource};
use super::stem::SoundStem;

/// How tokens become the input of the first block.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedSpec {
    /// The token table. For pictures, the kernel of the patch projection, with one row per token; for sound, the weight of the
    /// first convolution, with the number of positions.
    pub tokens: TableSource,
    /// Set if every position has ids of its own: the number of rows of the token table that belong to each. Each position
    /// has the next rows, from one behind the first on.
    pub by_position: Option<usize>,
    /// The last position that still has the first of these rows.
    pub last_with_first_rows: usize,
    /// The row of one id more than the token table has: a learned row, to which no position is added.
    pub summary: Option<TableSource>,
    /// How a picture becomes rows, if tokens are its patches.
    pub patches: Option<Box<PatchSpec>>,
    /// How a sound becomes rows, if the stack reads sound instead of tokens; rows of numbers are a sound without convolutions.
    pub sound: Option<Box<SoundStem>>,
    /// Multiplies the token rows.
    pub scale: f32,
    /// A token whose row is set to zero.
    pub dropped: Option<DroppedToken>,
    /// Rows added to the row of every token, before anything else is.
    pub constants: Vec<ConstantRow>,
    /// One more such row, which a small network makes.
    pub made: Option<Box<MadeRow>>,
    /// Each row stands between that of the next token and that of the token before; zeros stand beyond the ends of a text.
    pub has_neighbours: bool,
    pub positions: Option<PositionTable>,
    /// Segment embeddings; row 0 is added to every token.
    pub token_types: Option<TableSource>,
    pub norm: Option<NormSource>,
    /// Applies the norm before positions are added, not after.
    pub norms_before_positions: bool,
    /// Maps embeddings to the width of the residual, if theirs differs.
    pub projection: Option<LinearSource>,
    /// Applies the projection before positions and norm, not after them.
    pub projects_first: bool,
    /// Applies the norm after the projection.
    pub norms_projected: bool,
    /// Convolutions over the rows of tokens, behind all others.
    pub chain: Option<Box<Chain>>,
    /// Learned rows that stand before those of tokens in all layers, and are left out behind the last.
    pub joined: Option<Box<JoinedRows>>,
    /// Rounds tables of tokens, positions, token types and biases after they were read; in blocks, the table of tokens alone. Set by
    /// what-ifs only.
    pub rounded: Option<WeightFormat>,
}

impl EmbedSpec {
    /// An embedding that only looks up rows of a table.
    pub fn plain(tokens: TableSource) -> Self {
        Self {
            tokens,
            by_position: None,
            last_with_first_rows: 0,
            summary: None,
            patches: None,
            sound: None,
            scale: 1.0,
            dropped: None,
            constants: Vec::new(),
            made: None,
            has_neighbours: false,
            positions: None,
            token_types: None,
            norm: None,
            norms_before_positions: false,
            projection: None,
            projects_first: false,
            norms_projected: false,
            chain: None,
            joined: None,
            rounded: None,
        }
    }
}

/// Consecutive rows of a table, which stand before those of tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinedRows {
    pub table: TableSource,
    /// The first of them.
    pub first: usize,
    pub n: usize,
    /// Rows added to each of them.
    pub constants: Vec<ConstantRow>,
}

impl JoinedRows {
    /// All rows of a table.
    pub fn whole(table: TableSource) -> Self {
        Self {
            first: 0,
            n: table.n_rows,
            constants: Vec::new(),
            table,
        }
    }
}

/// A row of a table, added to the row of every token: what a model adds for an input that a text does not have, such as boxes on a
/// page.
#[derive(Debug, Clone, PartialEq)]
pub struct ConstantRow {
    pub table: TableSource,
    pub row: usize,
    /// The columns from which it is added: once for each. Columns beyond the row make it wider.
    pub columns: Vec<usize>,
}

/// A row added to the row of every token: down(act(up x)), where x is made of rows of tables.
#[derive(Debug, Clone, PartialEq)]
pub struct MadeRow {
    pub parts: Vec<MadePart>,
    pub up: LinearSource,
    pub activation: Activation,
    pub down: LinearSource,
}

/// A row of a table that is added to x from some column on.
#[derive(Debug, Clone, PartialEq)]
pub struct MadePart {
    pub table: TableSource,
    pub row: usize,
    pub column: usize,
}

impl EmbedSpec {
    /// The convolutions that make the rows of the first layer, of a picture or of tokens.
    pub fn first_chain(&self) -> Option<&Chain> {
        match self.patches.as_deref().map(|patches| &patches.map) {
            Some(PatchMap::Chain(chain)) => Some(chain),
            _ => self.chain.as_deref(),
        }
    }

    /// Number of ids that a position may have.
    pub fn n_ids(&self) -> usize {
        let n_summaries = usize::from(self.summary.is_some());
        self.by_position.unwrap_or(self.tokens.n_rows) + n_summaries
    }

    /// The row of the token table for an id at a position.
    pub fn row_of(&self, id: u32, position: usize) -> usize {
        let part = position.saturating_sub(self.last_with_first_rows);
        id as usize + self.by_position.map_or(0, |n| n.saturating_mul(part))
    }

    /// Whether an id stands for the learned row beyond the token table.
    pub fn is_summary(&self, id: u32) -> bool {
        self.summary.is_some() && id as usize == self.tokens.n_rows
    }

    /// Width of a token's row with its constants, before any projection.
    pub fn width(&self) -> usize {
        let ends = self.constants.iter().flat_map(|constant| {
            let columns = constant.columns.iter();
            columns.map(|column| column + constant.table.width)
        });
        ends.fold(self.tokens.width, usize::max)
    }
}

/// A token whose embedding is zeroed, as in training with token dropout (ESM). Other embeddings are multiplied by the share of
/// tokens kept in training over the share kept in the text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DroppedToken {
    /// `None` if the vocabulary has no such token.
    pub token: Option<u32>,
    /// Share of tokens dropped in training.
    pub share: f32,
}

/// Position embeddings added to the token embeddings.
#[derive(Debug, Clone, PartialEq)]
pub enum PositionTable {
    /// Stored rows.
    Stored(TableSource),
    /// Sines and cosines of decreasing frequencies (Vaswani et al. 2017).
    Sinusoid(Sines),
}

impl PositionTable {
    /// Number of stored positions; `None` if positions are computed, which have no limit.
    pub fn n_rows(&self) -> Option<usize> {
        match self {
            Self::Stored(table) => Some(table.n_rows),
            Self::Sinusoid(_) => None,
        }
    }
}

/// Order of sines and cosines in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sines {
    /// All sines, then all cosines.
    Halves,
    /// All sines, then all cosines; the last frequency is exactly 1/10,000.
    HalvesToEnd,
    /// The same with all cosines first.
    CosinesToEnd,
    /// Each sine is followed by the cosine of the same frequency.
    Interleaved,
}
