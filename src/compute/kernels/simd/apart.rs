//! Differences between two rows of probabilities or logits: the Jensen–Shannon divergence, and the sums behind the
//! Kullback–Leibler divergence.

use super::lanes::Lanes;
use super::level::{Kernel, Level};
use super::math::exp_of_negative;

/// Number of vectors summed in f32 before the sums are added in f64.
const FLUSH: usize = 16;
/// Largest r² for which [`SERIES`] is accurate to f32: neither probability exceeds three times the other.
const NEARLY: f32 = 0.25;
/// 1/(k(2k − 1)), last to first: coefficients of (1 + r)·ln(1 + r) + (1 − r)·ln(1 − r) as a series in r².
const SERIES: [f32; 9] = [
    1.0 / 153.0,
    1.0 / 120.0,
    1.0 / 91.0,
    1.0 / 66.0,
    1.0 / 45.0,
    1.0 / 28.0,
    1.0 / 15.0,
    1.0 / 6.0,
    1.0,
];

/// The Jensen–Shannon divergence of two rows, in nats; values that are not probabilities are ignored.
///
/// # Panics
/// When the lengths differ.
pub fn divergence(level: Level, a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "rows of one length");
    (0.5 * level.run(Divergence(a, b))).max(0.0)
}

struct Divergence<'a>(&'a [f32], &'a [f32]);

impl Kernel for Divergence<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> f64 {
        let (of_a, of_b) = (L::vectors(self.0), L::vectors(self.1));
        let n = of_a.len() * L::N;
        let (zero, one, half) = (l.splat(0.0), l.splat(1.0), l.splat(0.5));
        let nearly = l.splat(NEARLY);
        let mut all = 0.0f64;
        for (nth, (of_a, of_b)) in of_a.chunks(FLUSH).zip(of_b.chunks(FLUSH)).enumerate() {
            let (mut sum, mut n_left) = (zero, zero);
            for (a, b) in of_a.iter().zip(of_b) {
                let (apart, both) = (l.sub(*a, *b), l.add(*a, *b));
                let r = l.div(apart, both);
                let r2 = l.mul(r, r);
                let mut series = l.splat(SERIES[0]);
                for coefficient in &SERIES[1..] {
                    series = l.mul_add(series, r2, l.splat(*coefficient));
                }
                let term = l.mul(l.mul(l.mul(half, both), r2), series);
                let is_near = l.and(l.less_or_equal(r2, nearly), l.less(zero, both));
                let is_same = l.less_or_equal(l.abs(apart), zero);
                sum = l.add(sum, l.select(is_near, term, zero));
                let left = l.select(is_same, zero, l.select(is_near, zero, one));
                n_left = l.add(n_left, left);
            }
            all += f64::from(l.sum(sum));
            if l.sum(n_left) > 0.0 {
                let first = nth * FLUSH * L::N;
                let range = first..(first + FLUSH * L::N).min(n);
                let pairs = self.0[range.clone()].iter().zip(&self.1[range]);
                all += pairs.map(|(a, b)| of_pair(*a, *b, true)).sum::<f64>();
            }
        }
        let rest = self.0[n..].iter().zip(&self.1[n..]);
        all + rest.map(|(a, b)| of_pair(*a, *b, false)).sum::<f64>()
    }
}

/// p·ln(p/m) + q·ln(q/m) with m = (p + q)/2; with `is_rest`, 0 for pairs that the series covers.
fn of_pair(p: f32, q: f32, is_rest: bool) -> f64 {
    if p == q || !(p >= 0.0 && q >= 0.0 && p.is_finite() && q.is_finite()) {
        return 0.0;
    }
    let r = (p - q) / (p + q);
    let r2 = r * r;
    if r2 <= NEARLY {
        let series = SERIES.iter().fold(0.0, |sum, k| sum * r2 + k);
        return if is_rest {
            0.0
        } else {
            f64::from(0.5 * (p + q) * r2 * series)
        };
    }
    let (p, q) = (f64::from(p), f64::from(q));
    let part = |of: f64| {
        if of > 0.0 {
            of * (2.0 * of / (p + q)).ln()
        } else {
            0.0
        }
    };
    part(p) + part(q)
}

/// Σ e^(a − max)·(a − b), where `max` is at least the largest value of `a`; terms of weight 0 add nothing.
///
/// # Panics
/// When the lengths differ.
pub fn weighted_gap(level: Level, a: &[f32], b: &[f32], max: f32) -> f64 {
    assert_eq!(a.len(), b.len(), "rows of one length");
    level.run(WeightedGap { a, b, max })
}

struct WeightedGap<'a> {
    a: &'a [f32],
    b: &'a [f32],
    max: f32,
}

impl Kernel for WeightedGap<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> f64 {
        let (of_a, of_b) = (L::vectors(self.a), L::vectors(self.b));
        let n = of_a.len() * L::N;
        let (zero, max) = (l.splat(0.0), l.splat(self.max));
        let mut all = 0.0f64;
        for (of_a, of_b) in of_a.chunks(FLUSH).zip(of_b.chunks(FLUSH)) {
            let mut sum = zero;
            for (a, b) in of_a.iter().zip(of_b) {
                let weight = exp_of_negative(l, l.sub(*a, max));
                let weighted = l.mul(weight, l.sub(*a, *b));
                sum = l.add(sum, l.select(l.less(zero, weight), weighted, zero));
            }
            all += f64::from(l.sum(sum));
        }
        let rest = self.a[n..].iter().zip(&self.b[n..]).map(|(a, b)| {
            let weight = f64::from(a - self.max).exp();
            if weight > 0.0 {
                weight * f64::from(a - b)
            } else {
                0.0
            }
        });
        all + rest.sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels() -> impl Iterator<Item = Level> {
        Level::ALL.into_iter().filter(|level| level.is_available())
    }

    #[test]
    fn the_divergence_matches_its_definition_at_every_level() {
        for n in [1, 7, 16, 300, 1000] {
            for far in [1e-4, 0.3, 5.0, 60.0] {
                let of = |seed: usize| -> Vec<f32> {
                    let values = (0..n).map(|i| ((i * seed) % 101) as f32 / 101.0);
                    values
                        .map(|v| if v < 0.2 { 0.0 } else { v / n as f32 })
                        .collect()
                };
                let a = of(7919);
                let b: Vec<f32> = a
                    .iter()
                    .zip(of(104_729))
                    .map(|(a, other)| a * (1.0 + far) + far * other)
                    .collect();
                let part = |of: f64, both: f64| {
                    if of > 0.0 {
                        of * (2.0 * of / both).ln()
                    } else {
                        0.0
                    }
                };
                let pairs = a
                    .iter()
                    .zip(&b)
                    .map(|(a, b)| (f64::from(*a), f64::from(*b)));
                let expected: f64 = pairs.map(|(a, b)| part(a, a + b) + part(b, a + b)).sum();
                for level in levels() {
                    let found = 2.0 * divergence(level, &a, &b);
                    let bound = 1e-5 * expected.abs() + 1e-9;
                    assert!(
                        (found - expected).abs() <= bound,
                        "{n} {far}: {found} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn values_that_are_not_probabilities_are_ignored() {
        let mut a = vec![0.25; 40];
        let mut b = a.clone();
        (a[3], b[3]) = (f32::NAN, 0.5);
        (a[4], b[4]) = (-1.0, 0.5);
        (a[5], b[5]) = (f32::INFINITY, f32::INFINITY);
        for level in levels() {
            assert_eq!(divergence(level, &a, &b), 0.0);
        }
        (a[6], b[6]) = (1.0, 0.0);
        for level in levels() {
            let found = divergence(level, &a, &b);
            assert!((found - 0.5 * 2f64.ln()).abs() < 1e-6, "{found}");
        }
    }

    #[test]
    fn differences_of_logits_are_weighted_by_the_first_sides_probabilities() {
        for n in [3, 16, 500] {
            let a: Vec<f32> = (0..n)
                .map(|i| ((i * 7919) % 101) as f32 / 9.0 - 6.0)
                .collect();
            let mut b: Vec<f32> = a.iter().map(|v| 0.9 * v + 0.1).collect();
            b[1] += 1.0;
            let max = a.iter().copied().fold(f32::MIN, f32::max);
            let pairs = a
                .iter()
                .zip(&b)
                .map(|(a, b)| (f64::from(*a), f64::from(*b)));
            let expected: f64 = pairs
                .map(|(a, b)| (a - f64::from(max)).exp() * (a - b))
                .sum();
            for level in levels() {
                let found = weighted_gap(level, &a, &b, max);
                assert!(
                    (found - expected).abs() < 1e-5 * expected.abs().max(1.0),
                    "{n}"
                );
            }
        }
        let masked = [f32::NEG_INFINITY; 20];
        assert_eq!(weighted_gap(Level::best(), &masked, &masked, 0.0), 0.0);
    }
}
