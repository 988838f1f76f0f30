//! The data of the History panel: the chosen statistic of every head at every step, and the onsets.

use attnscope_spec::Place;
use serde::Serialize;

use super::{Column, Figure, HEAD, LAYER, PART, PanelData, STACK, Sheet, column};
use crate::state::panel::Panel;
use crate::state::scene::Scene;

pub static DATA: PanelData = PanelData {
    panel: Panel::History,
    parts: &[
        ("value", "a statistic of a head, or of a layer, at one step"),
        ("finding", "what begins at a step"),
    ],
    columns: COLUMNS,
    sheet: |app| Sheet::of(rows(app)),
};

const COLUMNS: &[Column] = &[
    PART,
    column("step", "", "the training step, where it is known"),
    column("name", "", "the checkpoint or the log"),
    column("state", "", "whether the step was read"),
    column("loss", "nats", "the loss of the step"),
    STACK,
    LAYER,
    HEAD,
    column("statistic", "", "which statistic"),
    column("value", "", "its value at the step"),
    column("check", "", "the check of a finding"),
    column("severity", "", "error, warning or info"),
];

#[derive(Debug, Default, Serialize)]
struct Row {
    part: &'static str,
    step: Option<u64>,
    name: String,
    state: &'static str,
    loss: Option<Figure>,
    stack: &'static str,
    layer: Option<usize>,
    head: Option<usize>,
    statistic: &'static str,
    value: Option<Figure>,
    check: &'static str,
    severity: &'static str,
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let Some(view) = &app.training else {
        return Vec::new();
    };
    let history = &view.history;
    let of = |record_idx: usize, place: Place| {
        let record = &history.records()[record_idx];
        Row {
            step: record.step,
            name: record.name.clone(),
            state: record.state.label(),
            loss: record.loss().map(Figure::from),
            stack: place.grid().label().unwrap_or_default(),
            layer: place.layer_idx,
            head: place.head_idx,
            ..Row::default()
        }
    };
    let id = app.statistic().id;
    let grid = history.grid();
    let mut rows = Vec::new();
    let read = (0..history.records().len()).filter(|idx| history.records()[*idx].numbers.is_some());
    for idx in read {
        for cell in 0..grid.n_cells() {
            rows.push(Row {
                part: "value",
                statistic: id,
                value: Some(history.at(idx, id, cell).into()),
                ..of(idx, grid.place(cell))
            });
        }
    }
    for finding in view.judge.findings() {
        rows.push(Row {
            part: "finding",
            statistic: finding.statistic,
            value: Some(finding.to.into()),
            check: finding.check,
            severity: finding.severity.label(),
            ..of(finding.begin, finding.place)
        });
    }
    rows
}
