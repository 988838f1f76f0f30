//! Normalisers that produce exact zeros: sparsemax, and entmax with α = 1.5.

/// The point of the probability simplex that is nearest to the scores.
pub fn sparsemax(scores: &[f64]) -> Vec<f64> {
    let mut sorted = scores.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut threshold) = (0.0, f64::NEG_INFINITY);
    for (idx, score) in sorted.iter().enumerate() {
        sum += score;
        let n = (idx + 1) as f64;
        if 1.0 + n * score > sum {
            threshold = (sum - 1.0) / n;
        }
    }
    scores.iter().map(|s| (s - threshold).max(0.0)).collect()
}

/// max(score / 2 − τ, 0)², with τ chosen so that the row sums to 1.
pub fn entmax15(scores: &[f64]) -> Vec<f64> {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let halves: Vec<f64> = scores.iter().map(|s| (s - max) / 2.0).collect();
    let mass = |tau: f64| -> f64 { halves.iter().map(|h| (h - tau).max(0.0).powi(2)).sum() };
    // The mass decreases with τ: at −1 the largest score alone gives 1, at 0 nothing is left.
    let (mut low, mut high) = (-1.0, 0.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if mass(middle) > 1.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let tau = 0.5 * (low + high);
    halves.iter().map(|h| (h - tau).max(0.0).powi(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether p is optimal: all keys in use have the same gradient, and no other key has a larger one.
    fn is_optimal(scores: &[f64], p: &[f64], gradient: &dyn Fn(f64) -> f64) -> bool {
        let of = |idx: &usize| scores[*idx] - gradient(p[*idx]);
        let used: Vec<usize> = (0..p.len()).filter(|idx| p[*idx] > 0.0).collect();
        let level = of(&used[0]);
        let unused = (0..p.len()).filter(|idx| p[*idx] == 0.0);
        used.iter().all(|idx| (of(idx) - level).abs() < 1e-6)
            && unused
                .map(|idx| of(&idx))
                .all(|value| value <= level + 1e-6)
            && (p.iter().sum::<f64>() - 1.0).abs() < 1e-9
    }

    #[test]
    fn sparsemax_and_entmax_solve_their_defining_problems() {
        for seed in 0..50u64 {
            let scores: Vec<f64> = (0..9u64)
                .map(|idx| ((seed * 31 + idx * 17) % 23) as f64 / 6.0 - 1.5)
                .collect();
            // The objectives are ⟨p, s⟩ − ½‖p‖², and ⟨p, s⟩ − Σ p^1.5 / 0.75.
            assert!(is_optimal(&scores, &sparsemax(&scores), &|p| p));
            assert!(is_optimal(&scores, &entmax15(&scores), &|p| 2.0 * p.sqrt()));
        }
        assert_eq!(sparsemax(&[3.0]), [1.0]);
        assert!((entmax15(&[3.0])[0] - 1.0).abs() < 1e-9);
    }
}
