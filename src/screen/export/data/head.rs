//! The data of the Head panel: the visible cells, their margins, and the whole row of the selected query.

use std::ops::Range;

use attnscope_compute::attention::HeadSummary;
use attnscope_run::{HeadDetail, Pyramid};

use attnscope_report::table::{Table, TableRow};

use super::{Figure, PanelData, selected_head};
use crate::panels::head::received;
use crate::panels::head_layout::{View, view};
use crate::state::panel::Panel;
use crate::state::scene::Scene;
use crate::state::views::Axis;

pub static DATA: PanelData = PanelData {
    panel: Panel::Head,
    parts: &[
        (
            "cell",
            "a cell of the map in view: a query and a key, or the largest of a tile where cells are pooled",
        ),
        (
            "row",
            "a cell of the selected query's row, whatever is in view",
        ),
        (
            "query",
            "a query in view, with what the margin on the right shows",
        ),
        ("key", "a key in view, with what the margin below shows"),
    ],
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

placed_row! {
    query: Option<usize>, "position", "the query, or the first one of a cell";
    query_last: Option<usize>, "position", "the last query of a cell: the same where cells are not pooled";
    query_token: String, "", "token of `query`";
    key: Option<usize>, "position", "the key, or the first one of a cell";
    key_last: Option<usize>, "position", "the last key of a cell";
    key_token: String, "", "token of `key`";
    score: Option<Figure>, "score", "what goes into the softmax, `-Infinity` where masked; the largest of a cell";
    probability: Option<Figure>, "probability", "what comes out of it, without the first key where that is left out; the largest of a cell";
    contribution: Option<Figure>, "", "probability times ‖v W_O‖ of the key, while that map is shown; the largest of a cell";
    visible_keys: Option<u32>, "keys", "keys that the query sees";
    entropy: Option<Figure>, "nats", "of the query's row";
    entropy_relative: Option<Figure>, "share", "divided by the logarithm of the visible keys";
    row_sum: Option<Figure>, "probability", "sum of the query's row";
    query_norm: Option<Figure>, "", "‖q‖";
    received: Option<Figure>, "probability", "mean of what the key receives from the queries that see it";
    key_norm: Option<Figure>, "", "‖k‖";
    value_norm: Option<Figure>, "", "‖v W_O‖: how long what the head writes of the key is";
}

/// Cells of a level, their size and their offset.
struct Cells<'a> {
    scores: &'a Pyramid,
    pattern: &'a Pyramid,
    contribution: Option<&'a Pyramid>,
    level: usize,
    /// Tokens per side of a cell.
    size: usize,
    /// Tokens before the first cell. // [query, key]
    offset: [usize; 2],
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let view = view(app, app.areas().body);
    let mut rows = Vec::new();
    if let Some(detail) = app.shown_detail() {
        let cells = cells(app, detail, &view);
        for query in steps(&view.queries, &cells) {
            rows.extend(steps(&view.keys, &cells).map(|key| cell(app, &cells, query, key)));
        }
        rows.extend(selected_row(app, detail));
    }
    let head = app
        .layer()
        .and_then(|layer| layer.heads.get(app.selection.head_idx));
    if let Some(head) = head {
        rows.extend(
            view.queries
                .filter_map(|idx| query(app, &head.summary, idx)),
        );
        rows.extend(view.keys.filter_map(|idx| key(app, &head.summary, idx)));
    }
    rows
}

/// The first token of each cell that contains some of these tokens.
fn steps(tokens: &Range<usize>, cells: &Cells<'_>) -> impl Iterator<Item = usize> + use<> {
    let first = tokens.start / cells.size * cells.size;
    (first..tokens.end).step_by(cells.size)
}

/// The cells that the map shows: single ones if they have been computed, else pooled ones.
fn cells<'a>(app: Scene<'a>, detail: &'a HeadDetail, view: &View) -> Cells<'a> {
    let part = app.part_with(&view.queries, &view.keys);
    match part.filter(|_| app.shows_part()) {
        Some(part) => Cells {
            scores: &part.scores,
            pattern: &part.pattern,
            contribution: part.contribution.as_ref(),
            level: 0,
            size: 1,
            offset: [part.queries.start, part.keys.start],
        },
        None => Cells {
            scores: &detail.scores,
            pattern: &detail.pattern,
            contribution: detail.contribution.as_ref(),
            level: view.level,
            size: detail.pooling() << view.level,
            offset: [0, 0],
        },
    }
}

fn cell(app: Scene<'_>, cells: &Cells<'_>, query: usize, key: usize) -> Row {
    let at = |values: &Pyramid| {
        let row = (query - cells.offset[0]) / cells.size;
        values
            .level(cells.level)
            .at(row, (key - cells.offset[1]) / cells.size)
    };
    let last = |first: usize, axis: Axis| {
        (first + cells.size)
            .min(app.n_along(axis))
            .saturating_sub(1)
    };
    Row {
        part: "cell",
        query: Some(query),
        query_last: Some(last(query, Axis::Query)),
        query_token: app.raw_token(Axis::Query, query).to_owned(),
        key: Some(key),
        key_last: Some(last(key, Axis::Key)),
        key_token: app.raw_token(Axis::Key, key).to_owned(),
        score: Some(at(cells.scores).into()),
        probability: Some(at(cells.pattern).into()),
        contribution: cells.contribution.map(|map| at(map).into()),
        ..Row::at(selected_head(app))
    }
}

/// Every key of the selected query, as in the list next to the map.
fn selected_row(app: Scene<'_>, detail: &HeadDetail) -> Vec<Row> {
    let cells = Cells {
        scores: &detail.scores,
        pattern: &detail.pattern,
        contribution: detail.contribution.as_ref(),
        level: 0,
        size: detail.pooling(),
        offset: [0, 0],
    };
    let query = app.crosshair().0 / cells.size * cells.size;
    let keys = steps(&(0..app.n_along(Axis::Key)), &cells);
    let row = |key: usize| Row {
        part: "row",
        ..cell(app, &cells, query, key)
    };
    keys.map(row).collect()
}

fn query(app: Scene<'_>, summary: &HeadSummary, query_idx: usize) -> Option<Row> {
    let row = summary.rows.get(query_idx)?;
    let most = f64::from(row.n_visible).ln();
    Some(Row {
        part: "query",
        query: Some(query_idx),
        query_last: Some(query_idx),
        query_token: app.raw_token(Axis::Query, query_idx).to_owned(),
        visible_keys: Some(row.n_visible),
        entropy: Some(row.entropy.into()),
        entropy_relative: (row.n_visible >= 2).then(|| (f64::from(row.entropy) / most).into()),
        row_sum: Some(row.mass.into()),
        query_norm: Some(row.q_norm.into()),
        ..Row::at(selected_head(app))
    })
}

fn key(app: Scene<'_>, summary: &HeadSummary, key_idx: usize) -> Option<Row> {
    Some(Row {
        part: "key",
        key: Some(key_idx),
        key_last: Some(key_idx),
        key_token: app.raw_token(Axis::Key, key_idx).to_owned(),
        received: Some(received(app, summary, key_idx)?.into()),
        key_norm: summary.k_norms.get(key_idx).map(|norm| (*norm).into()),
        value_norm: summary.value_norms.get(key_idx).map(|norm| (*norm).into()),
        ..Row::at(selected_head(app))
    })
}
