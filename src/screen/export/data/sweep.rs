//! The data of the Sweep panel: the figures of the selected row and of all rows at every scale.

use attnscope_report::table::{Table, TableRow};

use super::{Figure, PanelData, selected_head, selected_layer};
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
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

placed_row! {
    query: Option<usize>, "position", "the query, where it is one";
    scale: Option<Figure>, "", "what the scores are multiplied by; 1 is as they are";
    max_probability: Option<Figure>, "", "the largest weight";
    entropy: Option<Figure>, "nats", "entropy of the weights";
    relative_entropy: Option<Figure>, "", "the same, of log n";
    keys_used: Option<Figure>, "keys", "e to the entropy";
    jacobian_trace: Option<Figure>, "", "Σ p(1 − p)";
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
        let place = match part {
            "layer" => selected_layer(app),
            _ => selected_head(app),
        };
        points.iter().map(move |point| Row {
            part,
            query,
            scale: Some(point.scale.into()),
            max_probability: Some(point.max_probability.mean.into()),
            entropy: Some(point.entropy.mean.into()),
            relative_entropy: Some(point.relative_entropy.mean.into()),
            keys_used: Some(point.perplexity.mean.into()),
            jacobian_trace: Some(point.jacobian_trace.mean.into()),
            ..Row::at(place)
        })
    });
    rows.collect()
}
