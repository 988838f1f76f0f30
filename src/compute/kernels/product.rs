//! The matrix product: `gemm` behind views whose bounds are checked once.

use gemm::Parallelism;

/// A read-only matrix inside a slice, by strides.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f32],
    n_rows: usize,
    n_cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Matrix<'a> {
    /// # Panics
    /// When the last element would lie outside `data`: a programming error, never an input's fault.
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

    /// Rows one after another.
    pub fn row_major(data: &'a [f32], n_rows: usize, n_cols: usize) -> Self {
        Self::new(data, n_rows, n_cols, n_cols, 1)
    }

    /// Some of the columns.
    ///
    /// # Panics
    /// When the matrix does not have them.
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

/// A matrix to write to, row-major, rows possibly longer than the matrix is wide.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    data: &'a mut [f32],
    n_rows: usize,
    n_cols: usize,
    row_stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// # Panics
    /// When the last element would lie outside `data`, or rows would overlap.
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

/// Whether a product may use the thread pool, or runs inside work that already does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    One,
    Pool,
}

/// `out = left · right`, or `out += left · right` when `accumulate`.
///
/// An element's sum runs over the inner dimension in an order that depends on the shapes alone, so results do
/// not change with the number of threads or with the other rows' content.
///
/// # Panics
/// When the shapes do not fit.
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
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::Pool => Parallelism::Rayon(0),
    };
    // SAFETY: every view was checked at construction to lie within its slice for all indices below its
    // dimensions; `out` is exclusively borrowed and its rows do not overlap, so it aliases neither input.
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
    fn a_product_of_strided_views_is_the_sum_over_the_inner_dimension() {
        let left: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let right: Vec<f32> = (0..8).map(|v| 1.0 - v as f32).collect();
        // Columns 1..3 of a 3 x 4 matrix times the transpose of a 4 x 2 one.
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
    #[should_panic(expected = "exceeds")]
    fn a_view_beyond_its_slice_is_refused() {
        Matrix::new(&[0.0; 5], 2, 3, 3, 1);
    }
}
