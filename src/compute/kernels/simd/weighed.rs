//! Sums over one row of weights, each multiplied by a number of its key: for contributions and their entropy.

use std::ops::Range;

use super::lanes::Lanes;
use super::level::{Kernel, Level};
use super::scores::{FLUSH, Span};

/// One number per key, padded to the length of a row of scores, with precomputed terms for the entropy.
#[derive(Debug, Clone, Default)]
pub struct KeyNorms {
    /// n ≥ 0. // [key]
    numbers: Vec<f32>,
    /// n log n, with 0 log 0 = 0. // [key]
    times_logs: Vec<f32>,
    /// Common factor that the numbers were divided by.
    unit: f64,
}

impl KeyNorms {
    /// `width` is that of a row of scores; padding has weight 0. The numbers are divided by the largest, so that their logarithms
    /// lose no digits.
    pub fn new(numbers: &[f32], width: usize) -> Self {
        let unit = unit_of(numbers);
        let mut numbers: Vec<f32> = numbers.iter().map(|n| n / unit).collect();
        numbers.resize(width, 0.0);
        let times_log = |n: &f32| if *n == 0.0 { 0.0 } else { n * n.ln() };
        Self {
            times_logs: numbers.iter().map(times_log).collect(),
            numbers,
            unit: f64::from(unit),
        }
    }

    /// The smallest sum whose shares can be computed.
    pub fn least_shared(&self) -> f64 {
        LEAST_SHARED * self.unit
    }
}

/// Shares of a sum smaller than this times the largest number are not computed: its terms have no digits left in f32.
pub const LEAST_SHARED: f64 = 1e-30;

/// The largest number; 1 if none is positive and finite.
pub fn unit_of(numbers: &[f32]) -> f32 {
    let most = numbers.iter().copied().fold(0.0f32, f32::max);
    if most > 0.0 && most.is_finite() {
        most
    } else {
        1.0
    }
}

/// Sums of c = w·n over a row of weights w.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WeighedSums {
    /// Σ c.
    pub sum: f64,
    /// −Σ (c/Σc) log (c/Σc), which does not depend on the scale of the weights; 0 if the sum is 0.
    pub entropy: f64,
}

/// Sums a row. `weights` are e^(s − reference), 0 where not visible; `log_sums` holds each key's own reference if there is no
/// common one.
pub fn contribution_sums(
    level: Level,
    weights: &[f32],
    scores: &[f32],
    range: Range<usize>,
    keys: &KeyNorms,
    (reference, log_sums): (f32, &[f32]),
) -> WeighedSums {
    let (sum, with_logs) = level.run(WeighedRow {
        weights,
        scores,
        range,
        keys,
        reference,
        log_sums,
    });
    // Σ (c/t) log (c/t) = Σ c log c / t − log t.
    let entropy = sum.ln() - with_logs / sum;
    WeighedSums {
        sum: sum * keys.unit,
        entropy: if sum > 0.0 || sum.is_nan() {
            entropy
        } else {
            0.0
        },
    }
}

struct WeighedRow<'a> {
    weights: &'a [f32],
    scores: &'a [f32],
    range: Range<usize>,
    keys: &'a KeyNorms,
    reference: f32,
    /// Empty if all keys have one reference.
    log_sums: &'a [f32],
}

impl Kernel for WeighedRow<'_> {
    /// Returns Σ w·n and Σ w·n·(log w + log n).
    type Output = (f64, f64);

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> (f64, f64) {
        let span = Span::of::<L>(&self.range);
        let width = span.end * L::N;
        let part = |values: &'_ [f32]| -> Range<usize> {
            debug_assert!(values.len() >= width);
            span.start..span.end
        };
        let weights = &L::vectors(&self.weights[..width])[part(self.weights)];
        let scores = &L::vectors(&self.scores[..width])[part(self.scores)];
        let numbers = &L::vectors(&self.keys.numbers[..width])[part(&self.keys.numbers)];
        let times_logs = &L::vectors(&self.keys.times_logs[..width])[part(&self.keys.times_logs)];
        let log_sums = if self.log_sums.is_empty() {
            None
        } else {
            Some(&L::vectors(&self.log_sums[..width])[part(self.log_sums)])
        };
        let (zero, common) = (l.splat(0.0), l.splat(self.reference));
        let (mut sum, mut with_logs) = (0.0f64, 0.0f64);
        for start in (0..weights.len()).step_by(FLUSH) {
            let end = (start + FLUSH).min(weights.len());
            let (mut own, mut own_logs) = (zero, zero);
            for at in start..end {
                let reference = log_sums.map_or(common, |all| all[at]);
                let below = l.sub(scores[at], reference);
                // Values beyond the row, or at hidden keys, are not scores.
                let is_seen = l.less(zero, weights[at]);
                let weighed = l.select(is_seen, l.mul(weights[at], numbers[at]), zero);
                let below = l.select(is_seen, below, zero);
                own = l.add(own, weighed);
                own_logs = l.mul_add(weighed, below, own_logs);
                own_logs = l.mul_add(weights[at], times_logs[at], own_logs);
            }
            sum += f64::from(l.sum(own));
            with_logs += f64::from(l.sum(own_logs));
        }
        (sum, with_logs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_entropy_match_their_definitions() {
        let n = 203;
        let of = |i: usize, k: usize| ((i * k) % 101) as f32 / 101.0;
        let scores: Vec<f32> = (0..256).map(|i| 3.0 * of(i, 37) - 1.0).collect();
        let norms: Vec<f32> = (0..n)
            .map(|i| if i % 7 == 0 { 0.0 } else { 40.0 * of(i, 53) })
            .collect();
        let range = 5..n - 3;
        let mut weights = vec![0.0f32; 256];
        for i in range.clone().filter(|i| i % 11 != 0) {
            weights[i] = (scores[i] - 2.0).exp();
        }
        let keys = KeyNorms::new(&norms, 256);
        let c: Vec<f64> = (0..n)
            .map(|i| f64::from(weights[i]) * f64::from(norms[i]))
            .collect();
        let sum: f64 = c.iter().sum();
        let shares = c.iter().filter(|c| **c > 0.0).map(|c| c / sum);
        let entropy: f64 = shares.map(|p| -p * p.ln()).sum();
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let found =
                contribution_sums(level, &weights, &scores, range.clone(), &keys, (2.0, &[]));
            assert!((found.sum / sum - 1.0).abs() < 1e-5, "{level:?}: {found:?}");
            assert!(
                (found.entropy - entropy).abs() < 1e-5,
                "{level:?}: {found:?} {entropy}"
            );
        }
        let references = vec![2.0; 256];
        let level = Level::current();
        let found = contribution_sums(level, &weights, &scores, range, &keys, (9.0, &references));
        assert!((found.entropy - entropy).abs() < 1e-5);
        let nothing = contribution_sums(level, &[0.0; 64], &[1.0; 64], 0..64, &keys, (0.0, &[]));
        assert_eq!(nothing, WeighedSums::default());
    }
}
