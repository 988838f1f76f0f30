//! The matrix product: `gemm` behind views with bounds checked once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gemm::Parallelism;

use super::in_lanes::{in_lanes, is_usable};

/// A read-only strided matrix view of a slice.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    pub(super) data: &'a [f32],
    pub(super) n_rows: usize,
    pub(super) n_cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

impl<'a> Matrix<'a> {
    /// # Panics
    /// When the last element is outside `data`: a programming error, never caused by input.
    pub fn new(
        data: &'a [f32],
        n_rows: usize,
        n_cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Self {
        assert!(
            fits(data.len(), n_rows, n_cols, row_stride, col_stride),
            "a {n_rows} x {n_cols} matrix view exceeds its {} elements",
            data.len()
        );
        Self {
            data,
            n_rows,
            n_cols,
            row_stride,
            col_stride,
        }
    }

    /// A matrix whose rows are contiguous, one after another.
    pub fn row_major(data: &'a [f32], n_rows: usize, n_cols: usize) -> Self {
        Self::new(data, n_rows, n_cols, n_cols, 1)
    }

    /// Some of the columns.
    ///
    /// # Panics
    /// When the matrix has too few columns.
    pub fn columns(self, columns: std::ops::Range<usize>) -> Self {
        assert!(
            columns.start <= columns.end && columns.end <= self.n_cols,
            "columns {columns:?} of {}",
            self.n_cols
        );
        let at = (columns.start * self.col_stride).min(self.data.len());
        Self::new(
            &self.data[at..],
            self.n_rows,
            columns.len(),
            self.row_stride,
            self.col_stride,
        )
    }

    /// The matrix with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self {
            n_rows: self.n_cols,
            n_cols: self.n_rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

/// A writable row-major matrix view; its row stride may exceed its width.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    pub(super) data: &'a mut [f32],
    pub(super) n_rows: usize,
    pub(super) n_cols: usize,
    pub(super) row_stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// # Panics
    /// When the last element is outside `data`, or rows overlap.
    pub fn new(data: &'a mut [f32], n_rows: usize, n_cols: usize, row_stride: usize) -> Self {
        assert!(
            row_stride >= n_cols && fits(data.len(), n_rows, n_cols, row_stride, 1),
            "a {n_rows} x {n_cols} matrix view exceeds its {} elements",
            data.len()
        );
        Self {
            data,
            n_rows,
            n_cols,
            row_stride,
        }
    }
}

fn fits(len: usize, n_rows: usize, n_cols: usize, row_stride: usize, col_stride: usize) -> bool {
    n_rows == 0 || n_cols == 0 || (n_rows - 1) * row_stride + (n_cols - 1) * col_stride < len
}

/// Whether a product may use the thread pool; `One` inside work that already does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    One,
    Pool,
}

/// `out = left · right`, or `out += left · right` when `accumulate`.
///
/// The order of an element's sum depends only on the length of the inner dimension: a row is bit-identical with any number of
/// threads, and whether it is multiplied alone or with others. Few rows are multiplied [in lanes](in_lanes()), many by `gemm`.
///
/// # Panics
/// When the shapes do not match.
pub fn product(
    out: &mut MatrixMut<'_>,
    left: Matrix<'_>,
    right: Matrix<'_>,
    accumulate: bool,
    threads: Threads,
) {
    assert_eq!(
        (left.n_rows, left.n_cols, right.n_cols),
        (out.n_rows, right.n_rows, out.n_cols),
        "shapes of a product do not fit"
    );
    if out.n_rows == 0 || out.n_cols == 0 {
        return;
    }
    if is_usable(out.n_rows, left.n_cols, &right) {
        in_lanes(out, left, right, accumulate, threads);
    } else {
        by_gemm(out, left, right, accumulate, threads);
    }
}

/// Like [`product`], by `gemm`. It sums small products in other orders; those are padded with rows of zeros until they are large
/// enough.
pub(super) fn by_gemm(
    out: &mut MatrixMut<'_>,
    left: Matrix<'_>,
    right: Matrix<'_>,
    accumulate: bool,
    threads: Threads,
) {
    if out.n_cols == 1 {
        return product_padded_column(out, left, right, accumulate, threads);
    }
    let n_least = least_rows(left.n_cols, out.n_cols);
    if out.n_rows < n_least {
        product_padded_rows(out, left, right, accumulate, n_least);
    } else {
        multiply(out, left, right, accumulate, threads);
    }
}

/// With at most this many outputs and as few rows, `gemm` splits inner dimensions above `LONG_SUM` differently.
pub(super) const FEW_OUTPUTS: usize = 64;
const LONG_SUM: usize = 512;
/// With at most this many values per output, `gemm` sums in lanes.
const FEW_VALUES: usize = 256;

/// The fewest rows that `gemm` sums in the same order as many rows.
fn least_rows(n_inner: usize, n_outputs: usize) -> usize {
    let cut = if n_outputs <= FEW_OUTPUTS && n_inner > LONG_SUM {
        FEW_OUTPUTS + 1
    } else {
        2
    };
    cut.max(FEW_VALUES / n_outputs + 1)
}

/// Like [`product`], padded with zeros to `n_least` rows.
fn product_padded_rows(
    out: &mut MatrixMut<'_>,
    left: Matrix<'_>,
    right: Matrix<'_>,
    accumulate: bool,
    n_rows: usize,
) {
    let (n_inner, n_cols) = (left.n_cols, out.n_cols);
    let mut rows = vec![0.0; n_rows * n_inner];
    let mut sums = vec![0.0; n_rows * n_cols];
    for row_idx in 0..out.n_rows {
        let to = &mut rows[row_idx * n_inner..][..n_inner];
        for (col_idx, to) in to.iter_mut().enumerate() {
            *to = left.data[row_idx * left.row_stride + col_idx * left.col_stride];
        }
        if accumulate {
            let from = &out.data[row_idx * out.row_stride..][..n_cols];
            sums[row_idx * n_cols..][..n_cols].copy_from_slice(from);
        }
    }
    let more = Matrix::row_major(&rows, n_rows, n_inner);
    let mut to = MatrixMut::new(&mut sums, n_rows, n_cols, n_cols);
    multiply(&mut to, more, right, accumulate, Threads::One);
    for row_idx in 0..out.n_rows {
        let to = &mut out.data[row_idx * out.row_stride..][..n_cols];
        to.copy_from_slice(&sums[row_idx * n_cols..][..n_cols]);
    }
}

/// Like [`product`] for a single output, which `gemm` would sum in lanes: a second output of zeros prevents that.
fn product_padded_column(
    out: &mut MatrixMut<'_>,
    left: Matrix<'_>,
    right: Matrix<'_>,
    accumulate: bool,
    threads: Threads,
) {
    let mut columns = vec![0.0; 2 * right.n_rows];
    for (row_idx, to) in columns.chunks_mut(2).enumerate() {
        to[0] = right.data[row_idx * right.row_stride];
    }
    let mut sums = vec![0.0; 2 * out.n_rows];
    if accumulate {
        for (row_idx, to) in sums.chunks_mut(2).enumerate() {
            to[0] = out.data[row_idx * out.row_stride];
        }
    }
    let mut to = MatrixMut::new(&mut sums, out.n_rows, 2, 2);
    let right = Matrix::row_major(&columns, right.n_rows, 2);
    by_gemm(&mut to, left, right, accumulate, threads);
    for (row_idx, from) in sums.chunks(2).enumerate() {
        out.data[row_idx * out.row_stride] = from[0];
    }
}

/// Number of terms of a sum over `n_inner` that [`product`] sums before it adds them to the output, for more than [`FEW_OUTPUTS`]
/// outputs. Measured: a small term is lost next to a large one unless it was summed separately.
pub(super) fn terms_at_once(n_inner: usize) -> usize {
    static KNOWN: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known
        .entry(n_inner)
        .or_insert_with(|| first_cut(n_inner).unwrap_or(n_inner))
}

/// Index of the first term that is not summed with the terms before it, if there is one.
fn first_cut(n_inner: usize) -> Option<usize> {
    const LARGE: f32 = (1u32 << 24) as f32;
    let n_outputs = FEW_OUTPUTS + 1;
    // Two terms of 1 after a large one: both are lost if they are added one by one, and survive if they are summed with each
    // other first.
    let is_apart = |at: usize| {
        let mut right = vec![0.0; n_outputs * n_inner]; // [output, inner]
        for column in right.chunks_mut(n_inner) {
            (column[0], column[at], column[at + 1]) = (LARGE, 1.0, 1.0);
        }
        let left = vec![1.0; 2 * n_inner];
        let mut out = vec![0.0; 2 * n_outputs];
        by_gemm(
            &mut MatrixMut::new(&mut out, 2, n_outputs, n_outputs),
            Matrix::row_major(&left, 2, n_inner),
            Matrix::row_major(&right, n_outputs, n_inner).transposed(),
            false,
            Threads::One,
        );
        out[0] > LARGE
    };
    let (mut low, mut high) = (1, n_inner.checked_sub(1)?);
    while low < high {
        let middle = (low + high) / 2;
        if is_apart(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    (low < n_inner - 1).then_some(low)
}

/// Calls `gemm`.
fn multiply(
    out: &mut MatrixMut<'_>,
    left: Matrix<'_>,
    right: Matrix<'_>,
    accumulate: bool,
    threads: Threads,
) {
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::Pool => Parallelism::Rayon(0),
    };
    // SAFETY: the constructor of every view checked that all its indices are within its slice; `out` is exclusively borrowed and
    // its rows do not overlap, so it aliases neither input.
    #[expect(unsafe_code)]
    unsafe {
        gemm::gemm(
            out.n_rows,
            out.n_cols,
            left.n_cols,
            out.data.as_mut_ptr(),
            1,
            out.row_stride as isize,
            accumulate,
            left.data.as_ptr(),
            left.col_stride as isize,
            left.row_stride as isize,
            right.data.as_ptr(),
            right.col_stride as isize,
            right.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_strided_views_sums_over_the_inner_dimension() {
        let left: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let right: Vec<f32> = (0..8).map(|v| 1.0 - v as f32).collect();
        // Columns 1..3 of a 3 × 4 matrix times the transpose of a 4 × 2 matrix.
        let left = Matrix::new(&left[1..], 3, 2, 4, 1);
        let right = Matrix::row_major(&right, 4, 2).transposed();
        let mut out = vec![100.0; 3 * 5];
        product(
            &mut MatrixMut::new(&mut out, 3, 4, 5),
            left,
            right,
            false,
            Threads::One,
        );
        for row_idx in 0..3 {
            for col_idx in 0..4 {
                let expected: f32 = (0..2)
                    .map(|k| (row_idx * 4 + 1 + k) as f32 * (1.0 - (col_idx * 2 + k) as f32))
                    .sum();
                assert_eq!(out[row_idx * 5 + col_idx], expected);
            }
            assert_eq!(
                out.get(row_idx * 5 + 4),
                Some(&100.0),
                "padding of a row is left alone"
            );
        }
    }

    #[test]
    fn a_row_is_bit_identical_alone_and_with_others() {
        let value = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 503.0 - 1.0;
        let n_most = 90;
        for n_inner in [1, 2, 3, 8, 33, 64, 300, 513, 768, 1100] {
            for n_outputs in [1, 2, 5, 16, 31, 64, 65, 130] {
                let left: Vec<f32> = (0..n_most * n_inner).map(value).collect();
                let right: Vec<f32> = (0..n_outputs * n_inner).map(value).collect();
                let bias: Vec<f32> = (0..n_outputs).map(value).collect();
                for is_input_major in [false, true] {
                    let right = if is_input_major {
                        Matrix::row_major(&right, n_inner, n_outputs)
                    } else {
                        Matrix::row_major(&right, n_outputs, n_inner).transposed()
                    };
                    let of = |n_rows: usize| {
                        let mut out = bias.repeat(n_rows);
                        let left = Matrix::row_major(&left[..n_rows * n_inner], n_rows, n_inner);
                        let mut to = MatrixMut::new(&mut out, n_rows, n_outputs, n_outputs);
                        product(&mut to, left, right, true, Threads::Pool);
                        out
                    };
                    let all = of(n_most);
                    if n_outputs > 1 {
                        // A single output is the same as with others.
                        let mut first: Vec<f32> = vec![bias[0]; n_most];
                        let left = Matrix::row_major(&left, n_most, n_inner);
                        let mut to = MatrixMut::new(&mut first, n_most, 1, 1);
                        product(&mut to, left, right.columns(0..1), true, Threads::One);
                        assert!(first.iter().eq(all.iter().step_by(n_outputs)));
                    }
                    for n_rows in [1, 2, 3, 7, 40, 70] {
                        let shape = (n_rows, n_inner, n_outputs, is_input_major);
                        assert!(of(n_rows) == all[..n_rows * n_outputs], "{shape:?}");
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "exceeds")]
    fn a_view_beyond_its_slice_panics() {
        Matrix::new(&[0.0; 5], 2, 3, 3, 1);
    }
}
