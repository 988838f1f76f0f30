//! The data of the Sweep panel: the figures of the selected row and of all rows at every scale.

use serde::Serialize;

use super::{Column, Figure, HEAD, LAYER, PART, PanelData, STACK, Sheet, column, stack_label};
use crate::state::panel::Panel;
use crate::state::scene::Scene;

pub static DATA: PanelData = PanelData {
    panel: Panel::Sweep,
    parts: &[
        ("query", "the selected query's row at one scale"),
        ("head", "the mean over all rows of the head at one scale"),
        (
            "layer",
            "the mean over all rows of all heads of the layer, where they are swept (`a`)",
        ),
    ],
    columns: COLUMNS,
    sheet: |app| Sheet::of(rows(app)),
};

const COLUMNS: &[Column] = &[
    PART,
    STACK,
    LAYER,
    HEAD,
    column("query", "position", "the query, where it is one"),
    column(
        "scale",
        "",
        "what the scores are multiplied by; 1 is as they are",
    ),
    column("max_probability", "", "the largest weight"),
    column("entropy", "nats", "entropy of the weights"),
    column("relative_entropy", "", "the same, of log n"),
    column("keys_used", "keys", "e to the entropy"),
    column("jacobian_trace", "", "Σ p(1 − p)"),
];

#[derive(Debug, Default, Serialize)]
struct Row {
    part: &'static str,
    stack: &'static str,
    layer: Option<usize>,
    head: Option<usize>,
    query: Option<usize>,
    scale: Option<Figure>,
    max_probability: Option<Figure>,
    entropy: Option<Figure>,
    relative_entropy: Option<Figure>,
    keys_used: Option<Figure>,
    jacobian_trace: Option<Figure>,
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let Some(swept) = app.swept() else {
        return Vec::new();
    };
    let (query_idx, _) = app.crosshair();
    let mut parts = vec![
        ("query", Some(query_idx), swept.row.as_slice()),
        ("head", None, swept.all.as_slice()),
    ];
    parts.extend(app.swept_layer().map(|points| ("layer", None, points)));
    let rows = parts.into_iter().flat_map(|(part, query, points)| {
        points.iter().map(move |point| Row {
            part,
            stack: stack_label(app),
            layer: Some(app.selection.layer_idx),
            head: (part != "layer").then_some(app.selection.head_idx),
            query,
            scale: Some(point.scale.into()),
            max_probability: Some(point.max_probability.mean.into()),
            entropy: Some(point.entropy.mean.into()),
            relative_entropy: Some(point.relative_entropy.mean.into()),
            keys_used: Some(point.perplexity.mean.into()),
            jacobian_trace: Some(point.jacobian_trace.mean.into()),
        })
    });
    rows.collect()
}
