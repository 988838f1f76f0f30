//! What comes of a row block.

use candle_core::Tensor;

use crate::attention::RowSummary;

/// One row block of all heads of a group, finished.
pub(super) struct Finished {
    /// −inf where masked. // [head, row, key]
    pub scores: Tensor,
    /// [head, row, key]
    pub pattern: Tensor,
    /// [head · row]
    pub rows: Vec<RowSummary>,
    /// The pattern once more, where the host computed it.
    pub on_host: Option<Vec<f32>>,
}
