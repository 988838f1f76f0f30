//! What stored values tell beside names and shapes: tables of sines, and sizes that a trainer stores.

use super::super::Facts;

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
    let (place, n) = facts.stated_anywhere(names, |value| value.as_u64().is_some_and(|n| n > 0))?;
    Some((place, n.as_u64()? as usize))
}
