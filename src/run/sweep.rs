//! How a softmax sharpens as its scores are multiplied: largest probability, entropy and Jacobian against the scale.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::softmax_row::SoftmaxRow;
use rayon::prelude::*;

/// Rows per task. Tasks are split by row number and joined in order, so sums are the same for any number of threads.
const ROWS_AT_ONCE: usize = 16;

/// Most scales of a sweep: each costs a pass over all rows.
pub const MOST_SCALES: usize = 10_000;

/// Mean and population standard deviation of a figure over the rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Averaged {
    pub mean: f64,
    pub std: f64,
}

/// Figures of the rows at one scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SweepPoint {
    pub scale: f64,
    pub max_probability: Averaged,
    /// In nats.
    pub entropy: Averaged,
    /// Entropy divided by the log of the number of visible keys.
    pub relative_entropy: Averaged,
    /// e^entropy of each row: its effective number of keys.
    pub perplexity: Averaged,
    /// tr(diag(p) − ppᵀ) = 1 − Σp²: 0 when no gradient passes.
    pub jacobian_trace: Averaged,
}

/// Mean and sum of squared deviations, updated value by value or merged from two parts (Chan, Golub and LeVeque 1979).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Moments {
    n: f64,
    mean: f64,
    off: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.n += 1.0;
        let before = value - self.mean;
        self.mean += before / self.n;
        self.off += before * (value - self.mean);
    }

    fn join(&mut self, other: &Self) {
        if other.n == 0.0 {
            return;
        }
        let n = self.n + other.n;
        let apart = other.mean - self.mean;
        self.off += other.off + apart * apart * self.n * other.n / n;
        self.mean += apart * other.n / n;
        self.n = n;
    }

    fn averaged(&self) -> Averaged {
        match self.n {
            0.0 => Averaged {
                mean: f64::NAN,
                std: f64::NAN,
            },
            n => Averaged {
                mean: self.mean,
                std: (self.off / n).sqrt(),
            },
        }
    }
}

/// Figures of a point, in the order of [`SweepPoint`].
type Figures = [Moments; 5];

/// Sweep over scales that takes rows of scores one by one or in blocks, in any order, without storing them.
///
/// Rows with fewer than two visible keys cannot change and are only counted. Rows with a NaN or +∞ have no softmax and are
/// counted separately.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    scales: Vec<f64>,
    figures: Vec<Figures>,
    n_rows: u64,
    n_single: u64,
    n_not_finite: u64,
}

impl Sweep {
    /// Sweep without any rows yet.
    pub fn new(scales: &[f64]) -> Self {
        Self {
            scales: scales.to_vec(),
            figures: vec![Figures::default(); scales.len()],
            n_rows: 0,
            n_single: 0,
            n_not_finite: 0,
        }
    }

    /// Number of rows in the figures.
    pub fn n_rows(&self) -> u64 {
        self.n_rows
    }

    /// Number of rows with fewer than two visible keys.
    pub fn n_single(&self) -> u64 {
        self.n_single
    }

    /// Number of rows left out because of a NaN or +∞.
    pub fn n_not_finite(&self) -> u64 {
        self.n_not_finite
    }

    /// Adds one row of scores as they enter the softmax, −∞ for masked keys. Costs keys × scales.
    pub fn add_row<S: Copy + Into<f64>>(&mut self, scores: &[S]) {
        let scores = scores.iter().map(|score| (*score).into());
        let visible: Vec<f64> = scores.filter(|s| *s != f64::NEG_INFINITY).collect();
        if visible.iter().any(|s| s.is_nan() || *s == f64::INFINITY) {
            self.n_not_finite += 1;
            return;
        }
        if visible.len() < 2 {
            self.n_single += 1;
            return;
        }
        self.n_rows += 1;
        let uniform = libm::log(visible.len() as f64);
        for (scale, figures) in self.scales.iter().zip(&mut self.figures) {
            let values = match SoftmaxRow::of(&visible, *scale) {
                Some(row) => [
                    row.max_probability,
                    row.entropy,
                    row.entropy / uniform,
                    row.perplexity(),
                    row.jacobian_trace,
                ],
                // A score times the scale overflows f64.
                None => [f64::NAN; 5],
            };
            for (moments, value) in figures.iter_mut().zip(values) {
                moments.add(value);
            }
        }
    }

    /// Adds consecutive rows in parallel. Costs rows × keys × scales. // [row, key]
    pub fn add_rows<S: Copy + Into<f64> + Sync>(&mut self, scores: &[S], n_keys: usize) {
        let parts = scores.par_chunks((n_keys * ROWS_AT_ONCE).max(1));
        let parts: Vec<Self> = parts
            .map(|rows| {
                let mut part = Self::new(&self.scales);
                for row in rows.chunks(n_keys.max(1)) {
                    part.add_row(row);
                }
                part
            })
            .collect();
        for part in &parts {
            self.join(part);
        }
    }

    /// Merges another sweep over the same scales.
    pub fn join(&mut self, other: &Self) {
        debug_assert_eq!(self.scales, other.scales);
        self.n_rows += other.n_rows;
        self.n_single += other.n_single;
        self.n_not_finite += other.n_not_finite;
        for (own, others) in self.figures.iter_mut().zip(&other.figures) {
            for (own, other) in own.iter_mut().zip(others) {
                own.join(other);
            }
        }
    }

    /// Figures at every scale; NaN if no row was counted.
    pub fn points(&self) -> Vec<SweepPoint> {
        let point = |(scale, figures): (&f64, &Figures)| {
            let [
                max_probability,
                entropy,
                relative_entropy,
                perplexity,
                jacobian_trace,
            ] = figures.map(|moments| moments.averaged());
            SweepPoint {
                scale: *scale,
                max_probability,
                entropy,
                relative_entropy,
                perplexity,
                jacobian_trace,
            }
        };
        self.scales.iter().zip(&self.figures).map(point).collect()
    }
}

/// Geometric sequence of scales, plus the round ones in between (1, 2 and 5 times powers of ten) and the `others`; sorted,
/// without duplicates.
///
/// # Errors
/// When the ends are not an interval of positive numbers, or there are too many scales.
pub fn sweep_scales(from: f64, to: f64, n_steps: usize, others: &[f64]) -> Result<Vec<f64>> {
    const LEAST: f64 = 1e-9;
    const MOST: f64 = 1e9;
    if !(from >= LEAST && to <= MOST && from < to) {
        return Err(Error::Setting(format!(
            "--from {from} --to {to}: expected {LEAST:e} or more, and a larger number up to {MOST:e}"
        )));
    }
    if !(2..=MOST_SCALES).contains(&n_steps) {
        return Err(Error::Setting(format!(
            "--steps {n_steps}: expected 2 to {MOST_SCALES}"
        )));
    }
    let ratio = libm::log(to / from) / (n_steps - 1) as f64;
    let between = (1..n_steps - 1).map(|nth| from * libm::exp(ratio * nth as f64));
    let mut scales: Vec<f64> = between.chain([from, to]).collect();
    scales.extend(round_scales(from, to));
    scales.extend(others.iter().filter(|s| s.is_finite() && **s > 0.0));
    scales.sort_by(f64::total_cmp);
    // A step that nearly equals a round scale adds nothing: keep the round one.
    let mut kept: Vec<f64> = Vec::with_capacity(scales.len());
    for scale in scales {
        match kept.last_mut() {
            Some(last) if scale / *last < 1.0 + 1e-9 => {
                if is_short(scale) && !is_short(*last) {
                    *last = scale;
                }
            }
            _ => kept.push(scale),
        }
    }
    Ok(kept)
}

/// Whether a number is written with few digits.
fn is_short(number: f64) -> bool {
    format!("{number}").len() <= 6
}

/// 1, 2 and 5 times powers of ten in an interval, including its ends.
pub fn round_scales(from: f64, to: f64) -> Vec<f64> {
    let powers = libm::floor(libm::log10(from)) as i32..=libm::ceil(libm::log10(to)) as i32;
    // Parsed from text, so that 0.2 is exactly the number a user writes.
    let rounds = powers.flat_map(|power| [1, 2, 5].map(|digit| format!("{digit}e{power}").parse()));
    rounds
        .filter_map(|scale| scale.ok())
        .filter(|scale: &f64| (from..=to).contains(scale))
        .collect()
}
