//! A pattern reduced to at most 64 × 64 cells, each the maximum of what it covers.

/// Most cells on a side of a pooled map.
pub const POOLED_CELLS: usize = 64;

/// The maximum of each tile of a pattern. Maxima rather than means: a diagonal stays a diagonal at any length.
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

    /// A map of at most `most_cells` on a side.
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

    /// Takes in one row of the pattern.
    pub fn add_row(&mut self, query_idx: usize, row: &[f32]) {
        let at = query_idx / self.queries_per_cell * self.n_cols;
        let cells = &mut self.cells[at..at + self.n_cols];
        for (cell, tile) in cells.iter_mut().zip(row.chunks(self.keys_per_cell)) {
            for value in tile {
                // NaN is data: once in a cell, it stays, and later values do not hide it.
                if *value > *cell || value.is_nan() {
                    *cell = *value;
                }
            }
        }
    }

    /// Takes in the largest values of some keys over queries of one cell's height. NaN is not looked for. // [key from `first_key`]
    pub(super) fn add_maxima(&mut self, query_idx: usize, first_key: usize, maxima: &[f32]) {
        let at = query_idx / self.queries_per_cell * self.n_cols;
        let cells = &mut self.cells[at..at + self.n_cols];
        let mut rest = maxima;
        let mut key_idx = first_key;
        while !rest.is_empty() {
            let cell_idx = key_idx / self.keys_per_cell;
            let n = ((cell_idx + 1) * self.keys_per_cell - key_idx).min(rest.len());
            let (tile, after) = rest.split_at(n);
            let cell = &mut cells[cell_idx];
            *cell = tile
                .iter()
                .fold(*cell, |most, v| if *v > most { *v } else { most });
            (rest, key_idx) = (after, key_idx + n);
        }
    }

    /// Takes in a map of other queries of the same pattern.
    pub(super) fn add_all(&mut self, other: &Self) {
        for (cell, value) in self.cells.iter_mut().zip(&other.cells) {
            if *value > *cell || value.is_nan() {
                *cell = *value;
            }
        }
    }

    pub fn at(&self, row_idx: usize, col_idx: usize) -> f32 {
        self.cells[row_idx * self.n_cols + col_idx]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_holds_the_maximum_of_its_tile() {
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
    fn a_nan_is_not_hidden_by_later_values() {
        let mut pooled = Pooled::new(2, 1);
        pooled.add_row(0, &[f32::NAN]);
        pooled.add_row(0, &[0.5]);
        assert!(pooled.at(0, 0).is_nan());
    }
}
