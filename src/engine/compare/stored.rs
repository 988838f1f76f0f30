//! Two tensors as they are stored, some rows of each at a time.

use std::ops::Range;

use rayon::prelude::*;

use super::relation::Relation;
use super::weights::{MOST_ROWS, TensorDifference, is_turned};
use crate::checkpoint::Tensors;
use crate::error::{Error, Result};
use crate::pace::Pace;

/// Values of a tensor that are held at a time, and those of one thread's task.
const AT_ONCE: usize = 1 << 20;
const TASK: usize = 1 << 16;

/// How far two tensors lie apart.
#[derive(Debug, Clone, Default)]
pub(super) struct StoredDifference {
    /// Σ(a − b)², Σa², Σab, Σb², of values that are finite on both sides.
    squares: f64,
    size: f64,
    product: f64,
    size_b: f64,
    pub max_abs: f64,
    /// The largest ‖a − b‖/‖a‖ of a row.
    pub worst_row: f64,
    /// Rows that differ; the last range takes in all that follow once there are enough.
    pub rows: Vec<Range<usize>>,
    n_differing: usize,
    /// A value is finite on one side only.
    n_one_sided: usize,
    /// Values that are no rounding of their counterparts to 16 bits: from a to b in bf16 and f16, then from b to a.
    n_unrounded: [usize; 4],
    /// The shapes differ, so that no values are paired.
    pub is_mismatched: bool,
}

impl StoredDifference {
    pub fn is_equal(&self) -> bool {
        self.n_differing == 0 && !self.is_mismatched
    }

    /// ‖a − b‖/‖a‖.
    pub fn relative(&self) -> f64 {
        if self.n_one_sided > 0 || self.is_mismatched {
            return f64::INFINITY;
        }
        if self.squares == 0.0 {
            return 0.0;
        }
        (self.squares / self.size).sqrt()
    }

    /// Takes in rows of both sides, the first of which is row `first`. // [row, width] each
    pub fn add(&mut self, first: usize, width: usize, a: &[f32], b: &[f32]) {
        let rows = a.chunks(width.max(1)).zip(b.chunks(width.max(1)));
        for (nth, (a, b)) in rows.enumerate() {
            if !self.row(a, b) {
                continue;
            }
            let row = first + nth;
            let is_full = self.rows.len() == MOST_ROWS;
            match self.rows.last_mut() {
                Some(last) if last.end == row || is_full => last.end = row + 1,
                _ => self.rows.push(row..row + 1),
            }
        }
    }

    /// Takes in rows of both sides by several threads; the sums are the same for any number of them.
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

    /// Takes in one row; false where nothing of it differs.
    fn row(&mut self, a: &[f32], b: &[f32]) -> bool {
        let (bits_a, bits_b): (&[u32], &[u32]) = (bytemuck::cast_slice(a), bytemuck::cast_slice(b));
        if bits_a == bits_b {
            let finite = a.iter().filter(|v| v.is_finite());
            let size: f64 = finite.map(|v| f64::from(*v) * f64::from(*v)).sum();
            self.size += size;
            self.product += size;
            self.size_b += size;
            return false;
        }
        let (mut squares, mut size, mut product, mut size_b) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
        let mut n_differing = 0;
        for (a, b) in a.iter().zip(b) {
            let is_same = a.to_bits() == b.to_bits() || a == b || (a.is_nan() && b.is_nan());
            let (wide_a, wide_b) = (f64::from(*a), f64::from(*b));
            if !is_same {
                n_differing += 1;
                if !(a.is_finite() && b.is_finite()) {
                    self.n_one_sided += 1;
                    self.max_abs = f64::INFINITY;
                    continue;
                }
                let difference = (wide_a - wide_b).abs();
                squares += difference * difference;
                self.max_abs = self.max_abs.max(difference);
                self.rounding(*a, *b);
            }
            if a.is_finite() && b.is_finite() {
                size += wide_a * wide_a;
                product += wide_a * wide_b;
                size_b += wide_b * wide_b;
            }
        }
        self.squares += squares;
        self.size += size;
        self.product += product;
        self.size_b += size_b;
        self.n_differing += n_differing;
        if squares > 0.0 {
            self.worst_row = self.worst_row.max((squares / size).sqrt());
        }
        n_differing > 0
    }

    fn rounding(&mut self, a: f32, b: f32) {
        let bf16 = |v: f32| half::bf16::from_f32(v).to_f32();
        let f16 = |v: f32| half::f16::from_f32(v).to_f32();
        // What one value has ruled out is not asked of the others.
        let n = &mut self.n_unrounded;
        if n[0] == 0 {
            n[0] += usize::from(bf16(a) != b);
        }
        if n[1] == 0 {
            n[1] += usize::from(f16(a) != b);
        }
        if n[2] == 0 {
            n[2] += usize::from(bf16(b) != a);
        }
        if n[3] == 0 {
            n[3] += usize::from(f16(b) != a);
        }
    }

    /// Whether one side is the other, rounded to 16 bits.
    pub fn is_rounding(&self) -> bool {
        self.relation() == Some((Relation::Rounded, None))
    }

    /// What the sums tell of how the two relate.
    pub fn relation(&self) -> Option<(Relation, Option<f64>)> {
        if self.n_differing == 0 || self.n_one_sided > 0 {
            return None;
        }
        if self.n_unrounded.contains(&0) {
            return Some((Relation::Rounded, None));
        }
        let factor = self.product / self.size;
        // ‖b − c·a‖², without another pass.
        let left = self.size_b - factor * self.product;
        let is_scaled = left.abs() <= 1e-10 * self.size_b && (factor - 1.0).abs() > 1e-5;
        is_scaled.then_some((Relation::Scaled, Some(factor)))
    }

    /// Takes in what was found of another part of the same tensor.
    pub fn join(&mut self, other: &Self) {
        self.squares += other.squares;
        self.size += other.size;
        self.product += other.product;
        self.size_b += other.size_b;
        self.max_abs = self.max_abs.max(other.max_abs);
        self.worst_row = self.worst_row.max(other.worst_row);
        self.n_differing += other.n_differing;
        self.n_one_sided += other.n_one_sided;
        for (n, other) in self.n_unrounded.iter_mut().zip(other.n_unrounded) {
            *n += other;
        }
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

/// Compares two tensors of one shape as they are stored.
///
/// # Errors
/// When a tensor cannot be read, or the pace stops it.
pub(super) fn stored_difference(
    (a, b): (&Tensors, &Tensors),
    names: (&str, &str),
    pace: &dyn Pace,
) -> Result<StoredDifference> {
    let mut found = StoredDifference::default();
    let (Some(a), Some(b)) = (a.get(names.0), b.get(names.1)) else {
        found.is_mismatched = true;
        return Ok(found);
    };
    if a.shape() != b.shape() || !a.info.dtype.is_float() || !b.info.dtype.is_float() {
        found.is_mismatched = true;
        return Ok(found);
    }
    let n_rows = a.shape().first().copied().unwrap_or(1).max(1);
    let width = a.info.n_elements() / n_rows;
    if a.shape().is_empty() || a.shape().len() == 1 || !a.is_row_wise() || !b.is_row_wise() {
        found.add(0, width, &a.widen()?, &b.widen()?);
        return Ok(found);
    }
    let n_at_once = (AT_ONCE / width.max(1)).max(1);
    let mut is_equal = true;
    let mut first = 0;
    while first < n_rows {
        if pace.stops() {
            return Err(Error::Cancelled);
        }
        let rows = first..(first + n_at_once).min(n_rows);
        let next = rows.end;
        let (of_a, of_b) = (a.widen_rows(rows.clone())?, b.widen_rows(rows)?);
        let (bits_a, bits_b): (&[u32], &[u32]) =
            (bytemuck::cast_slice(&of_a), bytemuck::cast_slice(&of_b));
        if is_equal && bits_a != bits_b {
            // Nothing was summed up to here: most tensors are the same, and the sums of those serve nobody.
            is_equal = false;
            first = 0;
            continue;
        }
        if !is_equal {
            found.add_in_parallel(first, width, &of_a, &of_b);
        }
        first = next;
    }
    Ok(found)
}

/// Compares two tensors of one name that stand for nothing in a model; `None` where they are equal.
///
/// # Errors
/// When a tensor cannot be read, or the pace stops it.
pub(super) fn by_name(
    (a, b): (&Tensors, &Tensors),
    name: &str,
    pace: &dyn Pace,
) -> Result<Option<TensorDifference>> {
    let found = stored_difference((a, b), (name, name), pace)?;
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

/// Ends of names of tensors that are computed from the configuration, or say how others are stored.
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

/// Whether a tensor that no model reads holds no weights.
pub(super) fn is_buffer(name: &str) -> bool {
    BUFFERS.iter().any(|end| name.ends_with(end))
}
