//! A matrix at several resolutions, each cell the maximum of the cells it covers: at any zoom, one cell is read per pixel.

use attnscope_compute::attention::Pooled;

/// A matrix and its reductions by 2, 4, 8, …
#[derive(Debug, Clone)]
pub struct Pyramid {
    levels: Vec<Pooled>,
    /// Whether the first value represents both when two cells are merged.
    wins: fn(f32, f32) -> bool,
}

impl Pyramid {
    pub fn new(finest: Pooled) -> Self {
        Self::by(finest, |value, cell| value > cell)
    }

    /// Pyramid of differences: each cell is the covered value that is farthest from 0.
    pub fn of_differences(finest: Pooled) -> Self {
        Self::by(finest, |value, cell| value.abs() > cell.abs())
    }

    fn by(finest: Pooled, wins: fn(f32, f32) -> bool) -> Self {
        let mut levels = vec![finest];
        while let Some(last) = levels.last()
            && (last.n_rows > 1 || last.n_cols > 1)
        {
            let next = halve(last, wins);
            levels.push(next);
        }
        Self { levels, wins }
    }

    /// Merges two cells: a NaN wins over any number, and any number over a masked cell.
    pub fn of_two(&self, a: f32, b: f32) -> f32 {
        if takes_place(b, a, self.wins) { b } else { a }
    }

    /// Level at which each cell covers 2^`level` cells per side, or the coarsest level if there are fewer.
    pub fn level(&self, level: usize) -> &Pooled {
        &self.levels[level.min(self.levels.len() - 1)]
    }

    pub fn finest(&self) -> &Pooled {
        &self.levels[0]
    }
}

fn halve(from: &Pooled, wins: fn(f32, f32) -> bool) -> Pooled {
    let mut to = Pooled {
        n_rows: from.n_rows.div_ceil(2),
        n_cols: from.n_cols.div_ceil(2),
        queries_per_cell: from.queries_per_cell * 2,
        keys_per_cell: from.keys_per_cell * 2,
        cells: Vec::new(),
    };
    to.cells = vec![f32::NEG_INFINITY; to.n_rows * to.n_cols];
    for (row_idx, row) in from.cells.chunks(from.n_cols).enumerate() {
        let at = row_idx / 2 * to.n_cols;
        for (cell, pair) in to.cells[at..at + to.n_cols].iter_mut().zip(row.chunks(2)) {
            for value in pair {
                if takes_place(*value, *cell, wins) {
                    *cell = *value;
                }
            }
        }
    }
    to
}

/// Whether a value replaces another when two cells are merged.
fn takes_place(value: f32, other: f32, wins: fn(f32, f32) -> bool) -> bool {
    let is_first = other == f32::NEG_INFINITY;
    let is_hidden = value == f32::NEG_INFINITY;
    value.is_nan() || (!is_hidden && (is_first || wins(value, other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarser_levels_of_differences_keep_the_value_farthest_from_zero() {
        let mut finest = Pooled::with_cells(2, 4, 64);
        finest.cells = vec![
            0.1,
            -0.5,
            f32::NEG_INFINITY,
            f32::NEG_INFINITY,
            0.2,
            0.3,
            -0.1,
            f32::NEG_INFINITY,
        ];
        let pyramid = Pyramid::of_differences(finest);
        assert_eq!(pyramid.level(1).cells, [-0.5, -0.1]);
        assert_eq!(pyramid.level(9).cells, [-0.5]);
    }

    #[test]
    fn each_level_holds_maxima_of_the_finer_one_and_odd_sides_are_not_cut() {
        let mut finest = Pooled::with_cells(5, 3, 64);
        for query_idx in 0..5 {
            let row: Vec<f32> = (0..3)
                .map(|key_idx| (query_idx * 3 + key_idx) as f32)
                .collect();
            finest.add_row(query_idx, &row);
        }
        let pyramid = Pyramid::new(finest);
        let half = pyramid.level(1);
        assert_eq!((half.n_rows, half.n_cols), (3, 2));
        assert_eq!(half.cells, [4.0, 5.0, 10.0, 11.0, 13.0, 14.0]);
        assert_eq!(pyramid.level(99).cells, [14.0]);
    }
}
