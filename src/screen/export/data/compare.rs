//! The data of the Compare panel: every statistic in A and in B, distances between patterns, loss, and the predictions after the
//! selected query.

use attnscope_checks::stats::{HeadReport, LayerReport, STATISTICS};

use attnscope_report::table::{Table, TableRow};
use attnscope_report::table_row;
use attnscope_spec::Place;

use super::{Figure, PanelData};
use crate::panels::marked;
use crate::state::panel::Panel;
use crate::state::runs::{SecondRunKind, Shows};
use crate::state::scene::Scene;

pub static DATA: PanelData = PanelData {
    panel: Panel::Compare,
    parts: &[
        ("head", "a statistic of a head in both runs"),
        (
            "distance",
            "how far the patterns of a head lie apart, in `after`",
        ),
        (
            "marked",
            "a statistic of a marked head in the run shown, in `before`; alone where marked heads stand side by side",
        ),
        ("loss", "the mean next-token loss of both runs"),
        (
            "prediction",
            "a likely token after the selected query, before or after",
        ),
    ],
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

table_row! {
    struct Row {
        part: &'static str, "", "kind of row";
        what_if: String, "", "what is supposed; empty for other pairs";
        against: String, "", "what A is compared with; empty for what is supposed";
        stack: &'static str, "", "which stack the layer belongs to";
        layer: Option<usize>, "", "the layer";
        head: Option<usize>, "", "the head";
        statistic: &'static str, "", "the statistic by its id, see [statistics.md](statistics.md)";
        unit: &'static str, "", "of the values; empty for pure numbers";
        before: Option<Figure>, "as `unit` says", "the value in A: the checkpoint as it is, where something is supposed";
        after: Option<Figure>, "as `unit` says", "the value in B: with what is supposed, or in the other run";
        query: Option<usize>, "position", "the query after which a token is predicted";
        token: String, "", "what the token reads as";
    }
}

/// The statistics of the marked heads.
fn marked(app: Scene<'_>) -> Vec<Row> {
    let per_head = || {
        let all = STATISTICS.iter().enumerate();
        all.filter(|(_, statistic)| statistic.is_per_head())
    };
    let heads = marked::heads(app).into_iter();
    let of = |(place, _, head): (Place, &LayerReport, &HeadReport)| {
        let rows = per_head().map(move |(idx, statistic)| Row {
            part: "marked",
            stack: place.grid().label().unwrap_or_default(),
            layer: place.layer_idx,
            head: place.head_idx,
            statistic: statistic.id,
            unit: statistic.unit,
            before: head.stats.measured(idx).map(Figure::from),
            ..Row::default()
        });
        rows.collect::<Vec<_>>()
    };
    heads.flat_map(of).collect()
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    if app.shows_marked() {
        return marked(app);
    }
    let (Some(second), Some(both)) = (&app.runs.b, app.both_runs()) else {
        return Vec::new();
    };
    let (what_if, against) = match &second.way {
        SecondRunKind::WhatIf(_) => (second.way.words(), String::new()),
        SecondRunKind::Against(_) | SecondRunKind::Earlier(..) => {
            (String::new(), second.way.words())
        }
    };
    let mut rows = Vec::new();
    let predictions = both.map(|run| {
        run.outcome()
            .and_then(|outcome| outcome.predictions.as_ref())
    });
    let losses = predictions.map(|predictions| predictions.and_then(|p| p.loss));
    if losses.iter().any(Option::is_some) {
        rows.push(Row {
            part: "loss",
            what_if: what_if.clone(),
            against: against.clone(),
            unit: "nats",
            before: losses[0].map(Figure::from),
            after: losses[1].map(Figure::from),
            ..Row::default()
        });
    }
    for (nth, predictions) in predictions.into_iter().enumerate() {
        let (at, _) = app.crosshair_in([Shows::A, Shows::B][nth]);
        let top = predictions.and_then(|predictions| predictions.top.get(at));
        for token in top.into_iter().flatten() {
            let probability = Some(Figure::from(token.probability));
            rows.push(Row {
                part: "prediction",
                what_if: what_if.clone(),
                against: against.clone(),
                before: probability.filter(|_| nth == 0),
                after: probability.filter(|_| nth == 1),
                query: Some(at),
                token: app.predicted_label(token.id),
                ..Row::default()
            });
        }
    }
    for grid in app.grids() {
        for layer_idx in 0..app.n_layers_of(grid) {
            let Some([before, after]) = app.both_layers(grid, layer_idx) else {
                continue;
            };
            let heads = before.heads.iter().zip(&after.heads).enumerate();
            for (head_idx, (before, after)) in heads {
                if let Some(compared) = app.compared_head(grid, layer_idx, head_idx) {
                    rows.push(Row {
                        part: "distance",
                        what_if: what_if.clone(),
                        against: against.clone(),
                        stack: grid.label().unwrap_or_default(),
                        layer: Some(layer_idx),
                        head: Some(head_idx),
                        unit: "nats",
                        after: Some(compared.divergence.into()),
                        ..Row::default()
                    });
                }
                let per_head = STATISTICS
                    .iter()
                    .enumerate()
                    .filter(|(_, s)| s.is_per_head());
                rows.extend(per_head.map(|(idx, statistic)| Row {
                    part: "head",
                    what_if: what_if.clone(),
                    against: against.clone(),
                    stack: grid.label().unwrap_or_default(),
                    layer: Some(layer_idx),
                    head: Some(head_idx),
                    statistic: statistic.id,
                    unit: statistic.unit,
                    before: before.stats.measured(idx).map(Figure::from),
                    after: after.stats.measured(idx).map(Figure::from),
                    ..Row::default()
                }));
            }
        }
    }
    rows
}
