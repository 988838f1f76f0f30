//! Products of a few rows with weights as they are stored: rows lie side by side in vectors, and no weight is repacked.
//!
//! `gemm` repacks weights for every product, which pays off only where many rows use them. Here every weight is loaded where it
//! lies and multiplied with one value of each row. The results are bit-identical to those of [`product`](super::product): sums
//! have the same terms in the same order, and are split at the same terms.

use std::ops::{Range, RangeInclusive};
use std::sync::OnceLock;

use rayon::prelude::*;

use super::product::{FEW_OUTPUTS, Matrix, MatrixMut, Threads, by_gemm, terms_at_once};
use super::simd::{Kernel, Lanes, Level};

/// Most rows that are multiplied in this way where the weights of an output are neighbours, as in most models. `gemm` has to
/// transpose them.
const MOST_ROWS: usize = 64;
/// Numbers of rows where the weights of an input are neighbours, which `gemm` need not repack for a few rows.
const ROWS_APART: RangeInclusive<usize> = 5..=32;
/// Rows side by side: one vector at the widest level.
const LANES: usize = 16;
/// Fewest terms that `gemm` sums in its usual way: one and two are handled differently.
const FEWEST_TERMS: usize = 3;
/// Weights per parallel task; a product of fewer weights is not divided.
const TASK: usize = 1 << 16;
/// Outputs per task are a multiple of this.
const OUTPUTS: usize = 16;
/// Inputs after which the next outputs are computed, where the weights of an output are far apart: as many lines stay cached.
const INPUTS_APART: usize = 64;

/// Whether [`product`](super::product) may multiply so many rows here, on this machine and for these sizes.
pub(super) fn is_usable(n_rows: usize, n_in: usize, right: &Matrix<'_>) -> bool {
    static IS_USABLE: OnceLock<bool> = OnceLock::new();
    // With fewer outputs or inputs, `gemm` may sum in other ways; such products are cheap anyway.
    let suits = match (right.row_stride, right.col_stride) {
        (1, _) => n_rows <= MOST_ROWS,
        (_, 1) => ROWS_APART.contains(&n_rows),
        _ => false,
    };
    suits
        && n_in >= FEWEST_TERMS
        && right.n_cols > FEW_OUTPUTS
        && *IS_USABLE.get_or_init(|| [(70, 40), (130, 1500)].into_iter().all(is_same))
}

/// Whether products of this shape are bit-identical to those of `gemm`.
fn is_same((n_out, n_in): (usize, usize)) -> bool {
    let value = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 503.0 - 1.0;
    let n_rows = LANES + 1;
    let rows: Vec<f32> = (0..n_rows * n_in).map(value).collect();
    let weight: Vec<f32> = (0..n_out * n_in).map(|i| value(i + 5)).collect();
    let left = Matrix::row_major(&rows, n_rows, n_in);
    let right = Matrix::row_major(&weight, n_out, n_in).transposed();
    let mut found = [(); 2].map(|()| (0..n_rows * n_out).map(value).collect::<Vec<f32>>());
    for (values, multiply) in found.iter_mut().zip([by_gemm, in_lanes]) {
        let mut out = MatrixMut::new(values, n_rows, n_out, n_out);
        multiply(&mut out, left, right, true, Threads::One);
    }
    found[0] == found[1]
}

/// `out = left · right`, or `out += left · right` when `accumulate`; the caller has compared the shapes.
pub(super) fn in_lanes(
    out: &mut MatrixMut<'_>,
    left: Matrix<'_>,
    right: Matrix<'_>,
    accumulate: bool,
    threads: Threads,
) {
    let n_in = left.n_cols;
    let n_at_once = terms_at_once(n_in).max(1);
    let n_together = if out.n_rows > LANES { 2 * LANES } else { LANES };
    let mut rows = vec![0.0; n_in * n_together]; // [input, row of the group]
    let mut sums = vec![0.0; out.n_cols * n_together]; // [output, row of the group]
    let n_outputs = (TASK / n_in.max(1))
        .next_multiple_of(OUTPUTS)
        .max(4 * OUTPUTS);
    for first_row in (0..out.n_rows).step_by(n_together) {
        let n_rows = n_together.min(out.n_rows - first_row);
        lay_out(left, first_row..first_row + n_rows, n_together, &mut rows);
        if accumulate {
            for row_idx in 0..n_rows {
                let from = &out.data[(first_row + row_idx) * out.row_stride..][..out.n_cols];
                let to = sums[row_idx..].iter_mut().step_by(n_together);
                to.zip(from).for_each(|(to, from)| *to = *from);
            }
        }
        let multiply = |(task_idx, sums): (usize, &mut [f32])| {
            Level::best().run(Outputs {
                right,
                first: task_idx * n_outputs,
                rows: &rows,
                n_together,
                n_at_once,
                accumulate,
                sums,
            });
        };
        match threads {
            Threads::One => multiply((0, &mut sums)),
            Threads::Pool => sums
                .par_chunks_mut(n_outputs * n_together)
                .enumerate()
                .for_each(multiply),
        }
        for row_idx in 0..n_rows {
            let to = &mut out.data[(first_row + row_idx) * out.row_stride..][..out.n_cols];
            let from = sums[row_idx..].iter().step_by(n_together);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
    }
}

/// Puts some rows side by side; those that are missing in the last group are zero. // to: [input, n_together]
fn lay_out(left: Matrix<'_>, rows: Range<usize>, n_together: usize, to: &mut [f32]) {
    let n_rows = rows.len();
    for (nth, row_idx) in rows.enumerate() {
        let to = to[nth..].iter_mut().step_by(n_together);
        let from = left.data[row_idx * left.row_stride..]
            .iter()
            .step_by(left.col_stride.max(1));
        to.zip(from).for_each(|(to, from)| *to = *from);
    }
    if n_rows < n_together {
        to.chunks_mut(n_together)
            .for_each(|to| to[n_rows..].fill(0.0));
    }
}

/// One group of rows times the weights of some outputs.
struct Outputs<'a> {
    right: Matrix<'a>,
    /// Index of the first output.
    first: usize,
    /// [input, n_together]
    rows: &'a [f32],
    n_together: usize,
    /// Number of terms summed before the sum is added to the output.
    n_at_once: usize,
    accumulate: bool,
    /// [output, n_together]
    sums: &'a mut [f32],
}

impl Kernel for Outputs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        match (L::N, self.n_together / LANES) {
            (16, 1) => self.tiles::<L, 1, 8>(l),
            (16, _) if self.is_apart() => self.tiles::<L, 2, 4>(l),
            (16, _) => self.tiles::<L, 2, 8>(l),
            (8, 1) => self.tiles::<L, 2, 4>(l),
            (8, _) | (_, 1) => self.tiles::<L, 4, 2>(l),
            _ => self.tiles::<L, 8, 1>(l),
        }
    }
}

impl Outputs<'_> {
    /// Whether the weights of an input are neighbours, and those of an output far apart.
    fn is_apart(&self) -> bool {
        self.right.row_stride != 1
    }

    /// Goes through inputs in parts, and through `O` outputs at a time; `V` vectors hold the rows.
    #[inline(always)]
    fn tiles<L: Lanes, const V: usize, const O: usize>(self, l: L) {
        let right = self.right;
        let is_apart = self.is_apart();
        let (rows, _) = L::vectors(self.rows).as_chunks::<V>(); // [input]
        let (sums, _) = L::vectors_mut(self.sums).as_chunks_mut::<V>(); // [output]
        let zero = [l.splat(0.0); V];
        let mut parts = vec![zero; sums.len()];
        let mut is_first = !self.accumulate;
        for (chunk_idx, chunk) in rows.chunks(self.n_at_once).enumerate() {
            let n_inputs = if is_apart { INPUTS_APART } else { chunk.len() };
            for (nth, rows) in chunk.chunks(n_inputs).enumerate() {
                let input = chunk_idx * self.n_at_once + nth * n_inputs;
                let (tiles, rest) = parts.as_chunks_mut::<O>();
                let n_tiled = tiles.len() * O;
                for (tile_idx, tile) in tiles.iter_mut().enumerate() {
                    let output = self.first + tile_idx * O;
                    if is_apart {
                        apart(l, &right, (input, output), rows, tile);
                    } else {
                        together(l, &right, (input, output), rows, tile);
                    }
                }
                for (nth, part) in rest.iter_mut().enumerate() {
                    let at = (input, self.first + n_tiled + nth);
                    apart(l, &right, at, rows, std::array::from_mut(part));
                }
            }
            for (sum, part) in sums.iter_mut().zip(&mut parts) {
                for (sum, part) in sum.iter_mut().zip(&mut *part) {
                    *sum = if is_first { *part } else { l.add(*sum, *part) };
                }
                *part = zero;
            }
            is_first = false;
        }
    }
}

/// Adds the terms of some inputs to the sums of `O` outputs; weights of one input are neighbours, or in any place.
#[inline(always)]
fn apart<L: Lanes, const V: usize, const O: usize>(
    l: L,
    right: &Matrix<'_>,
    (input, output): (usize, usize),
    rows: &[[L::Vector; V]],
    to: &mut [[L::Vector; V]; O],
) {
    let mut sums = *to;
    let weights = &right.data[input * right.row_stride + output * right.col_stride..];
    for (row, weights) in rows.iter().zip(weights.chunks(right.row_stride)) {
        let weights = &weights[..O];
        for (sum, weight) in sums.iter_mut().zip(weights) {
            let weight = l.splat(*weight);
            for (sum, row) in sum.iter_mut().zip(row) {
                *sum = l.mul_add(weight, *row, *sum);
            }
        }
    }
    *to = sums;
}

/// Like [`apart`], where the weights of one output are neighbours.
#[inline(always)]
fn together<L: Lanes, const V: usize, const O: usize>(
    l: L,
    right: &Matrix<'_>,
    (input, output): (usize, usize),
    rows: &[[L::Vector; V]],
    to: &mut [[L::Vector; V]; O],
) {
    const AT_ONCE: usize = 8;
    let mut sums = *to;
    let of_output = |nth: usize| {
        let at = (output + nth) * right.col_stride + input;
        &right.data[at..at + rows.len()]
    };
    let weights: [&[f32]; O] = std::array::from_fn(of_output);
    let (chunks, rest) = rows.as_chunks::<AT_ONCE>();
    let parts = weights.map(|weights| weights.as_chunks::<AT_ONCE>().0);
    for (chunk_idx, rows) in chunks.iter().enumerate() {
        let weights: [&[f32; AT_ONCE]; O] = std::array::from_fn(|nth| &parts[nth][chunk_idx]);
        for (nth, row) in rows.iter().enumerate() {
            for (sum, weights) in sums.iter_mut().zip(&weights) {
                let weight = l.splat(weights[nth]);
                for (sum, row) in sum.iter_mut().zip(row) {
                    *sum = l.mul_add(weight, *row, *sum);
                }
            }
        }
    }
    let done = chunks.len() * AT_ONCE;
    for (nth, row) in rest.iter().enumerate() {
        for (sum, weights) in sums.iter_mut().zip(&weights) {
            let weight = l.splat(weights[done + nth]);
            for (sum, row) in sum.iter_mut().zip(row) {
                *sum = l.mul_add(weight, *row, *sum);
            }
        }
    }
    *to = sums;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_lanes_give_the_bits_of_gemm() {
        let value = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 503.0 - 1.0;
        let n_most = MOST_ROWS;
        for (n_out, n_in) in [(65, 3), (100, 511), (130, 768), (203, 1100)] {
            let rows: Vec<f32> = (0..n_most * n_in).map(|i| value(i + 3)).collect();
            // A part of a wider matrix, stored in either way.
            let weight: Vec<f32> = (0..(n_out + 9) * n_in).map(value).collect();
            let by_output = Matrix::row_major(&weight[4 * n_in..], n_out, n_in).transposed();
            let by_input = Matrix::new(&weight[4..], n_in, n_out, n_out + 9, 1);
            for right in [by_output, by_input] {
                if !is_usable(*ROWS_APART.start(), n_in, &right) {
                    return;
                }
                for n_rows in [1, 5, 16, 17, 33, n_most] {
                    let left = Matrix::row_major(&rows[..n_rows * n_in], n_rows, n_in);
                    for (accumulate, threads) in [(false, Threads::One), (true, Threads::Pool)] {
                        let mut found =
                            [(); 2].map(|()| (0..n_rows * n_out).map(value).collect::<Vec<f32>>());
                        for (values, multiply) in found.iter_mut().zip([by_gemm, in_lanes]) {
                            let mut to = MatrixMut::new(values, n_rows, n_out, n_out);
                            multiply(&mut to, left, right, accumulate, threads);
                        }
                        assert!(found[0] == found[1], "{n_rows} rows of {n_out} x {n_in}");
                    }
                }
            }
        }
    }
}
