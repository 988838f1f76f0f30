//! Stages of an encoder of pictures: between two stages neighbouring patches become one, so that rows are fewer and wider.

use super::source::{LinearSource, NormSource};
use super::stack::StackSpec;

/// How neighbouring patches become one behind the last block of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeSpec {
    /// Rows and columns of patches before.
    pub from: [usize; 2],
    /// Rows, and columns, of patches that become one. A picture that they do not divide is filled up with zeros below and to the right.
    pub side: usize,
    /// A norm of the values of the patches that become one, all together.
    pub before: Option<NormSource>,
    /// Reads the patches that become one, column after column. // side · side · d → the width of the next stage
    pub map: LinearSource,
    /// A norm of the rows of the next stage.
    pub behind: Option<NormSource>,
}

impl MergeSpec {
    /// Rows and columns of patches after.
    pub fn to(&self) -> [usize; 2] {
        self.from.map(|n| n.div_ceil(self.side.max(1)))
    }

    /// The norms, in the order in which they are applied.
    pub fn norms(&self) -> impl Iterator<Item = &NormSource> {
        self.before.iter().chain(&self.behind)
    }

    /// Describes the merging, for comparisons.
    pub fn words(&self) -> String {
        let ([rows, columns], [fewer_rows, fewer_columns]) = (self.from, self.to());
        let norms = match (&self.before, &self.behind) {
            (Some(_), Some(_)) => "norms before and behind the map",
            (Some(_), None) => "a norm before the map",
            (None, Some(_)) => "a norm behind the map",
            (None, None) => "no norm",
        };
        format!("{rows} × {columns} to {fewer_rows} × {fewer_columns} patches, {norms}")
    }
}

impl StackSpec {
    /// Whether the stack has stages: its later layers have fewer and wider rows than its first.
    pub fn is_staged(&self) -> bool {
        self.merged_before(self.n_layers()).is_some()
    }

    /// The merging that made the rows of a layer; `None` in the first stage.
    pub fn merged_before(&self, layer_idx: usize) -> Option<&MergeSpec> {
        let before = self.blocks().iter().take(layer_idx).rev();
        before.filter_map(|block| block.merge.as_deref()).next()
    }

    /// Rows and columns of patches in a layer behind the first stage; `None` in the first, which has those of the picture.
    pub fn grid_of(&self, layer_idx: usize) -> Option<[usize; 2]> {
        Some(self.merged_before(layer_idx)?.to())
    }

    /// The number of positions in a layer, for a prompt of `n` tokens.
    pub fn n_positions(&self, layer_idx: usize, n: usize) -> usize {
        let grid = self.grid_of(layer_idx);
        grid.map_or(n, |[rows, columns]| rows * columns)
    }

    /// The number of the stage of a layer, counted from 0.
    pub fn stage_of(&self, layer_idx: usize) -> usize {
        let before = self.blocks().iter().take(layer_idx);
        before.filter(|block| block.merge.is_some()).count()
    }
}
