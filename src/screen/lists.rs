//! Lists that can be filtered: their rows, the selected row, and how one is selected.

use attnscope_spec::Place;

use super::panels;
use super::panels::tokens_shades;
use super::state::app::App;
use super::state::filter::{List, Row, head_of_key, key_of_head, next_stop};
use super::state::history_view::HistoryView;
use super::state::panel::Panel;
use super::state::scene::Scene;
use super::state::statistics::{n_statistics, statistic};
use super::state::views::Axis;

/// The rows of the open panel's list, in the order in which the panel shows them.
fn rows(app: Scene<'_>, list: List) -> Vec<Row> {
    match list {
        List::Findings => panels::checks_list::rows(app),
        List::Heads if app.panel == Panel::Effect => {
            let ranked = app.ranked_effects().into_iter();
            ranked.map(|(place, _)| head_row(app, place)).collect()
        }
        List::Heads => {
            let ranked = panels::ranking::places(app).into_iter();
            ranked.map(|place| head_row(app, place)).collect()
        }
        List::Statistics => (0..n_statistics())
            .filter(|idx| app.knows(*idx))
            .map(|idx| (idx, statistic(idx)))
            .map(|(key, statistic)| Row {
                key,
                text: format!("{} {}", statistic.title, statistic.id),
            })
            .collect(),
        List::Tensors => panels::model::rows(app),
        List::Tokens => {
            let axis = axis(app);
            (0..app.n_along(axis))
                .map(|key| Row {
                    key,
                    text: format!("{key} {}", app.token(axis, key)),
                })
                .collect()
        }
        List::Steps => app.state().training.as_ref().map_or_else(Vec::new, steps),
    }
}

/// A head as it is searched: its place, and the type it has.
fn head_row(app: Scene<'_>, place: Place) -> Row {
    let layer = app
        .layers_of(place.grid())
        .get(place.layer_idx.unwrap_or(0));
    let head = layer.and_then(|layer| layer.heads.get(place.head_idx.unwrap_or(0)));
    let kind = head.and_then(|head| head.kind);
    Row {
        key: key_of_head(place),
        text: match kind {
            Some(kind) => format!("{place} {}", kind.title()),
            None => place.to_string(),
        },
    }
}

/// The steps of a training as they are searched: each with its loss, and with what begins at it.
fn steps(view: &HistoryView) -> Vec<Row> {
    let records = view.history.records().iter().enumerate();
    let mut rows: Vec<Row> = records
        .map(|(key, record)| Row {
            key,
            text: record.label(),
        })
        .collect();
    for onset in view.onsets() {
        if let Some(row) = rows.get_mut(onset.at().0) {
            row.text.push(' ');
            row.text.push_str(&onset.told(&view.history));
        }
    }
    rows
}

/// The axis whose tokens the open panel lists.
fn axis(app: Scene<'_>) -> Axis {
    match app.panel {
        Panel::Tokens => tokens_shades::axes(app).0,
        _ => Axis::Query,
    }
}

/// The key of the selected row.
fn selected(app: Scene<'_>, list: List) -> usize {
    match list {
        List::Findings => app.checks_view.line_idx,
        List::Heads => key_of_head(app.selected_place()),
        List::Statistics => app.statistic_idx,
        List::Tensors => app.model_view.tensor_idx,
        List::Tokens if axis(app) == Axis::Key => app.selection.key_idx,
        List::Tokens => app.selection.query_idx,
        List::Steps => app.training.as_ref().map_or(0, |view| view.at),
    }
}

/// The rows that keys stop at: the matches of a filter; in the list of findings, all lines that are not folded.
fn stops(app: Scene<'_>, list: List) -> Vec<usize> {
    match list {
        List::Findings => panels::checks_list::lines(app).shown,
        _ => {
            let filter = app.filters.get(&list);
            filter.map_or_else(Vec::new, |filter| filter.matches.clone())
        }
    }
}

impl App {
    /// Searches the list of the open panel again if it is filtered, because its rows may have changed.
    pub(super) fn refresh_filter(&mut self) {
        let Some(list) = self.list_here() else { return };
        if self.filters.contains_key(&list) {
            let rows = rows(self.scene(), list);
            if let Some(filter) = self.filters.get_mut(&list) {
                filter.refresh(&rows);
            }
        }
    }

    /// Moves to another row that keys stop at; wraps around if asked to.
    pub(super) fn step_match(&mut self, by: isize, wraps: bool) {
        let Some(list) = self.list_here() else { return };
        let from = selected(self.scene(), list);
        if let Some(key) = next_stop(&stops(self.scene(), list), from, by, wraps) {
            self.select_row(list, key);
        }
    }

    /// Selects the first match at or after the selected row, while a filter is typed.
    pub(super) fn select_first_match(&mut self) {
        let Some(list) = self.list_here() else { return };
        let here = selected(self.scene(), list);
        let is_filtered = self.filter_of(list).is_some();
        if is_filtered && !stops(self.scene(), list).contains(&here) {
            self.step_match(1, true);
        }
    }

    /// The key of the selected row of a list.
    pub(super) fn selected_row(&self, list: List) -> usize {
        selected(self.scene(), list)
    }

    pub(super) fn select_row(&mut self, list: List, key: usize) {
        match list {
            List::Findings => self.checks_view.line_idx = key,
            List::Heads => {
                let place = head_of_key(key);
                self.select_grid(place.grid());
                self.selection.layer_idx = place.layer_idx.unwrap_or(0);
                self.selection.head_idx = place.head_idx.unwrap_or(0);
            }
            List::Statistics => self.statistic_idx = key,
            List::Tensors => self.model_view.tensor_idx = key,
            List::Tokens if axis(self.scene()) == Axis::Key => self.selection.key_idx = key,
            List::Tokens => self.selection.query_idx = key,
            List::Steps => {
                if let Some(view) = &mut self.training {
                    (view.at, view.onset) = (key, None);
                }
            }
        }
    }
}
