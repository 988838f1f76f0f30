//! Compares two matrices as stored, in one pass: the difference per output, and samples that rule out most relations.

use std::ops::Range;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::simd::{Level, add_pair_columns, pair_sums};
use rayon::prelude::*;

use super::rounding::Roundings;
use super::stored::{Buffers, StoredPair, with_buffers};

/// Per-output differences of two matrices.
pub(super) struct ByOutput {
    /// ‖a − b‖², ‖a‖² and the largest |a − b|. // [output]
    pub apart: Vec<(f64, f64, f32)>,
    /// One side is the other, rounded to 16 bits.
    pub is_rounded: bool,
    /// Number of columns kept of every row, and their values in A and B. // [row, n_kept]
    pub n_kept: usize,
    pub kept: [Vec<f32>; 2],
}

/// Partial result over some rows.
struct PartByOutput {
    apart: Vec<(f64, f64, f32)>,
    roundings: Roundings,
    kept: [Vec<f32>; 2],
}

/// Sums of squares below this have lost precision in f32.
const LEAST: f64 = 1e-24;

/// Whether sums in f32 are accurate enough.
fn are_exact((squares, size, most): &(f64, f64, f32)) -> bool {
    squares.is_finite() && size.is_finite() && (*squares > LEAST || *most == 0.0)
}

/// Number of row groups that threads take in turn.
const GROUPS: usize = 16;

impl PartByOutput {
    /// Adds the result of the rows that follow.
    fn join(&mut self, other: &Self, are_columns: bool) {
        if are_columns {
            for (own, other) in self.apart.iter_mut().zip(&other.apart) {
                *own = (own.0 + other.0, own.1 + other.1, own.2.max(other.2));
            }
        } else {
            self.apart.extend_from_slice(&other.apart);
        }
        self.roundings = self.roundings.and(other.roundings);
        for (own, other) in self.kept.iter_mut().zip(&other.kept) {
            own.extend_from_slice(other);
        }
    }

    /// Sums over some rows; `None` if a row needs more careful arithmetic.
    fn of(
        (a, b): (&[f32], &[f32]),
        width: usize,
        are_columns: bool,
        columns: &[Range<usize>],
    ) -> Option<Self> {
        let rows = || a.chunks(width.max(1)).zip(b.chunks(width.max(1)));
        let apart = if are_columns {
            let (mut squares, mut sizes) = (vec![0.0; width], vec![0.0; width]);
            let mut most = vec![0.0; width];
            let to = [&mut squares[..], &mut sizes[..], &mut most[..]];
            add_pair_columns(Level::current(), a, b, to);
            let sums = squares.into_iter().zip(sizes).zip(most);
            sums.map(|((squares, size), most)| (f64::from(squares), f64::from(size), most))
                .collect()
        } else {
            let sums = rows().map(|(a, b)| {
                let sums = pair_sums(Level::current(), a, b);
                (sums.squares, sums.size, sums.max_abs)
            });
            sums.collect()
        };
        let kept = |of: &[f32]| -> Vec<f32> {
            let rows = of.chunks(width.max(1));
            rows.flat_map(|row| columns.iter().flat_map(|range| &row[range.clone()]))
                .copied()
                .collect()
        };
        let found = Self {
            apart,
            roundings: Roundings::ALL.after(a, b),
            kept: [kept(a), kept(b)],
        };
        found
            .apart
            .iter()
            .all(|sums| sums.0.is_finite() && sums.1.is_finite())
            .then_some(found)
    }
}

impl StoredPair<'_> {
    /// Compares two matrices output by output, where outputs are stored rows or columns, and samples some columns of every row.
    /// `None` if values need more careful arithmetic: they are not finite, or too small or large to be squared in f32.
    ///
    /// # Errors
    /// When a tensor cannot be read, or the pace stops it.
    pub fn by_output(
        &self,
        are_columns: bool,
        columns: &[Range<usize>],
    ) -> Result<Option<ByOutput>> {
        if !self.is_by_rows() {
            return Ok(None);
        }
        // Grouping depends only on sizes, and one thread sums each group, so column sums are held per group and not per part.
        let n_parts = self.n_parts();
        let n_groups = n_parts.min(GROUPS);
        let of_group = |buffers: &mut Buffers, group: usize| -> Result<Option<PartByOutput>> {
            let mut all: Option<PartByOutput> = None;
            for nth in group * n_parts / n_groups..(group + 1) * n_parts / n_groups {
                self.part(nth, buffers)?;
                let (a, b) = (buffers.0.as_slice(), buffers.1.as_slice());
                let part = PartByOutput::of((a, b), self.width, are_columns, columns);
                match (&mut all, part) {
                    (_, None) => return Ok(None),
                    (Some(all), Some(part)) => all.join(&part, are_columns),
                    (None, part) => all = part,
                }
            }
            Ok(all)
        };
        let groups = (0..n_groups).into_par_iter();
        let groups: Result<Option<Vec<PartByOutput>>> = groups
            .map(|group| with_buffers(|buffers| of_group(buffers, group)))
            .collect();
        let Some(groups) = groups? else {
            return Ok(None);
        };
        let joined = groups.into_iter().reduce(|mut all, group| {
            all.join(&group, are_columns);
            all
        });
        let exact = joined.filter(|all| all.apart.iter().all(are_exact));
        Ok(exact.map(|all| ByOutput {
            apart: all.apart,
            is_rounded: all.roundings.are_possible(),
            n_kept: columns.iter().map(Range::len).sum(),
            kept: all.kept,
        }))
    }
}
