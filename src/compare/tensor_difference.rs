//! Difference of one stored tensor.

use std::ops::Range;

use super::relation::Relation;

/// A tensor whose values differ between two checkpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorDifference {
    /// The name in A, or in B if one tensor of A corresponds to two of B.
    pub name: String,
    /// Roles of the tensor, in names common to all families; empty if no model reads it.
    pub roles: Vec<String>,
    /// ‖a − b‖/‖a‖; infinite if the shapes differ, or only one side is finite.
    pub relative: f64,
    pub max_abs: f64,
    pub relation: Option<Relation>,
    /// The factor, for a scaled tensor.
    pub factor: Option<f64>,
    /// Ranges of rows that differ: outputs of a matrix, tokens or positions of a table. At most [`MOST_ROWS`] ranges.
    pub rows: Vec<Range<usize>>,
    /// Heads that differ, if the tensor is divided among heads.
    pub heads: Vec<usize>,
    /// Whether the difference changes the computation: false for tensors that no model reads, and within storage noise.
    pub counts: bool,
}

/// Maximum number of row ranges listed per difference.
pub const MOST_ROWS: usize = 16;
