//! What stories of two checkpoints have in common: stored curves, patterns side by side, numbers of a record.

use anyhow::Result;
use attnscope_compute::attention::HeadSummary;
use attnscope_report::{Map, Sheet};
use attnscope_run::Pyramid;
use serde_json::Value;

use super::ran::Ran;
use crate::bundles;

/// A number of a record; NaN where there is none.
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// One figure over the steps of a training, by where it stands in a point of the record.
pub fn curve(record: &Value, pointer: &str) -> Vec<(f64, f64)> {
    let points = record["curve"].as_array().into_iter().flatten();
    let figure = |point: &Value| number(point.pointer(pointer).unwrap_or(&Value::Null));
    points
        .map(|point| (number(&point["step"]), figure(point)))
        .collect()
}

/// What the trainer of a compiled-in checkpoint recorded.
///
/// # Errors
/// Never for a program that was built from a complete source tree.
pub fn record(bundle: &str) -> Result<Value> {
    bundles::named(bundle).map_or(Ok(Value::Null), |bundle| Ok(bundle.training()?))
}

/// The least and the largest of some numbers.
pub fn range(values: impl Iterator<Item = f32>) -> String {
    let (low, high) = values.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    format!("{low:.2}…{high:.2}")
}

/// The pattern of one head, with its sums.
fn sheet(summary: &HeadSummary) -> Sheet {
    Sheet {
        values: Pyramid::new(summary.pooled.clone()),
        row_sums: summary.rows.iter().map(|row| row.mass).collect(),
        column_sums: summary.column_sums.clone(),
    }
}

/// The pattern of one head, whichever head is selected.
pub fn head_map(title: &str, ran: &Ran, (layer_idx, head_idx): (usize, usize)) -> Map {
    let layer = ran.layers.get(layer_idx);
    let head = layer.and_then(|layer| layer.heads.get(head_idx));
    Map {
        title: title.to_owned(),
        row_labels: ran.labels(),
        column_labels: ran.given_labels(),
        is_pattern: true,
        sheets: vec![head.map(|head| sheet(&head.summary)).into_iter().collect()],
    }
}

/// The pattern of every head, with its sums.
pub fn pattern_map(title: &str, ran: &Ran) -> Map {
    let of_layers = ran.layers.iter().map(|layer| {
        let heads = layer.heads.iter();
        heads.map(|head| sheet(&head.summary)).collect()
    });
    Map {
        title: title.to_owned(),
        row_labels: ran.labels(),
        column_labels: ran.given_labels(),
        is_pattern: true,
        sheets: of_layers.collect(),
    }
}
