//! The data of the Scores panel: the head's statistics with its layer's and the model's, its histogram, and its rows.

use attnscope_checks::stats::{HeadReport, LayerReport, STATISTICS, Stat};
use attnscope_run::Histogram;
use serde::Serialize;

use super::{Column, Figure, LAYER, PART, PanelData, STACK, Sheet, column, stack_label};
use crate::panels::scores::{Ranges, normal_density, ranges};
use crate::state::panel::Panel;
use crate::state::scene::Scene;
use crate::state::views::Axis;

pub static DATA: PanelData = PanelData {
    panel: Panel::Scores,
    parts: &[
        (
            "statistic",
            "a statistic of the head, or of its layer where heads have none",
        ),
        ("bin", "a bin of the histogram of the head's finite scores"),
        ("query", "a query of the head"),
    ],
    columns: COLUMNS,
    sheet: |app| Sheet::of(rows(app)),
};

const COLUMNS: &[Column] = &[
    PART,
    STACK,
    LAYER,
    column("head", "", "the head; empty for statistics of the layer"),
    column(
        "statistic",
        "",
        "the statistic by its id, see [statistics.md](statistics.md)",
    ),
    column("unit", "", "of the value; empty for pure numbers"),
    column("value", "as `unit` says", "the value"),
    column(
        "layer_min",
        "as `unit` says",
        "smallest finite value of the layer's heads",
    ),
    column(
        "layer_max",
        "as `unit` says",
        "largest finite value of the layer's heads",
    ),
    column(
        "model_min",
        "as `unit` says",
        "smallest finite value in the stack",
    ),
    column(
        "model_max",
        "as `unit` says",
        "largest finite value in the stack",
    ),
    column("from", "score", "where a bin begins"),
    column(
        "to",
        "score",
        "where it ends; the last one holds its end too",
    ),
    column(
        "count",
        "query–key pairs",
        "scores in the bin; past 4096 tokens, largest scores of tiles",
    ),
    column(
        "density",
        "1 / score",
        "the same such that all bins integrate to 1",
    ),
    column(
        "density_predicted",
        "1 / score",
        "in the middle of the bin, of the normal density that independent components would give",
    ),
    column("query", "position", "the query"),
    column("token", "", "the query's token"),
    column("visible_keys", "keys", "keys that the query sees"),
    column("entropy", "nats", "of the query's row"),
    column(
        "entropy_relative",
        "share",
        "divided by the logarithm of the visible keys",
    ),
    column("max_probability", "probability", "the largest of the row"),
    column("score_mean", "score", "mean of the row's visible scores"),
    column("score_std", "score", "their standard deviation"),
];

#[derive(Debug, Default, Serialize)]
struct Row {
    part: &'static str,
    stack: &'static str,
    layer: Option<usize>,
    head: Option<usize>,
    statistic: &'static str,
    unit: &'static str,
    value: Option<Figure>,
    layer_min: Option<Figure>,
    layer_max: Option<Figure>,
    model_min: Option<Figure>,
    model_max: Option<Figure>,
    from: Option<Figure>,
    to: Option<Figure>,
    count: Option<u64>,
    density: Option<Figure>,
    density_predicted: Option<Figure>,
    query: Option<usize>,
    token: String,
    visible_keys: Option<u32>,
    entropy: Option<Figure>,
    entropy_relative: Option<Figure>,
    max_probability: Option<Figure>,
    score_mean: Option<Figure>,
    score_std: Option<Figure>,
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let Some(layer) = app.layer() else {
        return Vec::new();
    };
    let Some(head) = layer.heads.get(app.selection.head_idx) else {
        return Vec::new();
    };
    let mut rows: Vec<Row> = (0..STATISTICS.len())
        .filter(|idx| app.knows(*idx))
        .map(|idx| statistic(app, layer, head, idx))
        .collect();
    if let Some(detail) = app.shown_detail() {
        rows.extend(bins(app, &detail.histogram, head));
    }
    rows.extend(queries(app, head));
    rows
}

/// The fields that all rows share.
fn of_selected(app: Scene<'_>) -> Row {
    Row {
        stack: stack_label(app),
        layer: Some(app.selection.layer_idx),
        head: Some(app.selection.head_idx),
        ..Row::default()
    }
}

fn statistic(app: Scene<'_>, layer: &LayerReport, head: &HeadReport, idx: usize) -> Row {
    let Ranges { in_layer, in_model } = ranges(app, layer, idx);
    let end = |value: f64| value.is_finite().then(|| value.into());
    let is_per_head = STATISTICS[idx].is_per_head();
    let value = if is_per_head {
        head.stats.at(idx)
    } else {
        layer.stats.at(idx)
    };
    Row {
        part: "statistic",
        head: is_per_head.then_some(app.selection.head_idx),
        statistic: STATISTICS[idx].id,
        unit: STATISTICS[idx].unit,
        value: Some(value.into()),
        layer_min: end(in_layer.0),
        layer_max: end(in_layer.1),
        model_min: end(in_model.0),
        model_max: end(in_model.1),
        ..of_selected(app)
    }
}

fn bins(app: Scene<'_>, histogram: &Histogram, head: &HeadReport) -> Vec<Row> {
    // Without scores, or with equal ones, there are no bins.
    if histogram.n == 0 || histogram.bin_width() == 0.0 {
        return Vec::new();
    }
    let variance = head.stats.of(Stat::ScoreVarPredicted);
    let end = |bin_idx: usize| f64::from(histogram.min) + bin_idx as f64 * histogram.bin_width();
    let densities = histogram.densities().into_iter().enumerate();
    let bin = |(bin_idx, (middle, density)): (usize, (f64, f64))| Row {
        part: "bin",
        from: Some(end(bin_idx).into()),
        to: Some(end(bin_idx + 1).into()),
        count: Some(histogram.counts[bin_idx]),
        density: Some(density.into()),
        density_predicted: (variance > 0.0).then(|| normal_density(variance, middle).into()),
        ..of_selected(app)
    };
    densities.map(bin).collect()
}

fn queries(app: Scene<'_>, head: &HeadReport) -> Vec<Row> {
    let rows = head.summary.rows.iter().enumerate();
    // Rows of padding, and of queries that see no key, have no figures.
    let rows = rows.filter(|(_, row)| row.is_real && row.n_visible > 0);
    let query = |(query_idx, row): (usize, &attnscope_compute::attention::RowSummary)| {
        let most = f64::from(row.n_visible).ln();
        Row {
            part: "query",
            query: Some(query_idx),
            token: app.raw_token(Axis::Query, query_idx).to_owned(),
            visible_keys: Some(row.n_visible),
            entropy: Some(row.entropy.into()),
            entropy_relative: (row.n_visible >= 2).then(|| (f64::from(row.entropy) / most).into()),
            max_probability: Some(row.top1.into()),
            score_mean: Some(row.score_mean.into()),
            score_std: Some(row.score_var.sqrt().into()),
            ..of_selected(app)
        }
    };
    rows.map(query).collect()
}
