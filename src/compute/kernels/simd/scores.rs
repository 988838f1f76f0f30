//! Turns one row of products into scores, and computes the sums that do not need the maximum.

use std::ops::Range;

use super::lanes::Lanes;
use super::level::{Kernel, Level};
use super::math::tanh;

/// Number of vectors summed in f32 before the sums are added in f64, so that long rows lose no digits.
pub(super) const FLUSH: usize = 64;

/// Operations applied to the products of a row. Slices have one value per key, and are at least as long as the row.
#[derive(Debug, Clone, Copy)]
pub struct RowKnobs<'a> {
    pub scale: f32,
    /// cap · tanh(score / cap).
    pub cap: Option<f32>,
    /// The cap bounds the sum of score and bias.
    pub caps_bias: bool,
    /// Added after the cap, or before it.
    pub bias: Option<&'a [f32]>,
    /// 1 where a key in the range is visible, otherwise 0.
    pub visible: Option<&'a [f32]>,
    /// 1/‖k‖.
    pub inverse_norms: &'a [f32],
}

/// Sums over the visible scores of a row. If a value is not finite, then neither is `sum` or `raw_sum`, and the other fields are
/// meaningless.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreSums {
    pub n: usize,
    pub sum: f64,
    pub min: f32,
    pub max: f32,
    /// The first key with the largest score.
    pub argmax: usize,
    /// The largest score of any other key; −∞ if there is none.
    pub second: f32,
    /// Σ q·k / ‖k‖.
    pub cosine_sum: f64,
    /// Of scale·q·k, before cap and bias.
    pub raw_sum: f64,
    pub raw_min: f32,
    pub raw_max: f32,
    /// Σ (raw − mean)².
    pub raw_squares: f64,
}

/// Turns the products of a row into scores in place, over the keys in `range`; keys that are not visible become −∞.
///
/// # Panics
/// When a slice is shorter than the row.
pub fn score_row(
    level: Level,
    row: &mut [f32],
    range: Range<usize>,
    knobs: &RowKnobs<'_>,
) -> ScoreSums {
    level.run(ScoreRow { row, range, knobs })
}

struct ScoreRow<'a> {
    row: &'a mut [f32],
    range: Range<usize>,
    knobs: &'a RowKnobs<'a>,
}

impl Kernel for ScoreRow<'_> {
    type Output = ScoreSums;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> ScoreSums {
        let span = Span::of::<L>(&self.range);
        let width = span.end * L::N;
        let slices = Slices::<L> {
            inverse_norms: &L::vectors(&self.knobs.inverse_norms[..width])[span.start..],
            visible: self
                .knobs
                .visible
                .map(|v| &L::vectors(&v[..width])[span.start..]),
            bias: self
                .knobs
                .bias
                .map(|b| &L::vectors(&b[..width])[span.start..]),
        };
        let row = &mut L::vectors_mut(&mut self.row[..width])[span.start..];
        let is_raw = self.knobs.cap.is_none() && self.knobs.bias.is_none();
        let mut raw = Raw::default();
        if !is_raw {
            raw = raw_pass(l, row, &slices, &span, self.knobs.scale);
        }
        let mut pass = Pass::new(l, &span);
        for (nth, vectors) in row.chunks_mut(FLUSH).enumerate() {
            let first = nth * FLUSH;
            for (i, vector) in vectors.iter_mut().enumerate() {
                let at = first + i;
                let mask = span.mask(l, at, slices.visible);
                let product = *vector;
                let scaled = l.mul(product, l.splat(self.knobs.scale));
                let bias = slices.bias.map(|bias| bias[at]);
                let [before, after] = if self.knobs.caps_bias {
                    [bias, None]
                } else {
                    [None, bias]
                };
                let mut score = scaled;
                if let Some(bias) = before {
                    score = l.add(score, bias);
                }
                if let Some(cap) = self.knobs.cap {
                    let inside = l.div(score, l.splat(cap));
                    score = l.mul(l.splat(cap), tanh(l, inside));
                }
                if let Some(bias) = after {
                    score = l.add(score, bias);
                }
                *vector = match mask {
                    None => score,
                    Some(mask) => l.select(mask, score, l.splat(f32::NEG_INFINITY)),
                };
                pass.add(l, score, product, slices.inverse_norms[at], mask);
            }
            pass.flush(l);
        }
        let mut sums = pass.finish(l);
        if is_raw {
            (sums.raw_sum, sums.raw_min, sums.raw_max) = (sums.sum, sums.min, sums.max);
        } else {
            (sums.raw_sum, sums.raw_min, sums.raw_max) = (raw.sum, raw.min, raw.max);
            sums.raw_squares = raw.squares;
        }
        sums
    }
}

/// The per-key data of a row, as whole vectors.
struct Slices<'a, L: Lanes> {
    inverse_norms: &'a [L::Vector],
    visible: Option<&'a [L::Vector]>,
    bias: Option<&'a [L::Vector]>,
}

/// The vectors that a range of keys touches. Vectors are counted from `start`.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
    range: Range<usize>,
    n_lanes: usize,
}

impl Span {
    #[inline(always)]
    pub(super) fn of<L: Lanes>(range: &Range<usize>) -> Self {
        Self {
            start: range.start / L::N,
            end: range.end.div_ceil(L::N).max(range.start / L::N),
            range: range.clone(),
            n_lanes: L::N,
        }
    }

    /// Index of the first key of a vector.
    #[inline(always)]
    pub(super) fn first_key(&self, at: usize) -> usize {
        (self.start + at) * self.n_lanes
    }

    /// Mask of the visible values of a vector; `None` if all are.
    #[inline(always)]
    pub(super) fn mask<L: Lanes>(
        &self,
        l: L,
        at: usize,
        visible: Option<&[L::Vector]>,
    ) -> Option<L::Mask> {
        let first = self.first_key(at);
        let is_inside = first >= self.range.start && first + L::N <= self.range.end;
        if is_inside && visible.is_none() {
            return None;
        }
        // Compared as floats, which represent every index of a row exactly.
        let key = l.add(l.indices(), l.splat(first as f32));
        let after_start = l.less_or_equal(l.splat(self.range.start as f32), key);
        let before_end = l.less(key, l.splat(self.range.end as f32));
        let mask = l.and(after_start, before_end);
        Some(match visible {
            Some(visible) => l.and(mask, l.less(l.splat(0.5), visible[at])),
            None => mask,
        })
    }
}

/// Running sums in f32, and the f64 sums they are added to.
struct Pass<L: Lanes> {
    sum: L::Vector,
    cosine: L::Vector,
    n: L::Vector,
    min: L::Vector,
    max: L::Vector,
    second: L::Vector,
    /// Key index of each lane's maximum.
    argmax: L::Vector,
    key: L::Vector,
    wide: [f64; 3],
}

impl<L: Lanes> Pass<L> {
    #[inline(always)]
    fn new(l: L, span: &Span) -> Self {
        let zero = l.splat(0.0);
        Self {
            sum: zero,
            cosine: zero,
            n: zero,
            min: l.splat(f32::INFINITY),
            max: l.splat(f32::NEG_INFINITY),
            second: l.splat(f32::NEG_INFINITY),
            argmax: zero,
            key: l.add(l.indices(), l.splat(span.first_key(0) as f32)),
            wide: [0.0; 3],
        }
    }

    #[inline(always)]
    fn add(
        &mut self,
        l: L,
        score: L::Vector,
        product: L::Vector,
        inverse: L::Vector,
        mask: Option<L::Mask>,
    ) {
        let cosine = l.mul(product, inverse);
        let (counted, cosine, low, high, one) = match mask {
            None => (score, cosine, score, score, l.splat(1.0)),
            Some(mask) => (
                l.select(mask, score, l.splat(0.0)),
                l.select(mask, cosine, l.splat(0.0)),
                l.select(mask, score, l.splat(f32::INFINITY)),
                l.select(mask, score, l.splat(f32::NEG_INFINITY)),
                l.select(mask, l.splat(1.0), l.splat(0.0)),
            ),
        };
        self.sum = l.add(self.sum, counted);
        self.cosine = l.add(self.cosine, cosine);
        self.n = l.add(self.n, one);
        self.min = l.min(self.min, low);
        self.second = l.max(self.second, l.min(self.max, high));
        self.argmax = l.select(l.less(self.max, high), self.key, self.argmax);
        self.max = l.max(self.max, high);
        self.key = l.add(self.key, l.splat(L::N as f32));
    }

    #[inline(always)]
    fn flush(&mut self, l: L) {
        let zero = l.splat(0.0);
        for (wide, sum) in self
            .wide
            .iter_mut()
            .zip([&mut self.sum, &mut self.cosine, &mut self.n])
        {
            *wide += f64::from(l.sum(*sum));
            *sum = zero;
        }
    }

    #[inline(always)]
    fn finish(self, _: L) -> ScoreSums {
        let [sum, cosine_sum, n] = self.wide;
        let (mut max, mut argmax, mut lane) = (f32::NEG_INFINITY, f32::INFINITY, 0);
        let lanes = L::values(&self.max).iter().zip(L::values(&self.argmax));
        for (i, (high, key)) in lanes.enumerate() {
            if *high > max || (*high == max && *key < argmax) {
                (max, argmax, lane) = (*high, *key, i);
            }
        }
        let mut second = f32::NEG_INFINITY;
        let lanes = L::values(&self.max).iter().zip(L::values(&self.second));
        for (i, (high, below)) in lanes.enumerate() {
            second = second.max(if i == lane { *below } else { *high });
        }
        let min = L::values(&self.min)
            .iter()
            .copied()
            .fold(f32::INFINITY, f32::min);
        ScoreSums {
            n: n as usize,
            sum,
            min,
            max,
            argmax: if argmax.is_finite() {
                argmax as usize
            } else {
                0
            },
            second,
            cosine_sum,
            raw_sum: 0.0,
            raw_min: f32::NAN,
            raw_max: f32::NAN,
            raw_squares: 0.0,
        }
    }
}

/// Statistics of scale·q·k, if a cap or bias changes it into another score.
#[derive(Debug, Clone, Copy, Default)]
struct Raw {
    sum: f64,
    min: f32,
    max: f32,
    squares: f64,
}

/// Two passes over the row: the mean, then the squares around it, so that a large mean does not cost digits.
#[inline(always)]
fn raw_pass<L: Lanes>(
    l: L,
    row: &[L::Vector],
    slices: &Slices<'_, L>,
    span: &Span,
    scale: f32,
) -> Raw {
    let (zero, scale) = (l.splat(0.0), l.splat(scale));
    let (mut sum, mut n, mut squares) = (0.0, 0.0, 0.0);
    let (mut min, mut max) = (l.splat(f32::INFINITY), l.splat(f32::NEG_INFINITY));
    for (nth, vectors) in row.chunks(FLUSH).enumerate() {
        let (mut part, mut count) = (zero, zero);
        for (i, product) in vectors.iter().enumerate() {
            let raw = l.mul(*product, scale);
            let (counted, low, high, one) = match span.mask(l, nth * FLUSH + i, slices.visible) {
                None => (raw, raw, raw, l.splat(1.0)),
                Some(mask) => (
                    l.select(mask, raw, zero),
                    l.select(mask, raw, l.splat(f32::INFINITY)),
                    l.select(mask, raw, l.splat(f32::NEG_INFINITY)),
                    l.select(mask, l.splat(1.0), zero),
                ),
            };
            part = l.add(part, counted);
            count = l.add(count, one);
            min = l.min(min, low);
            max = l.max(max, high);
        }
        sum += f64::from(l.sum(part));
        n += f64::from(l.sum(count));
    }
    let mean = l.splat((sum / n) as f32);
    for (nth, vectors) in row.chunks(FLUSH).enumerate() {
        let mut part = zero;
        for (i, product) in vectors.iter().enumerate() {
            let off = l.sub(l.mul(*product, scale), mean);
            let off = match span.mask(l, nth * FLUSH + i, slices.visible) {
                None => off,
                Some(mask) => l.select(mask, off, zero),
            };
            part = l.mul_add(off, off, part);
        }
        squares += f64::from(l.sum(part));
    }
    Raw {
        sum,
        min: L::values(&min)
            .iter()
            .copied()
            .fold(f32::INFINITY, f32::min),
        max: L::values(&max)
            .iter()
            .copied()
            .fold(f32::NEG_INFINITY, f32::max),
        squares,
    }
}
