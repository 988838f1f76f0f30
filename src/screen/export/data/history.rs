//! The data of the History panel: the chosen statistic of every head at every step, and the onsets.

use attnscope_spec::Place;

use attnscope_report::table::{Table, TableRow};
use attnscope_report::table_row;

use super::{Figure, PanelData};
use crate::state::panel::Panel;
use crate::state::scene::Scene;

pub static DATA: PanelData = PanelData {
    panel: Panel::History,
    parts: &[
        ("value", "a statistic of a head, or of a layer, at one step"),
        ("finding", "what begins at a step"),
    ],
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

table_row! {
    struct Row {
        part: &'static str, "", "kind of row";
        step: Option<u64>, "", "the training step, where it is known";
        name: String, "", "the checkpoint or the log";
        state: &'static str, "", "whether the step was read";
        loss: Option<Figure>, "nats", "the loss of the step";
        stack: &'static str, "", "which stack the layer belongs to";
        layer: Option<usize>, "", "the layer";
        head: Option<usize>, "", "the head";
        statistic: &'static str, "", "which statistic";
        value: Option<Figure>, "", "its value at the step";
        check: &'static str, "", "the check of a finding";
        severity: &'static str, "", "error, warning or info";
    }
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
