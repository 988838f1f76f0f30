//! One side of a product, laid out for it: in panels that lie across vectors, or line after line; block by block of terms.

use std::ops::Range;

use rayon::prelude::*;

use super::lines::Lines;
use super::{TERMS, Threads};
use crate::kernels::simd::{Kernel, Lanes, Level};
use crate::kernels::stored::Stored;

/// Vectors in a panel: with a block of terms, it stays in the L1 cache.
pub(super) const VECTORS: usize = 3;

/// Values of a panel's vectors.
pub(super) fn panel_width(level: Level) -> usize {
    level.run(PanelWidth)
}

struct PanelWidth;

impl Kernel for PanelWidth {
    type Output = usize;

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> usize {
        VECTORS * L::N
    }
}

/// How lines lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// [panel][term][line of the panel]; lines that are missing in the last vector are 0
    Across,
    /// [line][term]
    Along,
}

/// The blocks of terms that are summed apart.
pub(super) fn blocks(terms: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let starts = terms.clone().step_by(TERMS);
    starts.map(move |start| start..terms.end.min(start + TERMS))
}

/// Lines of which all terms are laid out. // [block of terms][lines as the form says]
#[derive(Debug)]
pub(super) struct Side {
    pub form: Form,
    pub data: Vec<f32>,
    pub n_lines: usize,
    /// Lines with those that fill the last vector.
    pub n_padded: usize,
}

impl Side {
    pub fn of<T: Stored>(level: Level, form: Form, lines: &Lines<'_, T>, threads: Threads) -> Self {
        let n_padded = padded(level, form, lines.n_lines);
        let mut data = vec![0.0; n_padded * lines.n_terms];
        let of_block = (n_padded * TERMS).max(1);
        let lay = |(nth, to): (usize, &mut [f32])| {
            let start = nth * TERMS;
            let terms = start..lines.n_terms.min(start + TERMS);
            level.run(Lay {
                form,
                lines,
                terms,
                to,
            });
        };
        match threads {
            Threads::One => data.chunks_mut(of_block).enumerate().for_each(lay),
            Threads::Pool => data.par_chunks_mut(of_block).enumerate().for_each(lay),
        }
        Self {
            form,
            data,
            n_lines: lines.n_lines,
            n_padded,
        }
    }
}

/// Number of lines with those that fill the last vector.
pub(super) fn padded(level: Level, form: Form, n_lines: usize) -> usize {
    match form {
        Form::Across => n_lines.next_multiple_of(panel_width(level) / VECTORS),
        Form::Along => n_lines,
    }
}

/// Lays out a block of terms.
pub(super) struct Lay<'a, T> {
    pub form: Form,
    pub lines: &'a Lines<'a, T>,
    pub terms: Range<usize>,
    pub to: &'a mut [f32],
}

impl<T: Stored> Kernel for Lay<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let (lines, n_terms) = (self.lines, self.terms.len());
        if self.form == Form::Along {
            return lines.copy(0..lines.n_lines, &self.terms, self.to);
        }
        let (width, n_padded) = (VECTORS * L::N, self.to.len() / n_terms.max(1));
        lines.lay_across(&self.terms, width, n_padded, self.to);
    }
}
