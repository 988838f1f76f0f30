//! How a picture becomes token rows, as data.

use attnscope_prompt::PicturePreprocessing;
pub use attnscope_prompt::Resampling;

use super::chain::Chain;
use super::norm_source::NormSource;
use super::source::LinearSource;

/// How a picture becomes token rows. A token id is a row number: learned tokens come first, then patches.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchSpec {
    /// How the picture is preprocessed before it is cut into patches.
    pub preprocessing: PicturePreprocessing,
    /// What makes rows of a picture's values.
    pub map: PatchMap,
    /// A norm of a patch's values before the map.
    pub value_norm: Option<NormSource>,
    /// A norm of the row that the map gives; learned tokens are not normed.
    pub row_norm: Option<NormSource>,
    /// The order of a patch's values.
    pub layout: PatchLayout,
    /// How often every channel is repeated: a model of videos sees a picture as this many equal frames.
    pub n_frames: usize,
    /// Learned tokens before the patches, in order.
    pub firsts: Vec<LearnedTokens>,
    /// `None` if the model tells places otherwise.
    pub positions: Option<GridPositions>,
    /// Stored positions of rows and of columns, which are added; `None` if the model has none.
    pub lines: Option<[LinePositions; 2]>,
}

/// What makes rows of a picture's values.
#[derive(Debug, Clone, PartialEq)]
pub enum PatchMap {
    /// A map of each patch's values.
    Linear(Box<LinearSource>),
    /// Convolutions over all pixels, which give a row for each patch.
    Chain(Box<Chain>),
}

/// Stored positions of the rows of a picture, or of its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePositions {
    pub tensor: String,
    pub shape: Vec<usize>,
    /// The stored row of the first line.
    pub first: usize,
    /// Number of lines that are stored.
    pub n: usize,
}

/// The order of a patch's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchLayout {
    /// Channels, frames, rows, columns.
    ChannelsFirst,
    /// Frames, channels, rows, columns.
    FramesFirst,
    /// Frames, rows, columns, channels.
    ChannelsLast,
    /// Rows, columns, frames, channels.
    FramesInside,
}

/// Learned rows that do not belong to a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedTokens {
    pub tensor: String,
    /// A position stored by itself, of the same shape.
    pub place: Option<String>,
    pub shape: Vec<usize>,
    pub n: usize,
    /// Whether one stored row is each of them, and one position.
    pub is_repeated: bool,
    /// Whether position embeddings are added to them.
    pub has_positions: bool,
}

/// Stored positions of a grid of patches, and of the learned tokens before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridPositions {
    pub tensor: String,
    pub shape: Vec<usize>,
    /// Number of rows before those of the grid.
    pub n_first: usize,
    /// Number of rows behind those of the grid; they belong to the last of the learned tokens before the patches.
    pub n_behind: usize,
    /// Whether the first row is added to every patch.
    pub shares_first: bool,
    /// Number of stored rows and columns.
    pub grid: [usize; 2],
    /// How many grids are stored, one for each moment; one alone counts for all of them.
    pub n_moments: usize,
    /// Rows of moments, which are added to their patches besides.
    pub moments: Option<MomentRows>,
    /// How positions are resampled for a picture with another grid; `None` if another grid is not supported.
    pub resampled: Option<Resampling>,
    /// Whether channels are stored before rows and columns, as those of a picture.
    pub has_channels_first: bool,
    /// Positions by the place in a window, which are added; the windows lie side by side from the first patch on.
    pub tiles: Option<TilePositions>,
}

/// A stored row for each moment of a video. // [1, moment, width]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MomentRows {
    pub tensor: String,
    pub n: usize,
    pub width: usize,
}

impl MomentRows {
    /// The required shape.
    pub fn shape(&self) -> Vec<usize> {
        vec![1, self.n, self.width]
    }
}

/// Stored positions of the places of a window, whose channels come first. // [1, width, row, column]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TilePositions {
    pub tensor: String,
    /// Rows and columns of a window.
    pub grid: [usize; 2],
}

impl GridPositions {
    /// The tensors it reads for rows of a width, with what they are of and their shapes.
    pub fn tensors(
        &self,
        width: usize,
    ) -> impl Iterator<Item = (&'static str, &String, Vec<usize>)> {
        let tiles = self.tiles.iter();
        let tiles = tiles.map(move |tiles| ("tiles", &tiles.tensor, tiles.shape(width)));
        let moments = self.moments.iter();
        let moments = moments.map(|rows| ("moments", &rows.tensor, rows.shape()));
        [("grid", &self.tensor, self.shape.clone())]
            .into_iter()
            .chain(tiles)
            .chain(moments)
    }
}

impl TilePositions {
    /// The required shape.
    pub fn shape(&self, width: usize) -> Vec<usize> {
        vec![1, width, self.grid[0], self.grid[1]]
    }
}

impl PatchSpec {
    /// Number of learned tokens before the patches.
    pub fn n_first(&self) -> usize {
        self.firsts.iter().map(|learned| learned.n).sum()
    }

    /// Width of what convolutions keep beside a row.
    pub fn n_beside(&self) -> usize {
        match &self.map {
            PatchMap::Linear(_) => 0,
            PatchMap::Chain(chain) => chain.n_beside(),
        }
    }

    /// Width of a row, with what is kept beside it.
    pub fn width(&self) -> usize {
        match &self.map {
            PatchMap::Linear(map) => map.n_out(),
            PatchMap::Chain(chain) => chain.n_out() + chain.n_beside(),
        }
    }
}
