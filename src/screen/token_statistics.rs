//! Statistics of the selected tokens: what the selected key receives, and what the selected query gives to it, in every head.

use std::sync::Arc;

use attnscope_checks::stats::{
    Compute, Gather, HeadReport, LayerReport, STATISTICS, Span, Statistic,
};
use attnscope_compute::attention::HeadSummary;
use attnscope_spec::Stack;
use attnscope_worker::{QueryRows, RowsQuery};

use super::app::{App, Effect};
use super::panel::Panel;
use super::run::{Run, RunState};
use super::runs::Shows;
use super::scene::Scene;

/// What stands after the statistics of reports: numbers that depend on what is selected.
static ON_KEY: Statistic = Statistic {
    id: "mass_on_selected_key",
    title: "mass on this key",
    unit: "",
    span: Span::Share,
    low: "no query looks",
    high: "every query looks only there",
    definition: "mean over queries that see the selected key of the probability they give it",
    source: "Ours",
    compute: Compute::Head(|_| f64::NAN, Gather::Mean),
};

static FROM_QUERY: Statistic = Statistic {
    id: "mass_from_selected_query",
    title: "mass from this query to the key",
    unit: "",
    span: Span::Share,
    low: "does not look",
    high: "looks only there",
    definition: "the probability that the selected query gives to the selected key",
    source: "Ours",
    compute: Compute::Head(|_| f64::NAN, Gather::Mean),
};

/// How many statistics a grid can show.
pub fn n_statistics() -> usize {
    STATISTICS.len() + 2
}

/// A statistic by its place: those of reports, then those of the selected tokens.
pub fn statistic(idx: usize) -> &'static Statistic {
    match idx.checked_sub(STATISTICS.len()) {
        None => STATISTICS[idx],
        Some(0) => &ON_KEY,
        Some(_) => &FROM_QUERY,
    }
}

/// The rows of the selected query, as far as they were asked for.
#[derive(Debug, Default)]
pub struct RowsView {
    /// What was asked of A and of B last.
    asked: [Option<RowsQuery>; 2],
    /// What came of it.
    rows: [Option<(RowsQuery, Arc<QueryRows>)>; 2],
}

fn nth(side: Shows) -> usize {
    usize::from(side != Shows::A)
}

impl Scene<'_> {
    /// The chosen statistic of a head of one side.
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

    /// The chosen statistic of a layer of one side: of the selected tokens, the mean over heads.
    pub fn layer_statistic(self, side: Shows, layer: &LayerReport) -> f64 {
        if self.statistic_idx < STATISTICS.len() {
            return layer.stats.at(self.statistic_idx);
        }
        let heads = 0..layer.heads.len();
        Gather::Mean.over(heads.map(|head_idx| self.head_statistic(side, layer, head_idx)))
    }

    /// The side that is shown, as far as there are two.
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

    /// From the pooled map where each of its cells is one pair of tokens; else from what was asked of the worker.
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

/// A probability; 0 where the mask hides the key.
fn seen(cell: f32) -> f64 {
    if cell == f32::NEG_INFINITY {
        0.0
    } else {
        f64::from(cell)
    }
}

/// Whether the map of a summary has a cell for each query and key.
fn is_whole(head: &HeadSummary) -> bool {
    (head.pooled.queries_per_cell, head.pooled.keys_per_cell) == (1, 1)
}

/// Every head of a run in grids that have the selected query, where maps are pooled.
fn pooled_heads(run: &Run, grid: Stack) -> Vec<(Stack, usize, usize)> {
    let layers = run.layers.get(&grid).into_iter().flatten();
    let heads = layers.flat_map(|layer| {
        let pooled = layer
            .heads
            .iter()
            .enumerate()
            .filter(|(_, head)| !is_whole(&head.summary));
        pooled.map(move |(head_idx, _)| (grid, layer.layer_idx, head_idx))
    });
    heads.collect()
}

impl App {
    /// Asks what the selected query gives to each key, where heads are sorted by it and maps are pooled.
    pub(super) fn ask_for_query_rows(&mut self, effects: &mut Vec<Effect>) {
        let is_shown = matches!(self.panel, Panel::Overview | Panel::Compare)
            && self.statistic_idx == STATISTICS.len() + 1;
        if !is_shown {
            return;
        }
        // One question at a time: of two, the newer one would stand.
        let is_open = |view: &RowsView, nth: usize| {
            let asked = view.asked[nth].as_ref();
            asked.is_some_and(|asked| view.rows[nth].as_ref().is_none_or(|(of, _)| of != asked))
        };
        let shown = self.scene().shown_side();
        let sides: &[Shows] = match (self.scene().grid_differs(), shown) {
            (true, _) => &[Shows::A, Shows::B],
            (false, Shows::A) => &[Shows::A],
            (false, _) => &[Shows::B],
        };
        for side in sides {
            let (query_idx, _) = self.scene().crosshair_in(*side);
            let run = self.runs.shown(*side);
            let Some(run) = run.filter(|run| matches!(run.state, RunState::Done { .. })) else {
                continue;
            };
            let query = RowsQuery {
                run: run.id,
                query_idx,
                heads: pooled_heads(run, self.selection.stack),
            };
            let view = &mut self.rows_view;
            if query.heads.is_empty() || view.asked[nth(*side)].as_ref() == Some(&query) {
                if is_open(view, nth(*side)) {
                    return;
                }
                continue;
            }
            view.asked[nth(*side)] = Some(query.clone());
            // What was asked of the other side, and is still open, gets no answer any more.
            let other = 1 - nth(*side);
            if is_open(view, other) {
                view.asked[other] = None;
            }
            effects.push(Effect::QueryRows(query));
            return;
        }
    }

    pub(super) fn take_query_rows(&mut self, of: RowsQuery, rows: Arc<QueryRows>) {
        let asked = &self.rows_view.asked;
        if let Some(nth) = asked.iter().position(|asked| asked.as_ref() == Some(&of)) {
            self.rows_view.rows[nth] = Some((of, rows));
        }
    }
}
