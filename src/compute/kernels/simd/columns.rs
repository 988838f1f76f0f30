//! Column statistics of a block of weights: sum and maximum per key; and log Σ exp over queries.

use std::ops::Range;

use super::lanes::Lanes;
use super::level::{Kernel, Level};
use super::math::exp_of_negative;

/// Rows read together, so that a column's sum is loaded once for all of them.
const ROWS: usize = 4;

/// Adds factor·weight of some rows to `sums`, and updates `maxima` with it, for a range of keys.
///
/// `factors` has one value per row: 1 over the row's sum, or 0 for a row that is ignored. `keys` is widened to whole vectors.
/// // weights: [row, stride]; sums, maxima: [key]
pub fn add_columns(
    level: Level,
    weights: &[f32],
    stride: usize,
    factors: &[f32],
    keys: Range<usize>,
    sums: &mut [f32],
    maxima: &mut [f32],
) {
    level.run(AddColumns {
        weights,
        stride,
        factors,
        keys,
        sums,
        maxima,
    });
}

struct AddColumns<'a> {
    weights: &'a [f32],
    stride: usize,
    factors: &'a [f32],
    keys: Range<usize>,
    sums: &'a mut [f32],
    maxima: &'a mut [f32],
}

impl Kernel for AddColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let n_rows = self.factors.len();
        let mut row_idx = 0;
        while row_idx < n_rows {
            if row_idx + ROWS <= n_rows {
                self.rows::<L, ROWS>(l, row_idx);
                row_idx += ROWS;
            } else {
                self.rows::<L, 1>(l, row_idx);
                row_idx += 1;
            }
        }
    }
}

impl AddColumns<'_> {
    #[inline(always)]
    fn rows<L: Lanes, const N: usize>(&mut self, l: L, row_idx: usize) {
        let keys = self.keys.start / L::N * L::N..self.keys.end.next_multiple_of(L::N);
        let n = keys.len() / L::N;
        let factors: [L::Vector; N] = std::array::from_fn(|i| l.splat(self.factors[row_idx + i]));
        let weights: [&[L::Vector]; N] = std::array::from_fn(|i| {
            let row = &self.weights[(row_idx + i) * self.stride..][keys.clone()];
            &L::vectors(row)[..n]
        });
        let sums = &mut L::vectors_mut(&mut self.sums[keys.clone()])[..n];
        let maxima = &mut L::vectors_mut(&mut self.maxima[keys])[..n];
        for at in 0..n {
            let (mut sum, mut max) = (sums[at], maxima[at]);
            for i in 0..N {
                let p = l.mul(weights[i][at], factors[i]);
                sum = l.add(sum, p);
                max = l.max(max, p);
            }
            (sums[at], maxima[at]) = (sum, max);
        }
    }
}

/// log Σ over queries of e^s per key, accumulated over blocks of queries.
#[derive(Debug, Clone)]
pub struct ColumnLogSums {
    max: Vec<f32>,
    sum: Vec<f64>,
}

impl ColumnLogSums {
    pub fn new(n_keys: usize) -> Self {
        Self {
            max: vec![f32::NEG_INFINITY; n_keys],
            sum: vec![0.0; n_keys],
        }
    }

    /// Adds some rows of scores (−∞ where masked) over the keys in `keys`. // scores: [row, stride]
    pub fn add(
        &mut self,
        level: Level,
        scores: &[f32],
        stride: usize,
        n_rows: usize,
        keys: Range<usize>,
    ) {
        let width = keys.len();
        let mut max = vec![f32::NEG_INFINITY; width.next_multiple_of(16)];
        let mut sum = vec![0.0; max.len()];
        level.run(ColumnExp {
            scores,
            stride,
            n_rows,
            first: keys.start,
            max: &mut max,
            sum: &mut sum,
        });
        for (i, key_idx) in keys.enumerate() {
            self.merge(key_idx, max[i], f64::from(sum[i]));
        }
    }

    /// Merges the sums of other queries.
    pub fn add_all(&mut self, other: &Self) {
        for (key_idx, (max, sum)) in other.max.iter().zip(&other.sum).enumerate() {
            self.merge(key_idx, *max, *sum);
        }
    }

    fn merge(&mut self, key_idx: usize, max: f32, sum: f64) {
        if max == f32::NEG_INFINITY {
            return;
        }
        let (own_max, own_sum) = (&mut self.max[key_idx], &mut self.sum[key_idx]);
        if max > *own_max {
            *own_sum *= f64::from(*own_max - max).exp();
            *own_max = max;
            *own_sum += sum;
        } else {
            *own_sum += sum * f64::from(max - *own_max).exp();
        }
    }

    /// One value per key; −∞ for a key that no query sees.
    pub fn log_sums(&self) -> Vec<f32> {
        let columns = self.max.iter().zip(&self.sum);
        columns
            .map(|(max, sum)| (f64::from(*max) + sum.ln()) as f32)
            .collect()
    }
}

struct ColumnExp<'a> {
    scores: &'a [f32],
    stride: usize,
    n_rows: usize,
    first: usize,
    /// Slices that begin at key `first`.
    max: &'a mut [f32],
    sum: &'a mut [f32],
}

impl Kernel for ColumnExp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let n = self.max.len().min(self.stride - self.first) / L::N;
        let max = &mut L::vectors_mut(self.max)[..n];
        let sum = &mut L::vectors_mut(self.sum)[..n];
        let row = |row_idx: usize| {
            &L::vectors(&self.scores[row_idx * self.stride + self.first..][..n * L::N])[..n]
        };
        for row_idx in 0..self.n_rows {
            for (max, score) in max.iter_mut().zip(row(row_idx)) {
                *max = l.max(*max, *score);
            }
        }
        let lowest = l.splat(f32::MIN);
        for row_idx in 0..self.n_rows {
            for ((sum, max), score) in sum.iter_mut().zip(max.iter()).zip(row(row_idx)) {
                // A column without scores has maximum −∞: a finite lower bound avoids −∞ − −∞.
                let below = l.sub(*score, l.max(*max, lowest));
                *sum = l.add(*sum, exp_of_negative(l, below));
            }
        }
    }
}
