//! One side of a product as lines of terms: the rows of the left matrix, the columns of the right one.

use std::ops::Range;

use super::matrix::Matrix;
use crate::kernels::stored::Stored;

/// Lines and terms that are turned together.
const SQUARE: usize = 16;

/// Lines that are multiplied with each other, term by term.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines<'a, T> {
    data: &'a [T],
    pub n_lines: usize,
    pub n_terms: usize,
    line_stride: usize,
    term_stride: usize,
}

impl<'a> Lines<'a, f32> {
    pub fn of_rows(left: Matrix<'a>) -> Self {
        Self {
            data: left.data,
            n_lines: left.n_rows,
            n_terms: left.n_cols,
            line_stride: left.row_stride,
            term_stride: left.col_stride,
        }
    }
}

impl<'a, T: Stored> Lines<'a, T> {
    pub fn of_columns(right: Matrix<'a, T>) -> Self {
        Self {
            data: right.data,
            n_lines: right.n_cols,
            n_terms: right.n_rows,
            line_stride: right.col_stride,
            term_stride: right.row_stride,
        }
    }

    /// Whether the terms of a line are neighbours.
    pub fn are_whole(&self) -> bool {
        self.term_stride == 1
    }

    pub fn some(self, lines: Range<usize>) -> Self {
        let at = (lines.start * self.line_stride).min(self.data.len());
        Self {
            data: &self.data[at..],
            n_lines: lines.len(),
            ..self
        }
    }

    /// Lines that can be used where they lie, and how far apart they begin.
    #[inline(always)]
    pub fn in_place(&self) -> Option<(&'a [f32], usize)> {
        let numbers = T::as_f32(self.data).filter(|_| self.are_whole())?;
        Some((numbers, self.line_stride))
    }

    /// Copies some terms of some lines. // to: [line, term]
    #[inline(always)]
    pub fn copy(&self, lines: Range<usize>, terms: &Range<usize>, to: &mut [f32]) {
        let n_terms = terms.len();
        for (line, to) in lines.zip(to.chunks_exact_mut(n_terms)) {
            let from = &self.data[line * self.line_stride + terms.start * self.term_stride..];
            if self.are_whole() {
                for (to, from) in to.iter_mut().zip(&from[..n_terms]) {
                    *to = from.widen();
                }
            } else {
                let from = from.iter().step_by(self.term_stride.max(1));
                to.iter_mut()
                    .zip(from)
                    .for_each(|(to, from)| *to = from.widen());
            }
        }
    }

    /// Lays some terms of all lines across, in panels of `width` of them; lines that are missing in the last `n_padded` are 0.
    // to: [panel][term][line of the panel]
    #[inline(always)]
    pub fn lay_across(&self, terms: &Range<usize>, width: usize, n_padded: usize, to: &mut [f32]) {
        let n_terms = terms.len();
        if self.line_stride == 1 {
            // Term by term, as they lie in memory.
            for (nth, term) in terms.clone().enumerate() {
                let from = &self.data[term * self.term_stride..][..self.n_lines];
                for (panel_idx, from) in from.chunks(width).enumerate() {
                    let first = panel_idx * width;
                    let n_here = width.min(n_padded - first);
                    let to = &mut to[first * n_terms + nth * n_here..][..n_here];
                    for (to, from) in to.iter_mut().zip(from) {
                        *to = from.widen();
                    }
                    to[from.len()..].fill(0.0);
                }
            }
            return;
        }
        for (panel_idx, to) in to.chunks_mut(width * n_terms).enumerate() {
            let first = panel_idx * width;
            let lines = first..self.n_lines.min(first + width);
            self.turn(lines, terms, to.len() / n_terms, to);
        }
    }

    /// One panel of lines whose terms are neighbours, or which lie in any way. // to: [term, width]
    #[inline(always)]
    fn turn(&self, lines: Range<usize>, terms: &Range<usize>, width: usize, to: &mut [f32]) {
        let n_terms = terms.len();
        let (whole, rest) = if self.are_whole() {
            let end = lines.start + lines.len() / SQUARE * SQUARE;
            (lines.start..end, end..lines.end)
        } else {
            (lines.start..lines.start, lines.clone())
        };
        let n_whole = n_terms / SQUARE * SQUARE;
        for line in whole.clone().step_by(SQUARE) {
            let nth = line - lines.start;
            let from: [&[T]; SQUARE] = std::array::from_fn(|nth| {
                let at = (line + nth) * self.line_stride + terms.start;
                &self.data[at..at + n_terms]
            });
            for term in (0..n_whole).step_by(SQUARE) {
                let from: [&[T]; SQUARE] = from.map(|from| &from[term..term + SQUARE]);
                let to = to[term * width + nth..].chunks_mut(width);
                for (term, to) in to.take(SQUARE).enumerate() {
                    for (to, from) in to.iter_mut().zip(&from) {
                        *to = from[term].widen();
                    }
                }
            }
            for term in n_whole..n_terms {
                let to = to[term * width + nth..].iter_mut();
                to.zip(&from)
                    .for_each(|(to, from)| *to = from[term].widen());
            }
        }
        for line in rest {
            let to = to.iter_mut().skip(line - lines.start).step_by(width);
            for (to, term) in to.zip(terms.clone()) {
                *to = self.data[line * self.line_stride + term * self.term_stride].widen();
            }
        }
        if lines.len() < width {
            to.chunks_mut(width)
                .for_each(|to| to[lines.len()..].fill(0.0));
        }
    }
}
