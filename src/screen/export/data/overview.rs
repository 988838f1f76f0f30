//! The data of the Overview panel: the statistic of every layer and head, and the figures of the selected head.

use attnscope_checks::stats::{Compute, Gather, HeadReport, HeadType, LayerReport, Stat};

use attnscope_report::table::{Table, TableRow};

use super::{Figure, PanelData, selected_head};
use crate::panels::head_value::why_undefined;
use crate::panels::overview::{self, figures};
use crate::state::panel::Panel;
use crate::state::scene::Scene;

pub static DATA: PanelData = PanelData {
    panel: Panel::Overview,
    parts: &[
        (
            "head",
            "a head and its value of the statistic that is shown; none where the statistic is the layer's alone",
        ),
        ("layer", "a layer and its value"),
        ("figure", "a key figure of the selected head"),
        (
            "cell",
            "a cell of the selected head's map, at most 64 × 64: the largest probability of its tile",
        ),
        (
            "pixel",
            "a pixel of a head's map in the atlas, as large as on the screen: the largest probability of the queries and keys it covers; masked ones are left out",
        ),
    ],
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

placed_row! {
    statistic: &'static str, "", "the statistic by its id, see [statistics.md](statistics.md); `probability` for cells and pixels";
    unit: &'static str, "", "of the value; empty for pure numbers";
    value: Option<Figure>, "as `unit` says", "the value";
    gathered: &'static str, "", "how a layer's value comes from its heads': `mean`, `max`, `min`; `layer` where it is the layer's own";
    kind as "type": &'static str, "", "what kind of place the head looks at, where one fits";
    finding: &'static str, "", "the worst severity that checks found at the place: `warning` or `error`";
    query: Option<usize>, "position", "first query of a cell or a pixel";
    query_last: Option<usize>, "position", "last query of a cell or a pixel";
    key: Option<usize>, "position", "first key of a cell or a pixel";
    key_last: Option<usize>, "position", "last key of a cell or a pixel";
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let grids = app.grids();
    let layers = || grids.iter().flat_map(|grid| app.layers_of(*grid));
    for layer in layers().filter(|_| app.statistic().is_per_head()) {
        rows.extend((0..layer.heads.len()).map(|head_idx| head(app, layer, head_idx)));
    }
    rows.extend(layers().map(|report| self::layer(app, report)));
    if let Some(selected) = app
        .layer()
        .and_then(|layer| layer.heads.get(app.selection.head_idx))
    {
        rows.extend(figures(app).map(|stat| figure(app, selected, stat)));
        rows.extend(cells(app, selected));
    }
    rows.extend(pixels(app));
    rows
}

fn head(app: Scene<'_>, layer: &LayerReport, head_idx: usize) -> Row {
    let head = &layer.heads[head_idx];
    let worst = app.worst_at(layer.stack, layer.layer_idx, Some(head_idx));
    Row {
        part: "head",
        head: Some(head_idx),
        value: known(
            app,
            layer,
            Some(head_idx),
            app.head_statistic(app.shown_side(), layer, head_idx),
        ),
        kind: head.kind.map_or("", HeadType::title),
        finding: worst.map_or("", |severity| severity.label()),
        ..of_layer(app, layer)
    }
}

/// The value of the chosen statistic, unless it is absent.
fn known(
    app: Scene<'_>,
    layer: &LayerReport,
    head_idx: Option<usize>,
    value: f64,
) -> Option<Figure> {
    let is_absent =
        value.is_nan() && why_undefined(app, layer.stack, layer.layer_idx, head_idx).is_some();
    (!is_absent).then(|| value.into())
}

fn layer(app: Scene<'_>, layer: &LayerReport) -> Row {
    let worst = app.worst_at(layer.stack, layer.layer_idx, None);
    Row {
        part: "layer",
        value: known(
            app,
            layer,
            None,
            app.layer_statistic(app.shown_side(), layer),
        ),
        gathered: match app.statistic().compute {
            Compute::Head(_, Gather::Mean) => "mean",
            Compute::Head(_, Gather::Max) => "max",
            Compute::Head(_, Gather::Min) => "min",
            Compute::Layer(_) => "layer",
        },
        finding: worst.map_or("", |severity| severity.label()),
        ..of_layer(app, layer)
    }
}

/// The fields shared by the rows of a layer and of its heads.
fn of_layer(app: Scene<'_>, layer: &LayerReport) -> Row {
    Row {
        statistic: app.statistic().id,
        unit: app.statistic().unit,
        ..Row::at(layer.place())
    }
}

fn figure(app: Scene<'_>, head: &HeadReport, stat: Stat) -> Row {
    Row {
        part: "figure",
        statistic: stat.id(),
        unit: stat.statistic().unit,
        value: head.stats.measured(stat.idx()).map(Figure::from),
        ..Row::at(selected_head(app))
    }
}

fn pixels(app: Scene<'_>) -> impl Iterator<Item = Row> {
    let pixels = overview::pixels(app).into_iter();
    pixels.map(|pixel| Row {
        part: "pixel",
        statistic: "probability",
        value: Some(pixel.value.into()),
        query: Some(pixel.queries.0),
        query_last: Some(pixel.queries.1),
        key: Some(pixel.keys.0),
        key_last: Some(pixel.keys.1),
        ..Row::at(pixel.place)
    })
}

fn cells(app: Scene<'_>, head: &HeadReport) -> Vec<Row> {
    let pooled = &head.summary.pooled;
    let n_queries = head.summary.rows.len();
    let n_keys = head.summary.column_sums.len();
    let places = (0..pooled.n_rows).flat_map(|row| (0..pooled.n_cols).map(move |col| (row, col)));
    let cell = |(row, col): (usize, usize)| {
        let [query, key] = [row * pooled.queries_per_cell, col * pooled.keys_per_cell];
        Row {
            part: "cell",
            statistic: "probability",
            value: Some(pooled.at(row, col).into()),
            query: Some(query),
            query_last: Some(
                (query + pooled.queries_per_cell)
                    .min(n_queries)
                    .saturating_sub(1),
            ),
            key: Some(key),
            key_last: Some((key + pooled.keys_per_cell).min(n_keys).saturating_sub(1)),
            ..Row::at(selected_head(app))
        }
    };
    places.map(cell).collect()
}
