//! What stored values tell beside names and shapes: tables of sines, and sizes that a trainer stores.

use serde_json::Value;

use super::super::Facts;

/// What trainers call the number of heads.
pub const HEADS: [&str; 8] = [
    "n_heads",
    "n_head",
    "num_heads",
    "nhead",
    "heads",
    "num_attention_heads",
    "n_attn_heads",
    "head_count",
];

/// Whether a table of positions holds sines and cosines: the first position has zeros and ones.
pub fn holds_sines(facts: &Facts<'_>, name: &str) -> bool {
    let shape = facts.shape(name).and_then(<[usize]>::last).copied();
    let values = facts.tensors.get(name).and_then(|view| view.widen().ok());
    let (Some(width), Some(values)) = (shape, values) else {
        return false;
    };
    let first = values.get(..width).unwrap_or_default();
    let n = |wanted: f32| first.iter().filter(|value| **value == wanted).count();
    let (zeros, ones) = (n(0.0), n(1.0));
    zeros + ones == width && zeros.abs_diff(ones) <= 1
}

/// A size that a trainer stores beside the weights, in any of its dictionaries.
pub fn stated(facts: &Facts<'_>, names: &[&str]) -> Option<(String, usize)> {
    let of = |place: &str, values: &Value| {
        names.iter().find_map(|name| {
            let n = values.get(name)?.as_u64().filter(|n| *n > 0)?;
            Some((format!("{place} {name}"), n as usize))
        })
    };
    let inside = facts
        .plain_values
        .iter()
        .find_map(|(place, values)| of(place, values));
    inside.or_else(|| {
        let whole = Value::Object(facts.plain_values.clone());
        of("the file's", &whole)
    })
}
