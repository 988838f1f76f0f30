//! The length of what each key contributes to a row: its weight times ‖v W_O‖.

use std::ops::Range;

use super::fast_row::FastRow;
use super::plan::HeadPlan;
use super::summary::RowSummary;
use crate::kernels::simd::contribution_sums;

impl HeadPlan<'_> {
    /// Fills in a row's contribution and its entropy, from its weights and scores; does nothing if value norms are not known.
    pub(super) fn fill_contribution(
        &self,
        query_idx: usize,
        (row, scores): (&[f32], &[f32]),
        range: &Range<usize>,
        fast: &FastRow,
        summary: &mut RowSummary,
    ) {
        let Some(weights) = &self.weights else {
            return;
        };
        let log_sums = self.log_sums(query_idx);
        let reference = (fast.max, log_sums);
        let sums = contribution_sums(self.level, row, scores, range.clone(), weights, reference);
        let carried = sums.sum * f64::from(fast.factor());
        summary.contribution = carried as f32;
        summary.contribution_entropy = if carried < weights.least_shared() || sums.entropy < 0.0 {
            0.0
        } else {
            sums.entropy as f32
        };
    }
}
