//! A part of a product: rows that are laid out times some columns.

use std::ops::Range;

use super::lines::Lines;
use super::side::{LayAcross, Panels, Side, VECTORS, Whole, blocks};
use super::{Onto, TERMS};
use crate::kernels::Aligned;
use crate::kernels::simd::{Kernel, Lanes, add_products};
use crate::kernels::stored::Stored;
use crate::kernels::tiles::Tile;

/// Lines that are multiplied with a panel at once: as many as leave registers for its vectors.
const fn lines_at_once(registers: usize) -> usize {
    if registers >= 32 { 8 } else { 4 }
}

/// Panels, or lines, of rows whose sums with all columns of the task stay in the L2 cache.
const PANELS_AT_ONCE: usize = 3;
const LINES_AT_ONCE: usize = 128;
/// Terms of columns that a task lays out at once, whole blocks of them: with them, its panels stay in the L2 cache.
pub(super) const TERMS_AT_ONCE: usize = 8 * TERMS;

/// Memory of a thread's tasks.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    columns: Aligned,
    sums: Aligned,
}

/// All rows times some columns.
pub(super) struct Task<'a, T> {
    pub rows: &'a Side<'a>,
    pub columns: Lines<'a, T>,
    pub onto: Onto<'a>,
    pub out: Tile<'a>,
    pub buffer: &'a mut Buffer,
}

impl<T: Stored> Kernel for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        match self.rows {
            Side::Panels(rows) => self.rows_across(l, rows),
            Side::Whole(rows) => self.columns_across(l, rows),
        }
    }
}

impl<T: Stored> Task<'_, T> {
    /// Panels of columns times lines of rows.
    #[inline(always)]
    fn columns_across<L: Lanes>(&mut self, l: L, rows: &Whole<'_>) {
        let n_terms = self.columns.n_terms;
        let mut start = 0;
        while start < n_terms || start == 0 {
            let terms = start..n_terms.min(start + TERMS_AT_ONCE);
            self.some_terms(l, rows, terms);
            // The next terms are added to what these gave.
            self.onto = Onto::Itself;
            start += TERMS_AT_ONCE;
        }
    }

    /// The part of the sums that some terms make.
    #[inline(always)]
    fn some_terms<L: Lanes>(&mut self, l: L, rows: &Whole<'_>, terms: Range<usize>) {
        let columns = &self.columns;
        let n_padded = columns.n_lines.next_multiple_of(L::N);
        let Buffer {
            columns: panels,
            sums,
        } = &mut *self.buffer;
        let kept = Kept::of(terms.clone(), rows.n_lines <= LINES_AT_ONCE);
        panels.resize(n_padded * kept.n_terms);
        sums.resize(LINES_AT_ONCE.min(rows.n_lines) * n_padded);
        for first in (0..rows.n_lines).step_by(LINES_AT_ONCE) {
            let n_rows = LINES_AT_ONCE.min(rows.n_lines - first);
            let sums = &mut sums[..n_rows * n_padded]; // [row, column]
            for (nth, sums) in sums.chunks_exact_mut(n_padded).enumerate() {
                match self.onto {
                    Onto::Nothing => sums.fill(0.0),
                    Onto::Itself => {
                        sums[..columns.n_lines].copy_from_slice(self.out.row(first + nth));
                    }
                    Onto::Bias(bias) => sums[..columns.n_lines].copy_from_slice(bias),
                }
            }
            for terms in blocks(terms.clone()) {
                let n_terms = terms.len();
                let panels = &mut panels[kept.place(&terms, n_padded)];
                if first == 0 {
                    LayAcross {
                        lines: columns,
                        terms: terms.clone(),
                        to: panels,
                    }
                    .run(l);
                }
                Block {
                    panels,
                    lines: &rows.data[first * rows.stride + terms.start..],
                    stride: rows.stride,
                    n_lines: n_rows,
                    n_terms,
                    n_padded,
                }
                .multiply(l, sums);
            }
            for (nth, sums) in sums.chunks_exact(n_padded).enumerate() {
                let to = self.out.row(first + nth);
                to.copy_from_slice(&sums[..columns.n_lines]);
            }
        }
    }

    /// Panels of rows times lines of columns; the result is turned back.
    #[inline(always)]
    fn rows_across<L: Lanes>(&mut self, l: L, rows: &Panels) {
        let columns = self.columns;
        let n_terms = columns.n_terms;
        let Buffer {
            columns: copied,
            sums,
        } = &mut *self.buffer;
        let n_at_once = PANELS_AT_ONCE * VECTORS * L::N;
        for first in (0..rows.n_padded).step_by(n_at_once) {
            let n_padded = n_at_once.min(rows.n_padded - first);
            let here = first..rows.n_lines.min(first + n_padded);
            let n_together = columns_together(n_padded * n_terms);
            for column in (0..columns.n_lines).step_by(n_together) {
                let some = column..columns.n_lines.min(column + n_together);
                sums.resize(some.len() * n_padded); // [column, row]
                match self.onto {
                    Onto::Nothing => sums.fill(0.0),
                    Onto::Itself => {
                        for (nth, row_idx) in here.clone().enumerate() {
                            let to = sums[nth..].iter_mut().step_by(n_padded);
                            let from = &self.out.row(row_idx)[some.clone()];
                            to.zip(from).for_each(|(to, from)| *to = *from);
                        }
                    }
                    Onto::Bias(bias) => {
                        let columns = sums.chunks_exact_mut(n_padded).zip(&bias[some.clone()]);
                        columns.for_each(|(sums, bias)| sums.fill(*bias));
                    }
                }
                for terms in blocks(0..n_terms) {
                    let n_terms = terms.len();
                    let at = terms.start * rows.n_padded + first * n_terms;
                    let (lines, stride) = match columns.in_place() {
                        Some((lines, stride)) => (&lines[column * stride + terms.start..], stride),
                        None => {
                            copied.resize(some.len() * n_terms);
                            columns.copy(some.clone(), &terms, copied);
                            (&**copied, n_terms)
                        }
                    };
                    Block {
                        panels: &rows.data[at..at + n_padded * n_terms],
                        lines,
                        stride,
                        n_lines: some.len(),
                        n_terms,
                        n_padded,
                    }
                    .multiply(l, sums);
                }
                turn(sums, n_padded, here.clone(), &mut self.out, some);
            }
        }
    }
}

/// Columns that all terms of so many values of panels are multiplied with at once. Few are read one after another, as they lie in memory;
/// panels that leave the L2 cache meanwhile are read for more.
const fn columns_together(n_values: usize) -> usize {
    const IN_CACHE: usize = 1 << 17;
    if n_values <= IN_CACHE { 16 } else { 128 }
}

/// Columns that a task has laid out: all blocks of some terms if they are used again, or one block at a time.
struct Kept {
    first: usize,
    n_terms: usize,
    is_one_block: bool,
}

impl Kept {
    fn of(terms: Range<usize>, is_one_block: bool) -> Self {
        let n_terms = if is_one_block {
            terms.len().min(TERMS)
        } else {
            terms.len()
        };
        Self {
            first: terms.start,
            n_terms,
            is_one_block,
        }
    }

    /// Where a block of so many lines lies.
    fn place(&self, terms: &Range<usize>, n_lines: usize) -> Range<usize> {
        let start = if self.is_one_block {
            0
        } else {
            terms.start - self.first
        };
        start * n_lines..(start + terms.len()) * n_lines
    }
}

/// Exchanges lines and columns, for some of the result's. // from: [column, row]
#[inline(always)]
fn turn(
    from: &[f32],
    n_padded: usize,
    rows: Range<usize>,
    to: &mut Tile<'_>,
    columns: Range<usize>,
) {
    const TOGETHER: usize = 16;
    let n_rows = rows.len();
    let (whole, rest) = from.split_at(columns.len() / TOGETHER * TOGETHER * n_padded);
    for (nth, from) in whole.chunks_exact(TOGETHER * n_padded).enumerate() {
        let first = columns.start + nth * TOGETHER;
        let lines: [&[f32]; TOGETHER] =
            std::array::from_fn(|nth| &from[nth * n_padded..][..n_rows]);
        for (nth, row_idx) in rows.clone().enumerate() {
            let to = &mut to.row(row_idx)[first..][..TOGETHER];
            for (to, line) in to.iter_mut().zip(&lines) {
                *to = line[nth];
            }
        }
    }
    let first = columns.end - rest.len() / n_padded;
    for (nth, row_idx) in rows.enumerate() {
        let from = rest.iter().skip(nth).step_by(n_padded);
        let to = to.row(row_idx)[first..columns.end].iter_mut();
        to.zip(from).for_each(|(to, from)| *to = *from);
    }
}

/// Panels times lines, for a block of terms.
struct Block<'a> {
    /// [panel][term][line of the panel]
    panels: &'a [f32],
    /// [line, stride], of which the first terms count
    lines: &'a [f32],
    stride: usize,
    n_lines: usize,
    n_terms: usize,
    /// Lines in all panels.
    n_padded: usize,
}

impl Block<'_> {
    /// Adds the block's sums. // sums: [line, n_padded]
    #[inline(always)]
    fn multiply<L: Lanes>(&self, l: L, sums: &mut [f32]) {
        if L::REGISTERS >= 32 {
            self.panels::<L, { lines_at_once(32) }>(l, sums);
        } else {
            self.panels::<L, { lines_at_once(16) }>(l, sums);
        }
    }

    #[inline(always)]
    fn panels<L: Lanes, const LINES: usize>(&self, l: L, sums: &mut [f32]) {
        let width = VECTORS * L::N;
        for (nth, panel) in self.panels.chunks(width * self.n_terms).enumerate() {
            let column = nth * width;
            match panel.len() / self.n_terms / L::N {
                1 => self.lines::<L, LINES, 1>(l, panel, column, sums),
                2 => self.lines::<L, LINES, 2>(l, panel, column, sums),
                _ => self.lines::<L, LINES, VECTORS>(l, panel, column, sums),
            }
        }
    }

    #[inline(always)]
    fn lines<L: Lanes, const LINES: usize, const N: usize>(
        &self,
        l: L,
        panel: &[f32],
        column: usize,
        sums: &mut [f32],
    ) {
        let (panel, _) = L::vectors(panel).as_chunks::<N>();
        let n_whole = self.n_lines / LINES * LINES;
        for line in (0..n_whole).step_by(LINES) {
            self.tile::<L, LINES, N>(l, panel, line, column, sums);
        }
        for line in n_whole..self.n_lines {
            self.tile::<L, 1, N>(l, panel, line, column, sums);
        }
    }

    #[inline(always)]
    fn tile<L: Lanes, const LINES: usize, const N: usize>(
        &self,
        l: L,
        panel: &[[L::Vector; N]],
        line: usize,
        column: usize,
        sums: &mut [f32],
    ) {
        let mut tile = [[l.splat(0.0); N]; LINES];
        let lines: [&[f32]; LINES] =
            std::array::from_fn(|nth| &self.lines[(line + nth) * self.stride..][..self.n_terms]);
        add_products(l, &lines, panel, &mut tile);
        for (nth, tile) in tile.into_iter().enumerate() {
            let to = &mut sums[(line + nth) * self.n_padded + column..];
            let to = L::vectors_mut(to).first_chunk_mut::<N>();
            let to = to.expect("sums are as wide as all panels");
            *to = std::array::from_fn(|nth| l.add(to[nth], tile[nth]));
        }
    }
}
