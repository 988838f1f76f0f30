//! Arrays under names of somebody's own, in a file whose metadata says that they are attention.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_checkpoint::captured::{Captured, states};
use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_spec::Stack;

use super::arrays::Parts;
use super::names::{Layer, Name};

/// Keys of the metadata that only a trace has.
const OF_TRACES: [&str; 6] = [
    "attnscope.mask",
    "attnscope.window",
    "attnscope.softmax_axis",
    "attnscope.documents",
    "attnscope.prefix",
    "attnscope.axes",
];

/// How far a probability may lie beyond 1 by rounding.
const ROUNDING: f32 = 0.02;

/// Whether a file's metadata says that its arrays are attention.
pub(super) fn states_attention(path: &Path) -> bool {
    states(path, |key| OF_TRACES.contains(&key))
}

/// Takes each array of three or four axes as the pattern of an attention, or as its scores if it holds what no probability is.
///
/// # Errors
/// When an array cannot be read.
pub(super) fn read(captured: &Captured, all: &mut BTreeMap<(Stack, Layer), Parts>) -> Result<()> {
    let states = |key: &str| captured.metadata.contains_key(key);
    if !OF_TRACES.into_iter().any(states) {
        return Ok(());
    }
    for stored in captured.names() {
        let is_array = captured
            .shape(stored)
            .is_some_and(|shape| (3..=4).contains(&shape.len()));
        if !is_array {
            continue;
        }
        let values = captured.array(stored)?.values;
        let is_share = |p: &f32| p.is_nan() || (0.0..=1.0 + ROUNDING).contains(p);
        let hook = if values.iter().all(is_share) {
            Hook::Pattern
        } else {
            Hook::Scores
        };
        let name = Name::of_module(stored, hook);
        all.entry((name.stack, name.layer))
            .or_default()
            .insert(hook, stored.to_owned());
    }
    Ok(())
}
