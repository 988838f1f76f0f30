//! Arrays by heads, and what a whole layer of them shows beside each head.

use std::collections::BTreeMap;

use attnscope_checkpoint::captured::{Array, Captured};
use attnscope_compute::attention::Visibility;
use attnscope_compute::error::Result;
use attnscope_spec::Place;

use super::heads::Heads;
use super::layout::{Axes, Ordered};
use super::names::Part;

/// Arrays of one attention, by what they are: the names under which they stand.
pub(super) type Parts = BTreeMap<Part, String>;

/// Reads an array by heads, the first of a batch.
///
/// # Errors
/// When the array has another number of axes than scores have, or is empty.
pub(super) fn heads_of(captured: &Captured, name: &str, array: Array, axes: Axes) -> Result<Heads> {
    Ok(Ordered::of(captured, name, array, axes)?.first())
}

/// Masks of a finite number lie at or below this, or at ten times the least other score.
const MASKED: f32 = -5000.0;

/// Writes −inf for scores that a large finite number hides (−1e4, −1e9, the least of a dtype), as code does that avoids −inf.
///
/// A score is such a one when it lies far below all others and its probability is exactly 0, or when its whole row does: a row
/// without any visible key. // scores and pattern: [head, query, key]
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

/// How far sums of these probabilities may lie from 1, by the coarsest kind of float that holds them all: arrays are often
/// widened before they are saved, and an archive does not say what they were.
pub(super) fn tolerance_of(pattern: &[f32]) -> f64 {
    let telling = || pattern.iter().filter(|p| p.is_finite() && **p != 0.0);
    // Halves and quarters fit any kind of float: they say nothing.
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

/// Sums of a row's probabilities, by what they were stored or computed in.
pub(crate) const F32_TOLERANCE: f64 = 1e-5;
pub(super) const F16_TOLERANCE: f64 = 5e-3;
pub(super) const BF16_TOLERANCE: f64 = 2e-2;

/// Largest |Σ over heads − 1| of a visible cell; `None` for one head.
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

/// The first NaN or infinity, scores before pattern; −inf at a masked score is none.
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
