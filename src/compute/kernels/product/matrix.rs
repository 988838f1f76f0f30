//! Strided views of matrices, with bounds checked once.

use crate::kernels::tiles::{Tile, cut};

/// A read-only strided matrix view of a slice.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T = f32> {
    pub(super) data: &'a [T],
    pub(super) n_rows: usize,
    pub(super) n_cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// # Panics
    /// When the last element is outside `data`: a programming error, never caused by input.
    pub fn new(
        data: &'a [T],
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
    pub fn row_major(data: &'a [T], n_rows: usize, n_cols: usize) -> Self {
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

    /// Cuts the matrix into tiles of at most `n_rows` × `n_cols`, ordered by column band.
    ///
    /// # Panics
    /// When `n_cols` is 0.
    pub fn tiles(&mut self, n_rows: usize, n_cols: usize) -> Vec<Tile<'_>> {
        cut(
            self.data,
            [self.n_rows, self.n_cols],
            self.row_stride,
            [n_rows, n_cols],
        )
    }
}

fn fits(len: usize, n_rows: usize, n_cols: usize, row_stride: usize, col_stride: usize) -> bool {
    n_rows == 0 || n_cols == 0 || (n_rows - 1) * row_stride + (n_cols - 1) * col_stride < len
}
