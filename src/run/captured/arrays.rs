//! Arrays split by head, and measurements over a whole layer of them.

use std::collections::BTreeMap;

use attnscope_checkpoint::captured::{Array, Captured};
use attnscope_compute::attention::Visibility;
use attnscope_compute::error::Result;
use attnscope_spec::Place;

use super::heads::Heads;
use super::layout::{Axes, Ordered};
use super::names::Part;

/// Array names of one attention, by the part that each array holds.
pub(super) type Parts = BTreeMap<Part, String>;

/// Reads an array as heads and keeps the first sequence of the batch.
///
/// # Errors
/// When the array has a number of axes that scores cannot have, or is empty.
pub(super) fn heads_of(captured: &Captured, name: &str, array: Array, axes: Axes) -> Result<Heads> {
    Ok(Ordered::of(captured, name, array, axes)?.first())
}

/// Highest score that a finite mask value produces; lower when 10 × the least other score is below it.
const MASKED: f32 = -5000.0;

/// Replaces scores hidden by a large finite number (−1e4, −1e9, the least value of a dtype) with −inf.
///
/// A score counts as hidden when it is far below all others and its probability is exactly 0, or when its whole row is that
/// low: a row without any visible key. // scores and pattern: [head, query, key]
pub(super) fn hide_masked(scores: &mut Heads, pattern: Option<&Heads>) {
    let others = scores.values.iter().filter(|s| **s > MASKED);
    let least = others.copied().fold(0.0, f32::min);
    let line = MASKED.min(10.0 * least);
    let n_keys = scores.dims[2];
    let is_masked = |score: f32| score <= line;
    if !scores.values.iter().any(|s| is_masked(*s) && s.is_finite()) {
        return;
    }
    for (row_idx, row) in scores.values.chunks_mut(n_keys).enumerate() {
        let found =
            pattern.map(|pattern| &pattern.values[row_idx * n_keys..(row_idx + 1) * n_keys]);
        let is_hidden = row.iter().all(|score| is_masked(*score));
        for (key_idx, score) in row.iter_mut().enumerate() {
            let is_nothing = found.is_none_or(|found| found[key_idx] == 0.0);
            if is_masked(*score) && (is_hidden || is_nothing) {
                *score = f32::NEG_INFINITY;
            }
        }
    }
}

/// How far row sums of these probabilities may differ from 1, by the coarsest float type that represents all of them exactly.
/// Arrays are often widened before they are saved, and an archive does not record their original dtype.
pub(super) fn tolerance_of(pattern: &[f32]) -> f64 {
    let telling = || pattern.iter().filter(|p| p.is_finite() && **p != 0.0);
    // Halves and quarters are exact in every float type and so say nothing about it.
    if telling().all(|p| p.to_bits() & 0x001f_ffff == 0) {
        return F32_TOLERANCE;
    }
    if telling().all(|p| half::bf16::from_f32(*p).to_f32() == *p) {
        BF16_TOLERANCE
    } else if telling().all(|p| half::f16::from_f32(*p).to_f32() == *p) {
        F16_TOLERANCE
    } else {
        F32_TOLERANCE
    }
}

/// Tolerances for the sum of a row's probabilities, by the dtype they were stored or computed in.
pub(crate) const F32_TOLERANCE: f64 = 1e-5;
pub(super) const F16_TOLERANCE: f64 = 5e-3;
pub(super) const BF16_TOLERANCE: f64 = 2e-2;

/// Largest |Σ over heads − 1| of a visible cell; `None` if there is only one head.
pub(super) fn head_axis_deviation(visibility: &Visibility, pattern: &Heads) -> Option<f64> {
    let [n_heads, n_queries, n_keys] = pattern.dims;
    if n_heads < 2 {
        return None;
    }
    let mut worst = 0.0f64;
    for query_idx in (0..n_queries).filter(|idx| visibility.is_real_query(*idx)) {
        for key_idx in (0..n_keys).filter(|key_idx| visibility.sees(query_idx, *key_idx)) {
            let at = query_idx * n_keys + key_idx;
            let sum: f64 = (0..n_heads)
                .map(|head_idx| f64::from(pattern.head(head_idx)[at]))
                .sum();
            worst = worst.max((sum - 1.0).abs());
        }
    }
    Some(worst)
}

/// Finds the first NaN or infinity, in scores before the pattern; −inf at a masked score does not count.
pub(crate) fn first_nonfinite(
    place: Place,
    what: &str,
    visibility: &Visibility,
    scores: Option<&Heads>,
    pattern: Option<&Heads>,
) -> Option<(Place, String)> {
    let found = |kind: &str, heads: &Heads, is_wrong: &dyn Fn(f32) -> bool| {
        let [_, n_queries, n_keys] = heads.dims;
        let is_found = |(at, value): &(usize, &f32)| {
            is_wrong(**value) && visibility.is_real_query(at / n_keys % n_queries)
        };
        let (at, value) = heads.values.iter().enumerate().find(is_found)?;
        let (head_idx, query_idx, key_idx) = (
            at / (n_queries * n_keys),
            at / n_keys % n_queries,
            at % n_keys,
        );
        let place = place.head(head_idx).query(query_idx).key(key_idx);
        let text = format!(
            "{what} head {head_idx}: the {kind} of query {query_idx}, key {key_idx} is {value}"
        );
        Some((place, text))
    };
    let in_scores =
        scores.and_then(|heads| found("score", heads, &|v| v.is_nan() || v == f32::INFINITY));
    in_scores.or_else(|| pattern.and_then(|heads| found("pattern", heads, &|v| !v.is_finite())))
}
