//! A pattern reduced to at most 64 × 64 cells, each the maximum of its tile.

use std::ops::Range;

/// Largest number of cells per side.
pub const POOLED_CELLS: usize = 64;

/// The maximum of each tile of a pattern. Maxima instead of means keep a diagonal visible at any length.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooled {
    pub n_rows: usize,
    pub n_cols: usize,
    /// Queries and keys covered by one cell.
    pub queries_per_cell: usize,
    pub keys_per_cell: usize,
    /// Row-major. // [n_rows, n_cols]
    pub cells: Vec<f32>,
}

impl Pooled {
    pub fn new(n_queries: usize, n_keys: usize) -> Self {
        Self::with_cells(n_queries, n_keys, POOLED_CELLS)
    }

    /// A map of at most `most_cells` per side.
    pub fn with_cells(n_queries: usize, n_keys: usize, most_cells: usize) -> Self {
        let queries_per_cell = n_queries.div_ceil(most_cells).max(1);
        let keys_per_cell = n_keys.div_ceil(most_cells).max(1);
        let n_rows = n_queries.div_ceil(queries_per_cell);
        let n_cols = n_keys.div_ceil(keys_per_cell);
        Self {
            n_rows,
            n_cols,
            queries_per_cell,
            keys_per_cell,
            cells: vec![0.0; n_rows * n_cols],
        }
    }

    /// Adds one row of the pattern.
    pub fn add_row(&mut self, query_idx: usize, row: &[f32]) {
        let at = query_idx / self.queries_per_cell * self.n_cols;
        let cells = &mut self.cells[at..at + self.n_cols];
        add_row(cells, self.keys_per_cell, row);
    }

    /// Adds the cells of some queries.
    pub(super) fn add_part(&mut self, part: &PooledPart) {
        let at = part.first_row * self.n_cols;
        for (cell, value) in self.cells[at..].iter_mut().zip(&part.cells) {
            if *value > *cell || value.is_nan() {
                *cell = *value;
            }
        }
    }

    pub fn at(&self, row_idx: usize, col_idx: usize) -> f32 {
        self.cells[row_idx * self.n_cols + col_idx]
    }
}

fn add_row(cells: &mut [f32], keys_per_cell: usize, row: &[f32]) {
    for (cell, tile) in cells.iter_mut().zip(row.chunks(keys_per_cell)) {
        for value in tile {
            // A NaN in a cell stays: later values do not hide it.
            if *value > *cell || value.is_nan() {
                *cell = *value;
            }
        }
    }
}

/// The cells of some queries, to be merged with those of others.
#[derive(Debug, Clone)]
pub(super) struct PooledPart {
    queries_per_cell: usize,
    keys_per_cell: usize,
    n_cols: usize,
    first_row: usize,
    /// [row from `first_row`, column]
    cells: Vec<f32>,
}

impl PooledPart {
    /// The cells that cover `queries` in a map of `n_queries` × `n_keys`.
    pub(super) fn new(n_queries: usize, n_keys: usize, queries: &Range<usize>) -> Self {
        let queries_per_cell = n_queries.div_ceil(POOLED_CELLS).max(1);
        let keys_per_cell = n_keys.div_ceil(POOLED_CELLS).max(1);
        let n_cols = n_keys.div_ceil(keys_per_cell);
        let rows = queries.start / queries_per_cell..queries.end.div_ceil(queries_per_cell);
        Self {
            queries_per_cell,
            keys_per_cell,
            n_cols,
            first_row: rows.start,
            cells: vec![0.0; rows.len() * n_cols],
        }
    }

    pub(super) fn queries_per_cell(&self) -> usize {
        self.queries_per_cell
    }

    fn row(&mut self, query_idx: usize) -> &mut [f32] {
        let at = (query_idx / self.queries_per_cell - self.first_row) * self.n_cols;
        &mut self.cells[at..at + self.n_cols]
    }

    /// Adds the maxima of some keys over queries of one cell. NaN is not checked for. // [key from `first_key`]
    pub(super) fn add_maxima(&mut self, query_idx: usize, first_key: usize, maxima: &[f32]) {
        let keys_per_cell = self.keys_per_cell;
        let cells = self.row(query_idx);
        let (mut rest, mut key_idx) = (maxima, first_key);
        while !rest.is_empty() {
            let cell_idx = key_idx / keys_per_cell;
            let n = ((cell_idx + 1) * keys_per_cell - key_idx).min(rest.len());
            let (tile, after) = rest.split_at(n);
            let cell = &mut cells[cell_idx];
            *cell = tile
                .iter()
                .fold(*cell, |most, v| if *v > most { *v } else { most });
            (rest, key_idx) = (after, key_idx + n);
        }
    }

    /// Adds one row, NaN included. // [key]
    pub(super) fn add_row(&mut self, query_idx: usize, row: &[f32]) {
        let keys_per_cell = self.keys_per_cell;
        add_row(self.row(query_idx), keys_per_cell, row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_the_maximum_of_its_tile() {
        let mut pooled = Pooled::new(130, 65);
        assert_eq!((pooled.n_rows, pooled.n_cols), (44, 33));
        let mut row = vec![0.1; 65];
        row[64] = 0.9;
        pooled.add_row(129, &row);
        assert_eq!(pooled.at(43, 32), 0.9);
        assert_eq!(pooled.at(43, 0), 0.1);
        assert_eq!(pooled.at(0, 0), 0.0);
    }

    #[test]
    fn later_values_do_not_hide_a_nan() {
        let mut pooled = Pooled::new(2, 1);
        pooled.add_row(0, &[f32::NAN]);
        pooled.add_row(0, &[0.5]);
        assert!(pooled.at(0, 0).is_nan());
    }
}
