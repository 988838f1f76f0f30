//! Sparse attention: of each query's keys, only those with the largest scores are kept.

use std::cmp::Ordering;

/// Leaves the `k` candidates with the largest scores, in any order. Of equal scores, the key with the lower index is kept. A NaN
/// counts as larger than every number, so that it stays visible.
pub(super) fn keep_largest(candidates: &mut Vec<(f32, usize)>, k: usize) {
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k, larger_first);
        candidates.truncate(k);
    }
}

fn larger_first(a: &(f32, usize), b: &(f32, usize)) -> Ordering {
    let by_score = match (a.0.is_nan(), b.0.is_nan()) {
        (false, false) => b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal),
        (a, b) => b.cmp(&a),
    };
    by_score.then(a.1.cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_and_ties_go_to_the_lower_index() {
        let kept = |scores: &[f32], k: usize| -> Vec<usize> {
            let mut all: Vec<(f32, usize)> = scores.iter().copied().zip(0..).collect();
            keep_largest(&mut all, k);
            let mut kept: Vec<usize> = all.into_iter().map(|(_, idx)| idx).collect();
            kept.sort_unstable();
            kept
        };
        assert_eq!(kept(&[1.0, 3.0, 2.0, 3.0], 1), [1]);
        assert_eq!(kept(&[1.0, 3.0, 2.0, 3.0], 3), [1, 2, 3]);
        assert_eq!(kept(&[0.0, -0.0, 0.0, 1.0], 3), [0, 1, 3]);
        assert_eq!(kept(&[1.0, f32::NAN, f32::INFINITY], 1), [1]);
        assert_eq!(kept(&[1.0, f32::NEG_INFINITY], 5), [0, 1]);
    }
}
