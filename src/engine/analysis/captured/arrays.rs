//! Arrays by heads, and what a whole layer of them shows beside each head.

use std::collections::BTreeMap;

use super::declared::Stated;
use super::names::{Layer, Part};
use crate::attention::Visibility;
use crate::checkpoint::captured::{Array, Captured};
use crate::checks::Place;
use crate::error::Result;
use crate::model::Stack;

/// Arrays of one attention, by what they are: the names under which they stand.
pub(super) type Parts = BTreeMap<Part, String>;

/// An array by heads.
pub(in crate::analysis) struct Heads {
    pub dims: [usize; 3],
    pub values: Vec<f32>,
}

impl Heads {
    pub fn head(&self, head_idx: usize) -> &[f32] {
        let n = self.dims[1] * self.dims[2];
        &self.values[head_idx * n..(head_idx + 1) * n]
    }

    /// [position, head, d_head] as [head, position, d_head].
    pub fn swapped(self) -> Self {
        let [n_positions, n_heads, d_head] = self.dims;
        let mut values = Vec::with_capacity(self.values.len());
        for head_idx in 0..n_heads {
            for position_idx in 0..n_positions {
                let at = (position_idx * n_heads + head_idx) * d_head;
                values.extend_from_slice(&self.values[at..at + d_head]);
            }
        }
        Self {
            dims: [n_heads, n_positions, d_head],
            values,
        }
    }
}

/// Head, query and key axes of an array, the first of a batch; and its values.
pub(super) fn heads_of(
    captured: &Captured,
    name: &str,
    array: Array,
) -> Result<([usize; 3], Vec<f32>)> {
    let Array { shape, mut values } = array;
    let dims = match *shape.as_slice() {
        [n_queries, n_keys] => [1, n_queries, n_keys],
        [n_heads, n_queries, n_keys] => [n_heads, n_queries, n_keys],
        [n_batch, n_heads, n_queries, n_keys] if n_batch > 0 => [n_heads, n_queries, n_keys],
        _ => {
            let problem = format!(
                "expected [head, query, key] or [batch, head, query, key], found shape {shape:?}"
            );
            return Err(captured.at(name, &problem));
        }
    };
    let n: usize = dims.iter().product();
    if n == 0 {
        return Err(captured.at(
            name,
            &format!("expected at least one head, query and key, found shape {shape:?}"),
        ));
    }
    values.truncate(n);
    Ok((dims, values))
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
pub(in crate::analysis) const F32_TOLERANCE: f64 = 1e-5;
pub(super) const F16_TOLERANCE: f64 = 5e-3;
pub(super) const BF16_TOLERANCE: f64 = 2e-2;

/// Infers the mask of each stack: causal where most heads have exactly 0 above the diagonal.
///
/// # Errors
/// When an array cannot be read.
pub(super) fn infer_mask(
    captured: &Captured,
    all: &BTreeMap<(Stack, Layer), Parts>,
    stated: &mut Stated,
) -> Result<()> {
    let mut counts: BTreeMap<Stack, (usize, usize)> = BTreeMap::new();
    for ((stack, _), parts) in all {
        let Some(name) = parts.get(&Part::Pattern).filter(|_| *stack != Stack::Cross) else {
            continue;
        };
        let (dims, values) = heads_of(captured, name, captured.array(name)?)?;
        let [_, n_queries, n_keys] = dims;
        if n_queries != n_keys || n_queries < 2 {
            continue;
        }
        let (n_heads, n_causal) = counts.entry(*stack).or_default();
        for head in values.chunks(n_queries * n_keys) {
            *n_heads += 1;
            let mut rows = head.chunks(n_keys).enumerate();
            let is_causal =
                rows.all(|(query_idx, row)| row[query_idx + 1..].iter().all(|p| *p == 0.0));
            *n_causal += usize::from(is_causal);
        }
    }
    let mut said = Vec::new();
    for (stack, (n_heads, n_causal)) in counts {
        let causal = 2 * n_causal > n_heads;
        stated.inferred.push((stack, causal));
        let direction = if causal { "causal" } else { "bidirectional" };
        let of = stack
            .label()
            .map_or(String::new(), |label| format!("{label} "));
        said.push(format!(
            "{of}{direction} inferred: {n_causal} of {n_heads} heads have exactly 0 above the diagonal"
        ));
    }
    stated.origin = if said.is_empty() {
        "no pattern to infer a mask from".to_owned()
    } else {
        format!("{} (--mask says otherwise)", said.join("; "))
    };
    Ok(())
}

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
pub(in crate::analysis) fn first_nonfinite(
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
