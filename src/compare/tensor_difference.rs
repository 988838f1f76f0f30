//! One stored tensor that differs.

use std::ops::Range;

use super::relation::Relation;

/// A tensor that two checkpoints have different values of.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorDifference {
    /// The name in A; the name in B where one tensor of A is two of B.
    pub name: String,
    /// What the tensor is for, in the words of every family; empty for one that no model reads.
    pub roles: Vec<String>,
    /// ‖a − b‖/‖a‖; infinite where the shapes differ, or only one side is finite.
    pub relative: f64,
    pub max_abs: f64,
    pub relation: Option<Relation>,
    /// What B is multiplied by, where the relation is a factor.
    pub factor: Option<f64>,
    /// Rows that differ, as ranges; outputs for a matrix, tokens or positions for a table. At most [`MOST_ROWS`] ranges.
    pub rows: Vec<Range<usize>>,
    /// Heads that differ, where the tensor belongs to heads.
    pub heads: Vec<usize>,
    /// Whether the models compute different values because of it: not for tensors that no model reads, and not within the noise
    /// that the way of storing leaves.
    pub counts: bool,
}

/// Ranges of rows that a difference lists at most.
pub const MOST_ROWS: usize = 16;
