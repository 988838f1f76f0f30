//! One row of scores becomes weights, and every sum over them in the same reading.

use std::ops::Range;

use super::lanes::Lanes;
use super::level::{Kernel, Level};
use super::math::{exp, exp_of_negative};
use super::scores::{FLUSH, Span};

/// Sums over a row of weights w: e^(s − max) of a softmax over keys, probabilities of one over queries.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PatternSums {
    /// Σ w.
    pub sum: f64,
    /// Σ w·(s − reference): the maximum, or each key's own log-sum-exp.
    pub weighted: f64,
    pub sum_2: f64,
    pub sum_3: f64,
    /// Σ w·|query − key|.
    pub distance: f64,
    /// Σ (s − mean)².
    pub squares: f64,
    /// Of a softmax over queries: Σ e^(s − max), its largest weights, and the first key with the largest.
    pub row_sum: f64,
    pub top_1: f32,
    pub top_2: f32,
    pub argmax: usize,
}

/// What a row is read with.
#[derive(Debug, Clone, Copy)]
struct Around<'a> {
    max: f32,
    mean: f32,
    query_idx: usize,
    visible: Option<&'a [f32]>,
}

/// Turns the scores of a row, in `range`, into e^(s − max) in place. Weights are not divided by their sum.
///
/// `visible` is 1 where a key is visible. `max` and `mean` are of the row's scores; a learned sink may have raised `max`.
pub fn exp_row(
    level: Level,
    row: &mut [f32],
    range: Range<usize>,
    visible: Option<&[f32]>,
    (max, mean): (f32, f32),
    query_idx: usize,
) -> PatternSums {
    let around = Around {
        max,
        mean,
        query_idx,
        visible,
    };
    level.run(ExpRow { row, range, around })
}

struct ExpRow<'a> {
    row: &'a mut [f32],
    range: Range<usize>,
    around: Around<'a>,
}

impl Kernel for ExpRow<'_> {
    type Output = PatternSums;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> PatternSums {
        let span = Span::of::<L>(&self.range);
        let width = span.end * L::N;
        let visible = self.around.visible;
        let visible = visible.map(|v| &L::vectors(&v[..width])[span.start..]);
        let row = &mut L::vectors_mut(&mut self.row[..width])[span.start..];
        let (max, mean) = (l.splat(self.around.max), l.splat(self.around.mean));
        let mut distance = Distance::new(l, &span, self.around.query_idx);
        let mut sums = PatternSums::default();
        for (nth, vectors) in row.chunks_mut(FLUSH).enumerate() {
            let mut part = Part::new(l);
            for (i, vector) in vectors.iter_mut().enumerate() {
                let score = *vector;
                let below = l.sub(score, max);
                let weight = exp_of_negative(l, below);
                let off = l.sub(score, mean);
                let far = distance.next(l);
                *vector = match span.mask(l, nth * FLUSH + i, visible) {
                    None => {
                        part.add(l, weight, below, off, far);
                        weight
                    }
                    Some(mask) => {
                        let shown = |v| l.select(mask, v, l.splat(0.0));
                        let weight = shown(weight);
                        part.add(l, weight, shown(below), shown(off), far);
                        weight
                    }
                };
            }
            part.flush(l, &mut sums);
        }
        sums
    }
}

/// |query − key| of vector after vector.
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

/// Sums in f32 of a part of a row.
struct Part<L: Lanes> {
    sum: L::Vector,
    weighted: L::Vector,
    sum_2: L::Vector,
    sum_3: L::Vector,
    distance: L::Vector,
    squares: L::Vector,
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
        }
    }

    #[inline(always)]
    fn add(&mut self, l: L, weight: L::Vector, below: L::Vector, off: L::Vector, far: L::Vector) {
        let square = l.mul(weight, weight);
        self.sum = l.add(self.sum, weight);
        self.weighted = l.mul_add(weight, below, self.weighted);
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
    }
}

/// The maximum of some values, and Σ e^(v − max).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpSum {
    pub max: f32,
    pub sum: f64,
}

/// A log-sum-exp in two parts. Where a value is NaN, the sum is; the maximum is that of the others.
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
            // The second operand where one is NaN.
            high = l.max(*vector, high);
        }
        let high = L::values(&high).iter().chain(rest).copied();
        let max = high.fold(f32::NEG_INFINITY, f32::max);
        if max == f32::NEG_INFINITY {
            // −∞ alone sums to nothing; beside a NaN it does not.
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

/// Turns the scores of a row, in `range`, into e^(s − log Σ over queries of e^s) in place: the probabilities of a softmax over queries.
///
/// `log_sums` holds each key's log-sum-exp. The rest is as for [`exp_row`].
pub fn over_queries_row(
    level: Level,
    row: &mut [f32],
    range: Range<usize>,
    visible: Option<&[f32]>,
    log_sums: &[f32],
    (max, mean): (f32, f32),
    query_idx: usize,
) -> PatternSums {
    let around = Around {
        max,
        mean,
        query_idx,
        visible,
    };
    level.run(OverQueriesRow {
        row,
        range,
        around,
        log_sums,
    })
}

struct OverQueriesRow<'a> {
    row: &'a mut [f32],
    range: Range<usize>,
    around: Around<'a>,
    log_sums: &'a [f32],
}

impl Kernel for OverQueriesRow<'_> {
    type Output = PatternSums;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> PatternSums {
        let span = Span::of::<L>(&self.range);
        let width = span.end * L::N;
        let visible = self.around.visible;
        let visible = visible.map(|v| &L::vectors(&v[..width])[span.start..]);
        let log_sums = &L::vectors(&self.log_sums[..width])[span.start..];
        let row = &mut L::vectors_mut(&mut self.row[..width])[span.start..];
        let (max, mean) = (l.splat(self.around.max), l.splat(self.around.mean));
        let mut distance = Distance::new(l, &span, self.around.query_idx);
        let mut sums = PatternSums::default();
        for (nth, vectors) in row.chunks_mut(FLUSH).enumerate() {
            let mut part = Part::new(l);
            let mut row_sum = l.splat(0.0);
            for (i, vector) in vectors.iter_mut().enumerate() {
                let at = nth * FLUSH + i;
                let score = *vector;
                let below = l.sub(score, log_sums[at]);
                let weight = exp(l, below);
                let of_row = exp_of_negative(l, l.sub(score, max));
                let off = l.sub(score, mean);
                let far = distance.next(l);
                *vector = match span.mask(l, at, visible) {
                    None => {
                        part.add(l, weight, below, off, far);
                        row_sum = l.add(row_sum, of_row);
                        weight
                    }
                    Some(mask) => {
                        let shown = |v| l.select(mask, v, l.splat(0.0));
                        let weight = shown(weight);
                        part.add(l, weight, shown(below), shown(off), far);
                        row_sum = l.add(row_sum, shown(of_row));
                        weight
                    }
                };
            }
            part.flush(l, &mut sums);
            sums.row_sum += f64::from(l.sum(row_sum));
        }
        top_two(&self.row[self.range.clone()], self.range.start, &mut sums);
        sums
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
