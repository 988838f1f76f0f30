//! Compares two tensors as stored, some rows at a time.

use std::cell::Cell;
use std::ops::Range;

use attnscope_checkpoint::{TensorView, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::simd::{Level, pair_sums};
use attnscope_compute::pace::Pace;
use rayon::prelude::*;

use super::relation::{Relation, is_turned};
use super::rounding::Roundings;
use super::tensor_difference::{MOST_ROWS, TensorDifference};

/// Number of values of each tensor per task: both parts fit in a core's own cache.
const TASK: usize = 1 << 16;

/// Minimum size attributed to a row, as a share of the root mean square of the tensor's rows.
const SMALL_ROW: f64 = 1e-2;

/// Difference of two stored tensors.
#[derive(Debug, Clone, Default)]
pub(super) struct StoredDifference {
    /// Σ(a − b)², Σa², Σab and Σb² of values that are finite on both sides.
    squares: f64,
    size: f64,
    product: f64,
    size_b: f64,
    pub max_abs: f64,
    /// ‖a − b‖² and ‖a‖² of each row that differs.
    apart: Vec<(f64, f64)>,
    n_rows: usize,
    /// Ranges of rows that differ; once the list is full, the last range absorbs all later ones.
    pub rows: Vec<Range<usize>>,
    /// Number of values that are finite on one side only.
    n_one_sided: usize,
    /// One side is the other rounded to 16 bits; known only of tensors compared as stored.
    is_rounded: bool,
    /// Factor from A to B; known only of tensors compared as stored.
    factor: Option<f64>,
    /// The shapes differ, so values cannot be paired.
    pub is_mismatched: bool,
}

impl StoredDifference {
    pub fn is_equal(&self) -> bool {
        self.rows.is_empty() && !self.is_mismatched
    }

    /// Returns ‖a − b‖/‖a‖.
    pub fn relative(&self) -> f64 {
        if self.n_one_sided > 0 || self.is_mismatched {
            return f64::INFINITY;
        }
        if self.squares == 0.0 {
            return 0.0;
        }
        (self.squares / self.size).sqrt()
    }

    /// Returns the largest ‖a − b‖/‖a‖ of a row. A very small row counts as a hundredth of the tensor's typical row, so that
    /// rounding of values near 0 is not reported.
    pub fn worst_row(&self) -> f64 {
        let least = self.size / self.n_rows.max(1) as f64 * SMALL_ROW * SMALL_ROW;
        let shares = self
            .apart
            .iter()
            .map(|(squares, size)| squares / size.max(least));
        shares.fold(0.0f64, f64::max).sqrt()
    }

    /// Adds rows of both sides, starting at row `first`. // [row, width] each
    pub fn add(&mut self, first: usize, width: usize, a: &[f32], b: &[f32]) {
        let rows = a.chunks(width.max(1)).zip(b.chunks(width.max(1)));
        for (nth, (a, b)) in rows.enumerate() {
            if self.row(a, b) {
                self.note(first + nth);
            }
        }
    }

    /// Adds rows of both sides on several threads; the sums do not depend on the number of threads.
    pub fn add_in_parallel(&mut self, first: usize, width: usize, a: &[f32], b: &[f32]) {
        let n_rows = (TASK / width.max(1)).max(1);
        let parts = a.par_chunks(n_rows * width.max(1));
        let parts = parts.zip(b.par_chunks(n_rows * width.max(1))).enumerate();
        let found: Vec<Self> = parts
            .map(|(nth, (a, b))| {
                let mut part = Self::default();
                part.add(first + nth * n_rows, width, a, b);
                part
            })
            .collect();
        found.iter().for_each(|part| self.join(part));
    }

    /// Adds one row; returns false if it does not differ.
    fn row(&mut self, a: &[f32], b: &[f32]) -> bool {
        self.n_rows += 1;
        let sums = pair_sums(Level::current(), a, b);
        if !sums.are_whole() {
            return self.odd_row(a, b);
        }
        self.squares += sums.squares;
        self.size += sums.size;
        self.product += sums.product;
        self.size_b += sums.size_b;
        self.max_abs = self.max_abs.max(f64::from(sums.max_abs));
        if sums.max_abs > 0.0 {
            self.apart.push((sums.squares, sums.size));
        }
        sums.max_abs > 0.0
    }

    /// Adds a row value by value: some are not finite, or too small or large to be squared in f32.
    fn odd_row(&mut self, a: &[f32], b: &[f32]) -> bool {
        let (mut squares, mut size, mut product, mut size_b) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
        let mut differs = false;
        for (a, b) in a.iter().zip(b) {
            let is_same = a == b || (a.is_nan() && b.is_nan());
            differs |= !is_same;
            if !(a.is_finite() && b.is_finite()) {
                if !is_same {
                    self.n_one_sided += 1;
                    self.max_abs = f64::INFINITY;
                }
                continue;
            }
            let (a, b) = (f64::from(*a), f64::from(*b));
            squares += (a - b) * (a - b);
            size += a * a;
            product += a * b;
            size_b += b * b;
            self.max_abs = self.max_abs.max((a - b).abs());
        }
        self.squares += squares;
        self.size += size;
        self.product += product;
        self.size_b += size_b;
        if squares > 0.0 {
            self.apart.push((squares, size));
        }
        differs
    }

    /// Adds the precomputed sums of one row: ‖a − b‖², ‖a‖² and the largest |a − b|.
    pub fn take_row(&mut self, row: usize, (squares, size, most): (f64, f64, f32)) {
        self.n_rows += 1;
        self.squares += squares;
        self.size += size;
        if most > 0.0 {
            self.max_abs = self.max_abs.max(f64::from(most));
            self.apart.push((squares, size));
            self.note(row);
        }
    }

    /// Returns the number of rows added.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Records a row that differs.
    fn note(&mut self, row: usize) {
        let is_full = self.rows.len() == MOST_ROWS;
        match self.rows.last_mut() {
            Some(last) if last.end == row || is_full => last.end = row + 1,
            _ => self.rows.push(row..row + 1),
        }
    }

    /// Returns the relation of the two that the sums reveal, if each was also checked for rounding.
    pub fn relation(&self) -> Option<(Relation, Option<f64>)> {
        if self.is_equal() || self.n_one_sided > 0 || self.is_mismatched {
            return None;
        }
        if self.is_rounded {
            return Some((Relation::Rounded, None));
        }
        self.factor.map(|factor| (Relation::Scaled, Some(factor)))
    }

    /// Returns the factor from A to B that the sums suggest, within f32 accuracy.
    fn implied_factor(&self) -> Option<f64> {
        let factor = self.product / self.size;
        // ‖b − c·a‖², without another pass.
        let left = self.size_b - factor * self.product;
        let is_near = left.abs() <= 1e-5 * self.size_b && (factor - 1.0).abs() > 1e-5;
        // Zeros are not scaled weights: the original values cannot be inferred.
        (is_near && factor != 0.0 && factor.is_finite()).then_some(factor)
    }

    /// Adds the result of another part of the same tensor.
    pub fn join(&mut self, other: &Self) {
        self.squares += other.squares;
        self.size += other.size;
        self.product += other.product;
        self.size_b += other.size_b;
        self.max_abs = self.max_abs.max(other.max_abs);
        self.apart.extend_from_slice(&other.apart);
        self.n_rows += other.n_rows;
        self.n_one_sided += other.n_one_sided;
        self.is_rounded |= other.is_rounded;
        self.factor = self.factor.or(other.factor);
        self.is_mismatched |= other.is_mismatched;
        for rows in &other.rows {
            let is_full = self.rows.len() == MOST_ROWS;
            match self.rows.last_mut() {
                Some(last) if last.end == rows.start || is_full => last.end = rows.end,
                _ => self.rows.push(rows.clone()),
            }
        }
    }
}

/// Buffers of some rows of A and of B.
pub(super) type Buffers = (Vec<f32>, Vec<f32>);

thread_local! {
    /// Row buffers of a thread, reused from part to part whatever the tensor.
    static ROWS: Cell<Buffers> = const { Cell::new((Vec::new(), Vec::new())) };
}

/// Runs `f` with the thread's buffers.
pub(super) fn with_buffers<T>(f: impl FnOnce(&mut Buffers) -> T) -> T {
    let mut buffers = ROWS.take();
    let result = f(&mut buffers);
    ROWS.set(buffers);
    result
}

/// Two stored tensors of one shape, in rows of `width` values.
pub(super) struct StoredPair<'a> {
    a: TensorView<'a>,
    b: TensorView<'a>,
    n_rows: usize,
    pub(super) width: usize,
    pace: &'a dyn Pace,
}

impl<'a> StoredPair<'a> {
    /// Finds two tensors by name; `None` if their shapes differ, or one is not of floats.
    pub fn of(
        (a, b): (&'a Tensors, &'a Tensors),
        names: (&str, &str),
        pace: &'a dyn Pace,
    ) -> Option<Self> {
        let (a, b) = (a.get(names.0)?, b.get(names.1)?);
        if a.shape() != b.shape() || !a.info.dtype.is_float() || !b.info.dtype.is_float() {
            return None;
        }
        let n_rows = a.shape().first().copied().unwrap_or(1).max(1);
        let width = a.info.n_elements() / n_rows;
        Some(Self {
            a,
            b,
            n_rows,
            width,
            pace,
        })
    }

    /// Whether rows can be read sequentially.
    pub(super) fn is_by_rows(&self) -> bool {
        self.a.shape().len() > 1 && self.a.is_row_wise() && self.b.is_row_wise()
    }

    /// Returns the number of rows that hold `n_values`, and the number of parts of that size.
    fn parts(&self, n_values: usize) -> (usize, usize) {
        let n_at_once = (n_values / self.width.max(1)).max(1);
        (n_at_once, self.n_rows.div_ceil(n_at_once))
    }

    /// Returns the number of parts that rows are read in.
    pub(super) fn n_parts(&self) -> usize {
        self.parts(TASK).1
    }

    /// Reads one part of both, and returns its first row.
    pub(super) fn part(&self, nth: usize, (a, b): &mut Buffers) -> Result<usize> {
        let (n_at_once, _) = self.parts(TASK);
        if self.pace.stops() {
            return Err(Error::Cancelled);
        }
        let rows = nth * n_at_once..((nth + 1) * n_at_once).min(self.n_rows);
        let n = rows.len() * self.width;
        a.resize(n, 0.0);
        b.resize(n, 0.0);
        self.a.widen_rows_into(rows.clone(), a)?;
        self.b.widen_rows_into(rows.clone(), b)?;
        Ok(rows.start)
    }

    /// Runs `f` over the rows of both, in parallel tasks. `f` receives the first row; results are returned in row order.
    fn each<T: Send>(&self, f: impl Fn(usize, &[f32], &[f32]) -> T + Sync) -> Result<Vec<T>> {
        if !self.is_by_rows() {
            return Ok(vec![f(0, &self.a.widen()?, &self.b.widen()?)]);
        }
        let parts = (0..self.n_parts()).into_par_iter();
        let of_part = |nth: usize| {
            with_buffers(|buffers| {
                let first = self.part(nth, buffers)?;
                Ok(f(first, &buffers.0, &buffers.1))
            })
        };
        parts.map(of_part).collect()
    }

    /// Whether both are bit-identical.
    ///
    /// # Errors
    /// When a tensor cannot be read, or the pace stops it.
    pub fn is_equal(&self) -> Result<bool> {
        let are_same = |a: &[f32], b: &[f32]| {
            let (a, b): (&[u32], &[u32]) = (bytemuck::cast_slice(a), bytemuck::cast_slice(b));
            a == b
        };
        if !self.is_by_rows() {
            return Ok(are_same(&self.a.widen()?, &self.b.widen()?));
        }
        let parts = (0..self.n_parts()).into_par_iter();
        let of_part = |nth: usize| {
            with_buffers(|buffers| {
                self.part(nth, buffers)?;
                Ok(are_same(&buffers.0, &buffers.1))
            })
        };
        let parts = parts.map(of_part);
        // Stops at the first part that differs.
        parts
            .find_any(|part| !matches!(part, Ok(true)))
            .unwrap_or(Ok(true))
    }

    /// Computes the difference of the two.
    ///
    /// # Errors
    /// When a tensor cannot be read, or the pace stops it.
    pub fn difference(&self) -> Result<StoredDifference> {
        let parts = self.each(|first, a, b| {
            let mut part = StoredDifference::default();
            part.add(first, self.width, a, b);
            (part, Roundings::ALL.after(a, b))
        })?;
        let mut found = StoredDifference::default();
        let mut roundings = Roundings::ALL;
        for (part, possible) in &parts {
            found.join(part);
            roundings = roundings.and(*possible);
        }
        found.is_rounded = roundings.are_possible();
        found.factor = match found.implied_factor() {
            Some(factor) => self.is_scaled(factor)?.then_some(factor),
            None => None,
        };
        Ok(found)
    }

    /// Whether B is `factor` times A, value by value.
    fn is_scaled(&self, factor: f64) -> Result<bool> {
        let parts = self.each(|_, a, b| {
            let (mut left, mut size) = (0.0f64, 0.0f64);
            for (a, b) in a.iter().zip(b) {
                let (a, b) = (f64::from(*a), f64::from(*b));
                left += (b - factor * a) * (b - factor * a);
                size += b * b;
            }
            (left, size)
        })?;
        let left: f64 = parts.iter().map(|(left, _)| left).sum();
        let size: f64 = parts.iter().map(|(_, size)| size).sum();
        Ok(left <= 1e-10 * size)
    }
}

/// Compares two tensors of one name that no model reads; `None` if they are equal.
///
/// # Errors
/// When a tensor cannot be read, or the pace stops it.
pub(super) fn by_name(
    (a, b): (&Tensors, &Tensors),
    name: &str,
    pace: &dyn Pace,
) -> Result<Option<TensorDifference>> {
    let found = match StoredPair::of((a, b), (name, name), pace) {
        Some(pair) if pair.is_equal()? => return Ok(None),
        Some(pair) => pair.difference()?,
        None => StoredDifference {
            is_mismatched: true,
            ..StoredDifference::default()
        },
    };
    if found.is_equal() {
        return Ok(None);
    }
    let mut relation = found.relation();
    if found.is_mismatched
        && let (Some(a), Some(b)) = (a.get(name), b.get(name))
        && a.info.n_elements() == b.info.n_elements()
        && is_turned((a.shape(), &a.widen()?), (b.shape(), &b.widen()?))
    {
        relation = Some((Relation::Transposed, None));
    }
    Ok(Some(TensorDifference {
        name: name.to_owned(),
        roles: Vec::new(),
        relative: found.relative(),
        max_abs: if found.is_mismatched {
            f64::INFINITY
        } else {
            found.max_abs
        },
        relation: relation.map(|(relation, _)| relation),
        factor: relation.and_then(|(_, factor)| factor),
        rows: found.rows,
        heads: Vec::new(),
        counts: false,
    }))
}

/// Name suffixes of tensors that are computed from the configuration or describe how others are stored.
const BUFFERS: [&str; 12] = [
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    "inv_freq",
    "position_ids",
    "token_type_ids",
    "cos_cached",
    "sin_cached",
    ".mask",
    "tril",
    "rope_freqs.weight",
];

/// Whether an unread tensor is a buffer and not a weight.
pub(super) fn is_buffer(name: &str) -> bool {
    BUFFERS.iter().any(|end| name.ends_with(end))
}
