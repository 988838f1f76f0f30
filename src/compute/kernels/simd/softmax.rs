//! Turns one row of scores into weights, and computes every sum over them in the same pass.

use std::ops::Range;

use super::lanes::Lanes;
use super::level::{Kernel, Level};
use super::math::{exp, exp_of_negative};
use super::scores::{FLUSH, Span};

/// Sums over a row of weights w: e^(s − max) for a softmax over keys, probabilities for one over queries.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PatternSums {
    /// Σ w.
    pub sum: f64,
    /// Σ w·(s − reference); the reference is the maximum, or each key's own log-sum-exp.
    pub weighted: f64,
    pub sum_2: f64,
    pub sum_3: f64,
    /// Σ w·|query − key|.
    pub distance: f64,
    /// Σ (s − mean)².
    pub squares: f64,
    /// Only for a softmax over queries: Σ e^(s − max), the largest weights, and the first key with the largest.
    pub row_sum: f64,
    pub top_1: f32,
    pub top_2: f32,
    pub argmax: usize,
}

/// Turns the scores of a row, in `range`, into e^(s − max) in place. Weights are not divided by their sum.
///
/// `visible` is 1 where a key is visible. `max` and `mean` are those of the row's scores; a learned sink may have raised `max`.
pub fn exp_row(
    level: Level,
    row: &mut [f32],
    range: Range<usize>,
    visible: Option<&[f32]>,
    (max, mean): (f32, f32),
    query_idx: usize,
) -> PatternSums {
    level.run(SoftmaxRow::<false> {
        row,
        range,
        visible,
        log_sums: &[],
        max,
        mean,
        query_idx,
    })
}

/// Turns the scores of a row, in `range`, into e^(s − log Σ) in place: the probabilities of a softmax over queries or heads.
///
/// `log_sums` holds the log Σ of e^s of each key's cell. The other arguments are as for [`exp_row`].
pub fn row_by_log_sums(
    level: Level,
    row: &mut [f32],
    range: Range<usize>,
    visible: Option<&[f32]>,
    log_sums: &[f32],
    (max, mean): (f32, f32),
    query_idx: usize,
) -> PatternSums {
    let kernel = SoftmaxRow::<true> {
        row: &mut *row,
        range: range.clone(),
        visible,
        log_sums,
        max,
        mean,
        query_idx,
    };
    let mut sums = level.run(kernel);
    top_two(&row[range.clone()], range.start, &mut sums);
    sums
}

struct SoftmaxRow<'a, const BY_LOG_SUMS: bool> {
    row: &'a mut [f32],
    range: Range<usize>,
    visible: Option<&'a [f32]>,
    /// The log Σ of e^s of each key's cell, for a softmax over queries or heads.
    log_sums: &'a [f32],
    max: f32,
    mean: f32,
    query_idx: usize,
}

impl<const BY_LOG_SUMS: bool> Kernel for SoftmaxRow<'_, BY_LOG_SUMS> {
    type Output = PatternSums;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> PatternSums {
        let span = Span::of::<L>(&self.range);
        let width = span.end * L::N;
        let visible = self.visible;
        let visible = visible.map(|v| &L::vectors(&v[..width])[span.start..]);
        let log_sums: &[L::Vector] = if BY_LOG_SUMS {
            &L::vectors(&self.log_sums[..width])[span.start..]
        } else {
            &[]
        };
        let row = &mut L::vectors_mut(&mut self.row[..width])[span.start..];
        let (max, mean) = (l.splat(self.max), l.splat(self.mean));
        let mut distance = Distance::new(l, &span, self.query_idx);
        let mut sums = PatternSums::default();
        for (nth, vectors) in row.chunks_mut(FLUSH).enumerate() {
            let mut part = Part::new(l);
            for (i, vector) in vectors.iter_mut().enumerate() {
                let at = nth * FLUSH + i;
                let score = *vector;
                let below_max = l.sub(score, max);
                let mut read = Read {
                    weight: exp_of_negative(l, below_max),
                    below: below_max,
                    off: l.sub(score, mean),
                    of_row: l.splat(0.0),
                };
                if BY_LOG_SUMS {
                    read.of_row = read.weight;
                    read.below = l.sub(score, log_sums[at]);
                    read.weight = exp(l, read.below);
                }
                if let Some(mask) = span.mask(l, at, visible) {
                    read = read.shown(l, mask);
                }
                *vector = read.weight;
                if BY_LOG_SUMS {
                    part.row_sum = l.add(part.row_sum, read.of_row);
                }
                part.add(l, read, distance.next(l));
            }
            part.flush(l, &mut sums);
        }
        sums
    }
}

/// Values computed from one vector of scores.
struct Read<V> {
    weight: V,
    /// Score − reference.
    below: V,
    /// Score − mean.
    off: V,
    /// e^(s − max), for a softmax over queries.
    of_row: V,
}

impl<V: Copy> Read<V> {
    #[inline(always)]
    fn shown<L: Lanes<Vector = V>>(self, l: L, mask: L::Mask) -> Self {
        let zero = l.splat(0.0);
        Self {
            weight: l.select(mask, self.weight, zero),
            below: l.select(mask, self.below, zero),
            off: l.select(mask, self.off, zero),
            of_row: l.select(mask, self.of_row, zero),
        }
    }
}

/// |query − key| of consecutive vectors of keys.
struct Distance<L: Lanes> {
    ahead: L::Vector,
}

impl<L: Lanes> Distance<L> {
    #[inline(always)]
    fn new(l: L, span: &Span, query_idx: usize) -> Self {
        let first = query_idx as f32 - span.first_key(0) as f32;
        Self {
            ahead: l.sub(l.splat(first), l.indices()),
        }
    }

    #[inline(always)]
    fn next(&mut self, l: L) -> L::Vector {
        let far = l.abs(self.ahead);
        self.ahead = l.sub(self.ahead, l.splat(L::N as f32));
        far
    }
}

/// Sums in f32 over a part of a row.
struct Part<L: Lanes> {
    sum: L::Vector,
    weighted: L::Vector,
    sum_2: L::Vector,
    sum_3: L::Vector,
    distance: L::Vector,
    squares: L::Vector,
    row_sum: L::Vector,
}

impl<L: Lanes> Part<L> {
    #[inline(always)]
    fn new(l: L) -> Self {
        let zero = l.splat(0.0);
        Self {
            sum: zero,
            weighted: zero,
            sum_2: zero,
            sum_3: zero,
            distance: zero,
            squares: zero,
            row_sum: zero,
        }
    }

    #[inline(always)]
    fn add(&mut self, l: L, read: Read<L::Vector>, far: L::Vector) {
        let (weight, off) = (read.weight, read.off);
        let square = l.mul(weight, weight);
        self.sum = l.add(self.sum, weight);
        self.weighted = l.mul_add(weight, read.below, self.weighted);
        self.sum_2 = l.add(self.sum_2, square);
        self.sum_3 = l.mul_add(square, weight, self.sum_3);
        self.distance = l.mul_add(weight, far, self.distance);
        self.squares = l.mul_add(off, off, self.squares);
    }

    #[inline(always)]
    fn flush(self, l: L, sums: &mut PatternSums) {
        sums.sum += f64::from(l.sum(self.sum));
        sums.weighted += f64::from(l.sum(self.weighted));
        sums.sum_2 += f64::from(l.sum(self.sum_2));
        sums.sum_3 += f64::from(l.sum(self.sum_3));
        sums.distance += f64::from(l.sum(self.distance));
        sums.squares += f64::from(l.sum(self.squares));
        sums.row_sum += f64::from(l.sum(self.row_sum));
    }
}

#[inline(always)]
fn top_two(weights: &[f32], first: usize, sums: &mut PatternSums) {
    for (i, weight) in weights.iter().enumerate() {
        if *weight > sums.top_1 {
            (sums.top_2, sums.top_1, sums.argmax) = (sums.top_1, *weight, first + i);
        } else if *weight > sums.top_2 {
            sums.top_2 = *weight;
        }
    }
}

/// The maximum of some values v, and Σ e^(v − max).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpSum {
    pub max: f32,
    pub sum: f64,
}

/// Maximum and Σ e^(v − max), which give the log-sum-exp. If a value is NaN, the sum is NaN and the maximum ignores it.
pub fn exp_sum(level: Level, values: &[f32]) -> ExpSum {
    level.run(ExpSumOf(values))
}

struct ExpSumOf<'a>(&'a [f32]);

impl Kernel for ExpSumOf<'_> {
    type Output = ExpSum;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> ExpSum {
        let vectors = L::vectors(self.0);
        let rest = &self.0[vectors.len() * L::N..];
        let mut high = l.splat(f32::NEG_INFINITY);
        for vector in vectors {
            // The vector maximum returns its second operand if one is NaN.
            high = l.max(*vector, high);
        }
        let high = L::values(&high).iter().chain(rest).copied();
        let max = high.fold(f32::NEG_INFINITY, f32::max);
        if max == f32::NEG_INFINITY {
            // Values that are all −∞ sum to 0, but with a NaN among them the sum is NaN.
            let nan = self.0.iter().find(|v| v.is_nan());
            let sum = nan.map_or(0.0, |nan| f64::from(*nan));
            return ExpSum { max, sum };
        }
        let mut sum = 0.0;
        for vectors in vectors.chunks(FLUSH) {
            let mut part = l.splat(0.0);
            for vector in vectors {
                let below = l.sub(*vector, l.splat(max));
                part = l.add(part, exp_of_negative(l, below));
            }
            sum += f64::from(l.sum(part));
        }
        sum += rest.iter().map(|v| f64::from((v - max).exp())).sum::<f64>();
        ExpSum { max, sum }
    }
}
