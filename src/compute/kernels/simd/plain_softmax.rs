//! A softmax of one row in place, without further statistics.

use super::lanes::Lanes;
use super::level::{Kernel, Level};
use super::math::exp;
use super::scores::FLUSH;

/// Turns scores into probabilities in place; −∞ is a hidden key. Returns false, and fills zeros, if every score is hidden.
///
/// `extra` is the score of a sink: it takes its share but gives no output. A NaN makes the whole row NaN.
pub fn softmax_assign(level: Level, row: &mut [f32], extra: Option<f32>) -> bool {
    level.run(Softmax { row, extra })
}

struct Softmax<'a> {
    row: &'a mut [f32],
    extra: Option<f32>,
}

impl Kernel for Softmax<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> bool {
        let n_whole = self.row.len() / L::N * L::N;
        let (whole, rest) = self.row.split_at_mut(n_whole);
        let whole = L::vectors_mut(whole);
        let mut high = l.splat(f32::NEG_INFINITY);
        for vector in whole.iter() {
            // The vector maximum returns its second operand if one is NaN.
            high = l.max(*vector, high);
        }
        let high = L::values(&high).iter().chain(rest.iter()).copied();
        let max = high.fold(f32::NEG_INFINITY, f32::max);
        if max == f32::NEG_INFINITY {
            // Even if all other scores are hidden, a NaN makes the row NaN.
            let values = bytemuck::cast_slice::<L::Vector, f32>(whole);
            let is_broken = values.iter().chain(rest.iter()).any(|v| v.is_nan());
            let filled = if is_broken { f32::NAN } else { 0.0 };
            whole.fill(l.splat(filled));
            rest.fill(filled);
            return is_broken;
        }
        let max = self.extra.map_or(max, |extra| max.max(extra));
        let mut sum = self
            .extra
            .map_or(0.0, |extra| f64::from((extra - max).exp()));
        for vectors in whole.chunks_mut(FLUSH) {
            let mut part = l.splat(0.0);
            for vector in vectors {
                *vector = exp(l, l.sub(*vector, l.splat(max)));
                part = l.add(part, *vector);
            }
            sum += f64::from(l.sum(part));
        }
        for score in rest.iter_mut() {
            *score = (*score - max).exp();
            sum += f64::from(*score);
        }
        let share = (1.0 / sum) as f32;
        for vector in whole.iter_mut() {
            *vector = l.mul(*vector, l.splat(share));
        }
        for p in rest.iter_mut() {
            *p *= share;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference, in f64.
    fn expected(row: &[f32], extra: Option<f32>) -> Vec<f64> {
        let max = row
            .iter()
            .copied()
            .chain(extra)
            .fold(f32::NEG_INFINITY, f32::max);
        let power = |score: f32| f64::from(score - max).exp();
        let sum: f64 = row.iter().copied().chain(extra).map(power).sum();
        row.iter().map(|score| power(*score) / sum).collect()
    }

    #[test]
    fn a_row_of_any_length_matches_the_softmax_at_every_level_with_hidden_scores_and_a_sink() {
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            for n in [1, 3, 4, 15, 16, 17, 64, 1025, 2100] {
                for extra in [None, Some(0.0), Some(-3.5), Some(40.0)] {
                    let score = |i: usize| ((i * 37) % 101) as f32 * 0.3 - 11.0;
                    let hidden = |i: usize| i % 7 == 3 && n > 4;
                    let mut row: Vec<f32> = (0..n).map(score).collect();
                    (0..n)
                        .filter(|i| hidden(*i))
                        .for_each(|i| row[i] = f32::NEG_INFINITY);
                    let right = expected(&row, extra);
                    assert!(softmax_assign(level, &mut row, extra));
                    for (i, (p, right)) in row.iter().zip(&right).enumerate() {
                        let off = (f64::from(*p) - right).abs();
                        assert!(
                            off <= 1e-6 * right + 1e-37,
                            "{level:?} {n} {extra:?} {i}: {p} {right}"
                        );
                        assert!(!hidden(i) || *p == 0.0);
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_without_scores_becomes_zeros_and_a_nan_spreads_over_the_whole_row() {
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let mut row = vec![f32::NEG_INFINITY; 37];
            assert!(!softmax_assign(level, &mut row, None));
            assert!(row.iter().all(|p| *p == 0.0));
            for at in [0, 20, 36] {
                for rest in [f32::NEG_INFINITY, 1.0] {
                    let mut row = vec![rest; 37];
                    row[at] = f32::NAN;
                    assert!(softmax_assign(level, &mut row, None));
                    assert!(row.iter().all(|p| p.is_nan()), "{level:?} {at} {rest}");
                }
            }
        }
    }
}
