//! A matrix cut into tiles that threads fill in parallel.

use std::marker::PhantomData;

/// An exclusive view of some rows and columns of a row-major matrix.
#[derive(Debug)]
pub struct Tile<'a> {
    /// The tile's first element.
    start: *mut f32,
    stride: usize,
    n_rows: usize,
    n_cols: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: a tile exclusively borrows its own elements, which no other tile of the matrix shares.
#[expect(unsafe_code)]
unsafe impl Send for Tile<'_> {}

impl Tile<'_> {
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// One row of the tile.
    ///
    /// # Panics
    /// When the tile has no such row.
    pub fn row(&mut self, row_idx: usize) -> &mut [f32] {
        assert!(row_idx < self.n_rows, "a tile of {} rows", self.n_rows);
        // SAFETY: `cut` checked that all rows of the tile are within the matrix, part of whose exclusive borrow the tile holds;
        // the returned slice borrows the tile, so no two such slices exist at once.
        #[expect(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.start.add(row_idx * self.stride), self.n_cols)
        }
    }
}

/// Cuts a matrix of `size` rows and columns, whose rows begin `stride` apart, into tiles of at most `at_most` rows and columns,
/// ordered by column band.
///
/// # Panics
/// When the last element is outside the matrix, rows overlap, or tiles have no columns.
pub(super) fn cut(
    matrix: &mut [f32],
    size: [usize; 2],
    stride: usize,
    at_most: [usize; 2],
) -> Vec<Tile<'_>> {
    let ([n_all, width], [n_rows, n_cols]) = (size, at_most);
    if n_all == 0 || width == 0 {
        return Vec::new();
    }
    assert!(
        width <= stride && (n_all - 1) * stride + width <= matrix.len() && n_cols > 0,
        "{} values are not a {n_all} x {width} matrix in bands of {n_cols}",
        matrix.len()
    );
    let start = matrix.as_mut_ptr();
    let bands = (0..width).step_by(n_cols);
    let tile = |col_idx: usize, row_idx: usize| Tile {
        // SAFETY: row and column are within the matrix, whose size was checked.
        #[expect(unsafe_code)]
        start: unsafe { start.add(row_idx * stride + col_idx) },
        stride,
        n_rows: n_rows.min(n_all - row_idx),
        n_cols: n_cols.min(width - col_idx),
        matrix: PhantomData,
    };
    let of_band = |col_idx: usize| {
        (0..n_all)
            .step_by(n_rows.max(1))
            .map(move |row_idx| tile(col_idx, row_idx))
    };
    bands.flat_map(of_band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_a_matrix_exactly_once() {
        let mut matrix = vec![0.0; 5 * 6];
        for (nth, mut tile) in cut(&mut matrix, [5, 6], 6, [2, 3]).into_iter().enumerate() {
            for row_idx in 0..tile.n_rows() {
                tile.row(row_idx)
                    .iter_mut()
                    .for_each(|v| *v += nth as f32 + 1.0);
            }
        }
        let left = matrix.chunks(6).map(|row| row[0]).collect::<Vec<_>>();
        let right = matrix.chunks(6).map(|row| row[5]).collect::<Vec<_>>();
        assert_eq!(
            (left, right),
            (vec![1.0, 1.0, 2.0, 2.0, 3.0], vec![4.0, 4.0, 5.0, 5.0, 6.0])
        );
    }

    #[test]
    fn the_last_band_is_as_wide_as_the_remaining_columns() {
        let mut matrix = vec![0.0; 2 * 5];
        for (nth, mut tile) in cut(&mut matrix, [2, 5], 5, [2, 3]).into_iter().enumerate() {
            for row_idx in 0..tile.n_rows() {
                tile.row(row_idx)
                    .iter_mut()
                    .for_each(|v| *v += nth as f32 + 1.0);
            }
        }
        assert_eq!(matrix[..5], [1.0, 1.0, 1.0, 2.0, 2.0]);
        assert_eq!(matrix[5..], [1.0, 1.0, 1.0, 2.0, 2.0]);
    }
}
