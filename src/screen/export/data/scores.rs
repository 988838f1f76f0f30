//! The data of the Scores panel: the head's statistics with its layer's and the model's, its histogram, and its rows.

use attnscope_checks::stats::{HeadReport, LayerReport, STATISTICS, Stat};
use attnscope_run::Histogram;

use attnscope_report::table::{Table, TableRow};

use super::{Figure, PanelData, selected_head};
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
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

placed_row! {
    statistic: &'static str, "", "the statistic by its id, see [statistics.md](statistics.md)";
    unit: &'static str, "", "of the value; empty for pure numbers";
    value: Option<Figure>, "as `unit` says", "the value";
    layer_min: Option<Figure>, "as `unit` says", "smallest finite value of the layer's heads";
    layer_max: Option<Figure>, "as `unit` says", "largest finite value of the layer's heads";
    model_min: Option<Figure>, "as `unit` says", "smallest finite value in the stack";
    model_max: Option<Figure>, "as `unit` says", "largest finite value in the stack";
    from: Option<Figure>, "score", "where a bin begins";
    to: Option<Figure>, "score", "where it ends; the last one holds its end too";
    count: Option<u64>, "query–key pairs", "scores in the bin; past 4096 tokens, largest scores of tiles";
    density: Option<Figure>, "1 / score", "the same such that all bins integrate to 1";
    density_predicted: Option<Figure>, "1 / score", "in the middle of the bin, of the normal density that independent components would give";
    query: Option<usize>, "position", "the query";
    token: String, "", "the query's token";
    visible_keys: Option<u32>, "keys", "keys that the query sees";
    entropy: Option<Figure>, "nats", "of the query's row";
    entropy_relative: Option<Figure>, "share", "divided by the logarithm of the visible keys";
    max_probability: Option<Figure>, "probability", "the largest of the row";
    score_mean: Option<Figure>, "score", "mean of the row's visible scores";
    score_std: Option<Figure>, "score", "their standard deviation";
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

fn statistic(app: Scene<'_>, layer: &LayerReport, head: &HeadReport, idx: usize) -> Row {
    let Ranges { in_layer, in_model } = ranges(app, layer, idx);
    let end = |value: f64| value.is_finite().then(|| value.into());
    let is_per_head = STATISTICS[idx].is_per_head();
    let value = if is_per_head {
        head.stats.measured(idx)
    } else {
        layer.stats.measured(idx)
    };
    Row {
        part: "statistic",
        head: is_per_head.then_some(app.selection.head_idx),
        statistic: STATISTICS[idx].id,
        unit: STATISTICS[idx].unit,
        value: value.map(Figure::from),
        layer_min: end(in_layer.0),
        layer_max: end(in_layer.1),
        model_min: end(in_model.0),
        model_max: end(in_model.1),
        ..Row::at(selected_head(app))
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
        ..Row::at(selected_head(app))
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
            ..Row::at(selected_head(app))
        }
    };
    rows.map(query).collect()
}
