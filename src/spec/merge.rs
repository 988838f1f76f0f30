//! Stages of an encoder: between two stages neighbouring patches, or positions of a sound, become one, so that rows are fewer, and often
//! wider.

use attnscope_compute::ops::Activation;

use super::block::BlockSpec;
use super::chain::Chain;
use super::conformer::ConvolutionModule;
use super::grid_maps::KeyGrid;
use super::norm_source::NormSource;
use super::patches::PatchSpec;
use super::planes::PlaneConvolution;
use super::source::LinearSource;
use super::stack::StackSpec;

/// How neighbouring patches become one behind the last block of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeSpec {
    /// A norm of each row, before rows become one.
    pub rows: Option<NormSource>,
    pub joining: Joining,
    /// A norm of the rows of the next stage.
    pub behind: Option<NormSource>,
    /// Positions, which are added to the rows of the next stage.
    pub places: Option<Box<StagePlaces>>,
}

/// What makes one patch of its neighbours.
#[derive(Debug, Clone, PartialEq)]
pub enum Joining {
    /// A map of squares of patches, which do not overlap.
    Squares(Box<SquareMap>),
    /// A convolution over the patches, whose windows may overlap.
    Convolution(PlaneConvolution),
    /// A chain of convolutions over the patches.
    Chain(Box<Chain>),
    /// None: the next block itself pools the patches of a square, which stand side by side until then, row after row.
    SideBySide {
        /// Rows, and columns, of patches in a square.
        side: usize,
        /// The width of a patch.
        width: usize,
    },
    /// A convolution over the positions of a sound, at every second of them, added to the mean of two. A last one without a partner is
    /// left out.
    Halves(Box<ConvolutionModule>),
}

/// A map of squares of patches.
#[derive(Debug, Clone, PartialEq)]
pub struct SquareMap {
    /// Rows, and columns, of patches that become one. A picture that they do not divide is filled up with zeros below and to the right.
    pub side: usize,
    /// Whether the patches that become one stand row after row, and not column after column.
    pub is_by_rows: bool,
    /// A norm of the values of the patches that become one, all together.
    pub norm: Option<NormSource>,
    /// A hidden layer before the map, and its activation.
    pub hidden: Option<(LinearSource, Activation)>,
    /// Reads the patches that become one, or the hidden layer. // side · side · d → the width of the next stage
    pub map: LinearSource,
    /// Whether the mean of the patches that become one is added.
    pub adds_mean: bool,
}

impl SquareMap {
    /// A map alone of patches that stand column after column.
    pub fn by_columns(side: usize, map: LinearSource) -> Self {
        Self {
            side,
            is_by_rows: false,
            norm: None,
            hidden: None,
            map,
            adds_mean: false,
        }
    }
}

/// Positions of the patches of a later stage, and a token before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagePlaces {
    /// A learned token before the patches. // [1, 1, width]
    pub class: Option<String>,
    /// A row for the token before the patches, if there is one, and for each patch; `None` without positions. // [1, row, width]
    pub positions: Option<String>,
    /// Rows and columns of patches with positions.
    pub grid: [usize; 2],
    pub width: usize,
}

impl StagePlaces {
    /// The tensors it reads, with their shapes.
    pub fn tensors(&self) -> impl Iterator<Item = (&String, Vec<usize>)> {
        let class = self.class.iter().map(|name| (name, vec![1, 1, self.width]));
        let positions = self.positions.iter().map(|name| (name, self.shape()));
        class.chain(positions)
    }

    /// The shape of the positions.
    pub fn shape(&self) -> Vec<usize> {
        let n_first = usize::from(self.class.is_some());
        vec![1, n_first + self.grid.iter().product::<usize>(), self.width]
    }
}

impl MergeSpec {
    /// Rows and columns of patches after, given those before.
    pub fn to(&self, from: [usize; 2]) -> [usize; 2] {
        match &self.joining {
            Joining::Squares(squares) => from.map(|n| n.div_ceil(squares.side.max(1))),
            Joining::Convolution(convolution) => convolution.to(from),
            Joining::Chain(chain) => chain.to(from),
            Joining::SideBySide { side, .. } => from.map(|n| n / (*side).max(1)),
            Joining::Halves(_) => from,
        }
    }

    /// The number of positions after, given that before, where they are no patches of a picture.
    pub fn n_to(&self, n: usize) -> usize {
        match &self.joining {
            Joining::Halves(_) => n / 2,
            Joining::Chain(chain) => chain.to([n, 1])[0],
            Joining::Squares(_) | Joining::Convolution(_) | Joining::SideBySide { .. } => n,
        }
    }

    /// The width of the rows of the next stage.
    pub fn width(&self) -> usize {
        match &self.joining {
            Joining::Squares(squares) => squares.map.n_out(),
            Joining::Convolution(convolution) => convolution.n_out,
            Joining::Chain(chain) => chain.n_out(),
            Joining::SideBySide { side, width } => side * side * width,
            Joining::Halves(module) => module.out.n_out(),
        }
    }

    /// Width of what a chain of convolutions keeps beside the rows of the next stage.
    pub fn n_beside(&self) -> usize {
        match &self.joining {
            Joining::Chain(chain) => chain.n_beside(),
            _ => 0,
        }
    }

    /// Whether a learned token stands before the patches of the next stage.
    pub fn has_class(&self) -> bool {
        let places = self.places.as_ref();
        places.is_some_and(|places| places.class.is_some())
    }

    /// The norms, in the order in which they are applied.
    pub fn norms(&self) -> impl Iterator<Item = &NormSource> {
        let of_squares = match &self.joining {
            Joining::Squares(squares) => squares.norm.as_ref(),
            Joining::Convolution(_)
            | Joining::Chain(_)
            | Joining::SideBySide { .. }
            | Joining::Halves(_) => None,
        };
        self.rows.iter().chain(of_squares).chain(&self.behind)
    }

    /// The tensors that are neither maps nor norms, nor in a chain, with their shapes.
    pub fn tensors(&self) -> impl Iterator<Item = (&String, Vec<usize>)> {
        let convolution = match &self.joining {
            Joining::Squares(_)
            | Joining::Chain(_)
            | Joining::SideBySide { .. }
            | Joining::Halves(_) => None,
            Joining::Convolution(convolution) => Some(convolution.tensors()),
        };
        let places = self.places.iter().flat_map(|places| places.tensors());
        convolution.into_iter().flatten().chain(places)
    }

    /// Describes the merging, for comparisons.
    pub fn words(&self) -> String {
        let joining = match &self.joining {
            Joining::Squares(squares) => {
                let side = squares.side;
                let word = |is: bool, word| if is { word } else { "" };
                let norm = word(squares.norm.is_some(), ", normed together");
                let order = word(squares.is_by_rows, ", row after row");
                let hidden = word(squares.hidden.is_some(), ", a hidden layer");
                let mean = word(squares.adds_mean, ", plus their mean");
                format!("squares of {side} × {side} patches{order}{norm}{hidden}{mean}")
            }
            Joining::Convolution(convolution) => format!("convolution {}", convolution.words()),
            Joining::Chain(chain) => chain.words(),
            Joining::SideBySide { side, .. } => {
                format!("squares of {side} × {side} patches, side by side")
            }
            Joining::Halves(module) => format!("mean of two + {}", module.words()),
        };
        let norms = match (&self.rows, &self.behind) {
            (Some(_), Some(_)) => ", norms of rows before and behind",
            (Some(_), None) => ", a norm of rows before",
            (None, Some(_)) => ", a norm of rows behind",
            (None, None) => "",
        };
        let places = self.places.as_deref();
        let word = |is: bool, word| if is { word } else { "" };
        let positions = places.is_some_and(|places| places.positions.is_some());
        let (positions, class) = (
            word(positions, ", positions"),
            word(self.has_class(), ", a token before the patches"),
        );
        format!("{joining}{norms}{positions}{class}")
    }
}

impl StackSpec {
    /// Whether the stack has stages: its later layers have fewer and wider rows than its first, or more.
    pub fn is_staged(&self) -> bool {
        self.merged_before(self.n_layers()).is_some() || self.n_joined(self.n_layers()) > 0
    }

    /// The number of learned rows that stand before those of the prompt in a layer.
    pub fn n_joined(&self, layer_idx: usize) -> usize {
        let before = self.blocks().iter().take(layer_idx);
        let by_blocks = before.filter_map(|block| block.joined.as_deref());
        let of_embedding = self.embed.joined.as_deref().map_or(0, |joined| joined.n);
        of_embedding + by_blocks.map(|table| table.n_rows).sum::<usize>()
    }

    /// Whether layers read other rows than their own in self-attention or in a feed-forward layer: patches of a picture in stages, of
    /// another grid or around each, or the rows of the encoder.
    pub fn reads_grid(&self) -> bool {
        let mut blocks = self.blocks().iter();
        self.is_staged()
            || blocks.any(|block| block.key_grid().is_some() || block.mixes_in_feed_forward())
    }

    /// The merging that made the rows of a layer; `None` in the first stage.
    pub fn merged_before(&self, layer_idx: usize) -> Option<&MergeSpec> {
        self.merges_before(layer_idx).last()
    }

    /// The mergings before a layer, in order.
    fn merges_before(&self, layer_idx: usize) -> impl Iterator<Item = &MergeSpec> {
        let before = self.blocks().iter().take(layer_idx);
        before.filter_map(|block| block.merge.as_deref())
    }

    /// Width of what chains of convolutions before a layer keep beside its residual, for chains behind it.
    pub fn n_beside(&self, layer_idx: usize) -> usize {
        match self.merged_before(layer_idx) {
            Some(merge) => merge.n_beside(),
            None => {
                let patches = self.embed.patches.as_deref();
                patches.map_or(0, PatchSpec::n_beside)
            }
        }
    }

    /// Whether the rows of a layer's input hold several patches each, which its block pools.
    pub fn pools(&self, layer_idx: usize) -> bool {
        let block = self.blocks().get(layer_idx);
        block.and_then(BlockSpec::query_pooling).is_some()
    }

    /// The width of the residual of a layer in a later stage; `None` in the first stage.
    pub fn merged_width(&self, layer_idx: usize) -> Option<usize> {
        let mut before = self.blocks().iter().take(layer_idx);
        let last = before.rposition(|block| block.merge.is_some())?;
        let first_behind = self.blocks().get(last + 1);
        match first_behind.and_then(BlockSpec::query_pooling) {
            Some(pooling) => Some(pooling.residual.n_out()),
            None => Some(self.blocks().get(last)?.merge.as_ref()?.width()),
        }
    }

    /// Rows and columns of patches in a layer, for a picture with this grid of patches.
    pub fn grid_of(&self, layer_idx: usize, grid: [usize; 2]) -> [usize; 2] {
        let merges = self.merges_before(layer_idx);
        merges.fold(grid, |grid, merge| merge.to(grid))
    }

    /// The number of positions in a layer, for a prompt of `n` tokens whose picture, if it has one, has this grid of patches.
    pub fn n_positions(&self, layer_idx: usize, n: usize, grid: Option<[usize; 2]>) -> usize {
        let n_joined = self.n_joined(layer_idx);
        match (self.merged_before(layer_idx), grid) {
            (Some(merge), Some(grid)) => {
                let [rows, columns] = self.grid_of(layer_idx, grid);
                n_joined + usize::from(merge.has_class()) + rows * columns
            }
            _ => n_joined + self.n_shortened(layer_idx, n),
        }
    }

    /// The number of positions that are left in a layer of `n` that are no patches of a picture.
    pub fn n_shortened(&self, layer_idx: usize, n: usize) -> usize {
        let merges = self.merges_before(layer_idx);
        merges.fold(n, |n, merge| merge.n_to(n))
    }

    /// The number of keys of a layer's own attention, for a prompt of `n` tokens as in [`StackSpec::n_positions`] and an encoder of
    /// `n_source` rows.
    pub fn n_keys(
        &self,
        layer_idx: usize,
        (n, n_source): (usize, usize),
        grid: Option<[usize; 2]>,
    ) -> usize {
        let block = self.blocks().get(layer_idx);
        let key_grid = block.and_then(|block| block.key_grid());
        if key_grid.is_some_and(|key_grid| key_grid.of_both().is_some()) {
            return n_source + self.n_positions(layer_idx, n, grid);
        }
        if let Some(pooled) = key_grid.and_then(|key_grid| key_grid.pooled()) {
            let n = self.n_positions(layer_idx, n, grid);
            return n + n / pooled.size.max(1);
        }
        match (block.and_then(|block| block.key_grid()), grid) {
            (Some(key_grid), Some(grid)) => {
                let of: &KeyGrid = key_grid;
                let merge = self.merged_before(layer_idx);
                let has_class = merge.is_some_and(MergeSpec::has_class);
                let n_patches: usize = of.to(self.grid_of(layer_idx, grid)).iter().product();
                n_patches + usize::from(has_class)
            }
            _ => self.n_positions(layer_idx, n, grid),
        }
    }

    /// The number of the stage of a layer, counted from 0.
    pub fn stage_of(&self, layer_idx: usize) -> usize {
        let before = self.blocks().iter().take(layer_idx);
        before
            .filter(|block| block.merge.is_some() || block.joined.is_some())
            .count()
    }
}
