//! The result of a row block.

use candle_core::Tensor;

use crate::attention::RowSummary;

/// The result of one row block, for all heads of a group.
pub(super) struct Finished {
    /// −inf where masked; always there if the run has a sink. // [head, row, key]
    pub scores: Option<Tensor>,
    /// [head, row, key]
    pub pattern: Tensor,
    /// [head · row]
    pub rows: Vec<RowSummary>,
    /// A copy of the pattern, if it was computed on the host.
    pub on_host: Option<Vec<f32>>,
}
