//! The data of the Effect panel: the value of every head and part, the logit lens and the path of the logit.

use attnscope_report::table::{Table, TableRow};

use super::{Figure, PanelData};
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
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

placed_row! {
    measure: &'static str, "", "attribution, ablation, contribution or copying";
    name: String, "", "what the part is called, or the likeliest token of the lens";
    value: Option<Figure>, "", "the measure's value, the logit so far, or the probability of the likeliest token";
    depth: Option<usize>, "layers", "how many layers have run";
    kl: Option<Figure>, "nats", "KL(last layer ‖ this depth)";
    rank: Option<usize>, "", "place of the token that follows among all, from 1";
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
            measure,
            name: place.to_string(),
            value: Some((*value).into()),
            ..Row::at(*place)
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
