//! The data of the Model panel: knobs, keys that were never read, tensors.

use std::collections::BTreeSet;

use attnscope_checkpoint::TensorInfo;
use attnscope_run::{Subject, TensorStats};

use attnscope_report::table::{Table, TableRow};
use attnscope_report::table_row;

use super::{Figure, PanelData};
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
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

table_row! {
    struct Row {
        part: &'static str, "", "kind of row";
        name: String, "", "of the knob, key or tensor";
        value: String, "", "of the knob; what is said of tokenizer and NaN";
        origin: String, "", "where the knob's value comes from";
        dtype: String, "", "of the tensor as stored";
        shape: String, "", "of the tensor, `256×64`";
        elements: Option<usize>, "elements", "how many the tensor has";
        bytes: Option<usize>, "bytes", "what they take in the file";
        is_used: Option<bool>, "", "`true` where the model reads the tensor";
        min: Option<Figure>, "", "smallest finite value; here and to the right empty until it was asked for";
        max: Option<Figure>, "", "largest finite value";
        mean: Option<Figure>, "", "mean of the finite values";
        n_nan: Option<usize>, "elements", "how many are NaN";
        n_infinite: Option<usize>, "elements", "how many are infinite";
    }
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
