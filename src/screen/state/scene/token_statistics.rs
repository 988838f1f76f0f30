//! Statistics of the selected tokens in every head: attention to the selected key, and from the selected query to it.

use attnscope_checks::stats::{Gather, HeadReport, LayerReport, STATISTICS};
use attnscope_compute::attention::HeadSummary;

use super::Scene;
use crate::state::rows_view::nth;
use crate::state::runs::Shows;

impl Scene<'_> {
    /// The chosen statistic of a head on one side.
    pub fn head_statistic(self, side: Shows, layer: &LayerReport, head_idx: usize) -> f64 {
        let Some(head) = layer.heads.get(head_idx) else {
            return f64::NAN;
        };
        match self.statistic_idx.checked_sub(STATISTICS.len()) {
            None => head.stats.at(self.statistic_idx),
            Some(0) => self.on_key(side, layer, &head.summary),
            Some(_) => self.given_by_query(side, layer, (head_idx, head)),
        }
    }

    /// The chosen statistic of a layer on one side; statistics of the selected tokens are averaged over heads.
    pub fn layer_statistic(self, side: Shows, layer: &LayerReport) -> f64 {
        if self.statistic_idx < STATISTICS.len() {
            return layer.stats.at(self.statistic_idx);
        }
        let heads = 0..layer.heads.len();
        Gather::Mean.over(heads.map(|head_idx| self.head_statistic(side, layer, head_idx)))
    }

    /// The side shown, A if there is only one run.
    pub fn shown_side(self) -> Shows {
        match self.both_runs() {
            Some(_) => self.side(),
            None => Shows::A,
        }
    }

    fn on_key(self, side: Shows, layer: &LayerReport, head: &HeadSummary) -> f64 {
        let (_, key_idx) = self.crosshair_in(side);
        let Some(sum) = head.column_sums.get(key_idx) else {
            return f64::NAN;
        };
        let run = self.state().runs.shown(side);
        let attention = run.and_then(|run| run.subject.attention(layer.stack, layer.layer_idx));
        let n = head.rows.iter().filter(|row| row.is_real).count();
        let n_seeing = attention.map_or(n, |spec| head.n_queries_seeing(spec.mask, key_idx).min(n));
        f64::from(*sum) / n_seeing.max(1) as f64
    }

    /// Attention from the selected query to the selected key: from the map if each of its cells is one pair of tokens, else
    /// from the requested rows.
    fn given_by_query(
        self,
        side: Shows,
        layer: &LayerReport,
        (head_idx, head): (usize, &HeadReport),
    ) -> f64 {
        let (query_idx, key_idx) = self.crosshair_in(side);
        let map = &head.summary.pooled;
        if is_whole(&head.summary) {
            let cell = (query_idx < map.n_rows && key_idx < map.n_cols)
                .then(|| map.cells.get(query_idx * map.n_cols + key_idx))
                .flatten();
            return cell.map_or(f64::NAN, |cell| seen(*cell));
        }
        let Some((of, rows)) = &self.state().rows_view.rows[nth(side)] else {
            return f64::NAN;
        };
        let is_current = self
            .state()
            .runs
            .shown(side)
            .is_some_and(|run| run.id == of.run);
        if !is_current || of.query_idx != query_idx {
            return f64::NAN;
        }
        let row = rows.get(&(layer.stack, layer.layer_idx, head_idx));
        row.and_then(|row| row.get(key_idx))
            .map_or(f64::NAN, |cell| seen(*cell))
    }
}

/// A cell as a probability; 0 if the mask hides the key.
fn seen(cell: f32) -> f64 {
    if cell == f32::NEG_INFINITY {
        0.0
    } else {
        f64::from(cell)
    }
}

/// Whether a summary's map has one cell per query and key.
pub fn is_whole(head: &HeadSummary) -> bool {
    (head.pooled.queries_per_cell, head.pooled.keys_per_cell) == (1, 1)
}
