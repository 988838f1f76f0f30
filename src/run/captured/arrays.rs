//! Arrays split by head, and measurements over a whole layer of them.

use std::collections::BTreeMap;

use attnscope_checkpoint::Dtype;
use attnscope_checkpoint::captured::{Array, Captured};
use attnscope_compute::attention::Visibility;
use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_spec::Place;

use super::heads::Heads;
use super::layout::{Axes, Layout};

/// Array names of one attention, by the hook that each array holds.
pub(super) type Parts = BTreeMap<Hook, String>;

/// Reads an array as heads and keeps the first sequence of the batch.
///
/// # Errors
/// When the array cannot be read, has a number of axes that scores cannot have, or is empty.
pub(super) fn heads_of(captured: &Captured, name: &str, axes: Axes) -> Result<Heads> {
    let Array { shape, values } = captured.array(name)?;
    Ok(layout_of(captured, name, &shape, axes)?.first(values))
}

/// Finds the layout of an array.
///
/// # Errors
/// When the array has a number of axes that scores cannot have, or is empty.
pub(super) fn layout_of(
    captured: &Captured,
    name: &str,
    shape: &[usize],
    axes: Axes,
) -> Result<Layout> {
    Layout::of(shape, axes).ok_or_else(|| {
        let expected = if shape.contains(&0) {
            "at least one head, query and key"
        } else {
            "[head, query, key] or [batch, head, query, key]"
        };
        captured.at(name, &format!("expected {expected}, found shape {shape:?}"))
    })
}

/// Highest score that a finite mask value produces.
pub const MASKED: f32 = -5000.0;

/// Replaces scores hidden by a large finite number (−1e4, −1e9, the least value of a dtype) with −inf.
///
/// A score counts as hidden when it is far below all others and its probability is exactly 0, or when its whole row is that
/// low: a row without any visible key. Far below is 10 × the least other score, or [`MASKED`] if that is lower.
/// // scores and pattern: [head, query, key]
pub(super) fn hide_masked(scores: &mut Heads, pattern: Option<&Heads>) {
    // Nearly always nothing is that low, which one look at all values tells.
    if !has_any(&scores.values, |s| (s <= MASKED) & (s > f32::NEG_INFINITY)) {
        return;
    }
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

/// Coarsest float type that represents all values exactly. Arrays are often widened before they are saved, and an archive does
/// not record their original dtype.
pub fn coarsest_dtype(values: &[f32]) -> Dtype {
    let telling = || values.iter().filter(|v| v.is_finite() && **v != 0.0);
    // Halves and quarters are exact in every float type and so say nothing about it.
    if telling().all(|v| v.to_bits() & 0x001f_ffff == 0) {
        Dtype::F32
    } else if telling().all(|v| half::bf16::from_f32(*v).to_f32() == *v) {
        Dtype::Bf16
    } else if telling().all(|v| half::f16::from_f32(*v).to_f32() == *v) {
        Dtype::F16
    } else {
        Dtype::F32
    }
}

/// How far the sum of a row's probabilities may differ from 1 in f32.
pub(crate) const F32_TOLERANCE: f64 = 1e-5;

/// How far the sum of a row's probabilities may differ from 1, by the dtype they were stored or computed in.
pub(super) fn tolerance_of(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Bf16 => 2e-2,
        Dtype::F16 => 5e-3,
        _ => F32_TOLERANCE,
    }
}

/// Largest |Σ over heads − 1| of a visible cell; `None` if there is only one head.
pub(super) fn head_axis_deviation(visibility: &Visibility, pattern: &Heads) -> Option<f64> {
    let [n_heads, n_queries, n_keys] = pattern.dims;
    if n_heads < 2 {
        return None;
    }
    let mut worst = 0.0f64;
    let mut sums = vec![0.0f64; n_keys];
    for query_idx in (0..n_queries).filter(|idx| visibility.is_real_query(*idx)) {
        sums.fill(0.0);
        for head_idx in 0..n_heads {
            let row = &pattern.head(head_idx)[query_idx * n_keys..(query_idx + 1) * n_keys];
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, p)| *sum += f64::from(*p));
        }
        let seen = visibility.seen_by(query_idx);
        for key_idx in (0..n_keys).filter(|key_idx| seen.has(*key_idx)) {
            worst = worst.max((sums[key_idx] - 1.0).abs());
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
    let found = |kind: &str, heads: &Heads, is_wrong: fn(f32) -> bool| {
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
    // Nearly always there is nothing to find, which one look at all values without a branch tells.
    let scores =
        scores.filter(|heads| has_any(&heads.values, |v| v.is_nan() | (v == f32::INFINITY)));
    let pattern = pattern.filter(|heads| has_any(&heads.values, |v| !v.is_finite()));
    let in_scores =
        scores.and_then(|heads| found("score", heads, |v| v.is_nan() || v == f32::INFINITY));
    in_scores.or_else(|| pattern.and_then(|heads| found("pattern", heads, |v| !v.is_finite())))
}

/// Whether any value is such; looks at all of them.
fn has_any(values: &[f32], is_such: impl Fn(f32) -> bool) -> bool {
    values.iter().fold(false, |any, v| any | is_such(*v))
}
