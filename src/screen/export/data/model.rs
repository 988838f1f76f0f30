//! The data of the Model panel: knobs, keys that were never read, tensors.

use std::collections::BTreeSet;

use attnscope_checkpoint::TensorInfo;
use attnscope_run::{Subject, TensorStats};
use serde::Serialize;

use super::{Column, Figure, PART, PanelData, Sheet, column};
use crate::state::panel::Panel;
use crate::state::scene::Scene;

pub static DATA: PanelData = PanelData {
    panel: Panel::Model,
    parts: &[
        (
            "tokenizer",
            "what ids come from, or why prompts can only be ids",
        ),
        ("knob", "a value of the configuration as it was understood"),
        ("unread", "a key of the configuration that was never read"),
        (
            "remark",
            "a sentence on how the checkpoint was opened and read",
        ),
        (
            "nonfinite",
            "the first NaN or infinity of the run, where there was one",
        ),
        ("tensor", "a tensor of the checkpoint"),
    ],
    columns: COLUMNS,
    sheet: |app| Sheet::of(rows(app)),
};

const COLUMNS: &[Column] = &[
    PART,
    column("name", "", "of the knob, key or tensor"),
    column(
        "value",
        "",
        "of the knob; what is said of tokenizer and NaN",
    ),
    column("origin", "", "where the knob's value comes from"),
    column("dtype", "", "of the tensor as stored"),
    column("shape", "", "of the tensor, `256×64`"),
    column("elements", "elements", "how many the tensor has"),
    column("bytes", "bytes", "what they take in the file"),
    column("is_used", "", "`true` where the model reads the tensor"),
    column(
        "min",
        "",
        "smallest finite value; here and to the right empty until it was asked for",
    ),
    column("max", "", "largest finite value"),
    column("mean", "", "mean of the finite values"),
    column("n_nan", "elements", "how many are NaN"),
    column("n_infinite", "elements", "how many are infinite"),
];

#[derive(Debug, Default, Serialize)]
struct Row {
    part: &'static str,
    name: String,
    value: String,
    origin: String,
    dtype: String,
    shape: String,
    elements: Option<usize>,
    bytes: Option<usize>,
    is_used: Option<bool>,
    min: Option<Figure>,
    max: Option<Figure>,
    mean: Option<Figure>,
    n_nan: Option<usize>,
    n_infinite: Option<usize>,
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let Some(subject) = app.subject() else {
        return Vec::new();
    };
    let mut rows = vec![Row {
        part: "tokenizer",
        value: app.tokenizer.clone(),
        ..Row::default()
    }];
    rows.extend(subject.knobs().iter().map(|knob| Row {
        part: "knob",
        name: knob.name.to_owned(),
        value: knob.value.clone(),
        origin: knob.origin.to_string(),
        ..Row::default()
    }));
    rows.extend(subject.unread_keys().iter().map(|key| Row {
        part: "unread",
        name: key.clone(),
        ..Row::default()
    }));
    rows.extend(subject.remarks().into_iter().map(|said| Row {
        part: "remark",
        value: said,
        ..Row::default()
    }));
    let nonfinite = app.run().and_then(|run| run.nonfinite.as_ref());
    rows.extend(nonfinite.map(|found| Row {
        part: "nonfinite",
        value: found.to_string(),
        ..Row::default()
    }));
    rows.extend(tensors(app, subject));
    rows
}

fn tensors(app: Scene<'_>, subject: &Subject) -> Vec<Row> {
    let tensors = subject.tensors();
    let unused: BTreeSet<&str> = subject.unused_tensors().into_iter().collect();
    let row = |(name, info): (&str, &TensorInfo)| {
        let stats: Option<&TensorStats> = match app.model_view.stats.get(name) {
            Some(Some(Some(stats))) => Some(stats),
            _ => None,
        };
        let shape: Vec<String> = info.shape.iter().map(usize::to_string).collect();
        Row {
            part: "tensor",
            name: name.to_owned(),
            dtype: info.dtype.to_string(),
            shape: shape.join("×"),
            elements: Some(info.n_elements()),
            bytes: Some(info.n_bytes()),
            is_used: Some(!unused.contains(name)),
            min: stats.map(|stats| stats.min.into()),
            max: stats.map(|stats| stats.max.into()),
            mean: stats.map(|stats| stats.mean.into()),
            n_nan: stats.map(|stats| stats.n_nan),
            n_infinite: stats.map(|stats| stats.n_infinite),
            ..Row::default()
        }
    };
    tensors.iter().map(row).collect()
}
