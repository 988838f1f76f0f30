//! The data of the Effect panel: the value of every head and part, the logit lens and the path of the logit.

use serde::Serialize;

use super::{Column, Figure, HEAD, LAYER, PART, PanelData, STACK, Sheet, column};
use crate::state::panel::Panel;
use crate::state::scene::Scene;

pub static DATA: PanelData = PanelData {
    panel: Panel::Effect,
    parts: &[
        ("head", "a head, by the measure"),
        ("other", "another part that a logit is made of"),
        (
            "lens",
            "what the residual after some layers predicts at the selected query",
        ),
        ("path", "the sum of all shares of the logit up to a depth"),
    ],
    columns: COLUMNS,
    sheet: |app| Sheet::of(rows(app)),
};

const COLUMNS: &[Column] = &[
    PART,
    STACK,
    LAYER,
    HEAD,
    column(
        "measure",
        "",
        "attribution, ablation, contribution or copying",
    ),
    column(
        "name",
        "",
        "what the part is called, or the likeliest token of the lens",
    ),
    column(
        "value",
        "",
        "the measure's value, the logit so far, or the probability of the likeliest token",
    ),
    column("depth", "layers", "how many layers have run"),
    column("kl", "nats", "KL(last layer ‖ this depth)"),
    column(
        "rank",
        "",
        "place of the token that follows among all, from 1",
    ),
];

#[derive(Debug, Default, Serialize)]
struct Row {
    part: &'static str,
    stack: &'static str,
    layer: Option<usize>,
    head: Option<usize>,
    measure: &'static str,
    name: String,
    value: Option<Figure>,
    depth: Option<usize>,
    kl: Option<Figure>,
    rank: Option<usize>,
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let Some(shown) = app.effects() else {
        return Vec::new();
    };
    let measure = app.effect_view.measure.title();
    let heads = app.ranked_effects();
    let mut rows: Vec<Row> = heads
        .iter()
        .map(|(place, value)| Row {
            part: "head",
            stack: place.grid().label().unwrap_or_default(),
            layer: place.layer_idx,
            head: place.head_idx,
            measure,
            name: place.to_string(),
            value: Some((*value).into()),
            ..Row::default()
        })
        .collect();
    rows.extend(shown.others.iter().map(|(name, value)| Row {
        part: "other",
        measure,
        name: name.clone(),
        value: Some((*value).into()),
        ..Row::default()
    }));
    rows.extend(shown.lens.iter().map(|row| {
        let top = row.top.first();
        let name = top.and_then(|(id, _)| shown.labels.get(id)).cloned();
        Row {
            part: "lens",
            name: name.unwrap_or_default(),
            value: top.map(|(_, p)| (*p).into()),
            depth: Some(row.depth),
            kl: Some(row.kl.into()),
            rank: row.rank,
            ..Row::default()
        }
    }));
    rows.extend(shown.path.iter().enumerate().map(|(depth, value)| Row {
        part: "path",
        measure,
        value: Some((*value).into()),
        depth: Some(depth),
        ..Row::default()
    }));
    rows
}
