//! Attention from the selected query to each key, requested from the worker where maps are pooled.

use std::sync::Arc;

use attnscope_checks::stats::STATISTICS;
use attnscope_spec::Stack;
use attnscope_worker::{QueryRows, RowsQuery};

use super::state::app::App;
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::state::rows_view::{RowsView, nth};
use super::state::run::{Run, RunState};
use super::state::runs::Shows;
use super::state::scene::token_statistics::is_whole;

/// The heads of one grid whose maps are pooled, so that their rows must be requested.
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
    /// Requests attention from the selected query where heads are sorted by it and maps are pooled.
    pub(super) fn ask_for_query_rows(&mut self, effects: &mut Vec<Effect>) {
        let is_shown = matches!(self.panel, Panel::Overview | Panel::Compare)
            && self.statistic_idx == STATISTICS.len() + 1;
        if !is_shown {
            return;
        }
        // One request at a time, because a newer one would replace the older.
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
            // An open request for the other side is no longer answered.
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
