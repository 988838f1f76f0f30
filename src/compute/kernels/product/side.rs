//! The rows of a product as they are multiplied: in panels that lie across vectors, or line after line; and panels of columns.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;

use super::lines::Lines;
use super::{TERMS, Threads};
use crate::kernels::Aligned;
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

/// The blocks of terms that are summed apart.
pub(super) fn blocks(terms: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let starts = terms.clone().step_by(TERMS);
    starts.map(move |start| start..terms.end.min(start + TERMS))
}

/// Which side lies across vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Rows,
    Columns,
}

/// Rows of which all terms are at hand.
#[derive(Debug)]
pub(super) enum Side<'a> {
    Panels(Panels),
    Whole(Whole<'a>),
}

/// Rows across vectors.
#[derive(Debug)]
pub(super) struct Panels {
    /// [block of terms][panel][term][line of the panel]; lines that are missing in the last vector are 0
    pub data: Aligned,
    pub n_lines: usize,
    /// Lines with those that fill the last vector.
    pub n_padded: usize,
}

/// Rows whose terms are neighbours, where they lie if they do.
#[derive(Debug)]
pub(super) struct Whole<'a> {
    /// [line, stride], of which the first terms count
    pub data: Cow<'a, [f32]>,
    pub stride: usize,
    pub n_lines: usize,
}

impl<'a> Side<'a> {
    pub fn of(level: Level, form: Form, lines: &Lines<'a, f32>, threads: Threads) -> Self {
        match form {
            Form::Rows => Self::Panels(Panels::of(level, lines, threads)),
            Form::Columns => Self::Whole(Whole::of(lines)),
        }
    }

    pub fn n_lines(&self) -> usize {
        match self {
            Self::Panels(panels) => panels.n_lines,
            Self::Whole(whole) => whole.n_lines,
        }
    }
}

impl Panels {
    fn of(level: Level, lines: &Lines<'_, f32>, threads: Threads) -> Self {
        let n_padded = lines.n_lines.next_multiple_of(panel_width(level) / VECTORS);
        let mut data = Aligned::zeros(n_padded * lines.n_terms);
        let of_block = (n_padded * TERMS).max(1);
        let lay = |(nth, to): (usize, &mut [f32])| {
            let start = nth * TERMS;
            let terms = start..lines.n_terms.min(start + TERMS);
            level.run(LayAcross { lines, terms, to });
        };
        match threads {
            Threads::One => data.chunks_mut(of_block).enumerate().for_each(lay),
            Threads::Pool => data.par_chunks_mut(of_block).enumerate().for_each(lay),
        }
        Self {
            data,
            n_lines: lines.n_lines,
            n_padded,
        }
    }
}

impl<'a> Whole<'a> {
    fn of(lines: &Lines<'a, f32>) -> Self {
        let (data, stride) = match lines.in_place() {
            Some((data, stride)) => (Cow::Borrowed(data), stride),
            None => {
                let mut copied = vec![0.0; lines.n_lines * lines.n_terms];
                lines.copy(0..lines.n_lines, &(0..lines.n_terms), &mut copied);
                (Cow::Owned(copied), lines.n_terms)
            }
        };
        Self {
            data,
            stride,
            n_lines: lines.n_lines,
        }
    }
}

/// Lays out a block of terms in panels.
pub(super) struct LayAcross<'a, T> {
    pub lines: &'a Lines<'a, T>,
    pub terms: Range<usize>,
    pub to: &'a mut [f32],
}

impl<T: Stored> Kernel for LayAcross<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let (width, n_padded) = (VECTORS * L::N, self.to.len() / self.terms.len().max(1));
        self.lines.lay_across(&self.terms, width, n_padded, self.to);
    }
}
