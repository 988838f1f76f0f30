//! A learned bias by distance in rows and in columns of a picture's patches, with a token before them.

/// A learned value per head and per distance in rows and columns of a picture's patches, and three more for a token before them:
/// from it to a patch, from a patch to it, and to itself (Bao et al. 2021, arXiv 2106.08254).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridDistances {
    /// Rows and columns.
    pub grid: [usize; 2],
    /// A token stands before the patches.
    pub has_first: bool,
    /// Whether a picture of another grid has values between the stored ones.
    pub is_resampled: bool,
}

impl GridDistances {
    fn n_of_patches(self) -> usize {
        let [rows, columns] = self.grid;
        (2 * rows).saturating_sub(1) * (2 * columns).saturating_sub(1)
    }

    pub fn n_rows(self) -> usize {
        self.n_of_patches() + if self.has_first { 3 } else { 0 }
    }

    /// The number of positions that have a place.
    pub fn n_positions(self) -> usize {
        self.grid[0] * self.grid[1] + usize::from(self.has_first)
    }

    /// The row of a pair of positions.
    pub fn row(self, query: usize, key: usize) -> usize {
        let first = usize::from(self.has_first);
        let [n_rows, n_columns] = self.grid.map(|n| n.max(1));
        let n = self.n_of_patches();
        match (query.checked_sub(first), key.checked_sub(first)) {
            (None, None) => n + 2,
            (Some(_), None) => n + 1,
            (None, Some(_)) => n,
            (Some(query), Some(key)) => {
                let down = (query / n_columns + n_rows - 1).saturating_sub(key / n_columns);
                let right = query % n_columns + n_columns - 1 - key % n_columns;
                (down * (2 * n_columns - 1) + right).min(n.saturating_sub(1))
            }
        }
    }

    /// The values of one head for another grid, linear between the stored ones; those of a first token stay. // [row] → [row]
    fn resampled(self, values: &[f32], grid: [usize; 2]) -> Vec<f32> {
        let n_steps = |grid: [usize; 2]| grid.map(|n| (2 * n).saturating_sub(1).max(1));
        let (from, to) = (n_steps(self.grid), n_steps(grid));
        // The two stored steps beside a step, and the share of the second.
        let near = |axis: usize, step: usize| {
            let last = (from[axis] - 1) as f64;
            let at = (step as f64 + 0.5) * from[axis] as f64 / to[axis] as f64 - 0.5;
            let at = at.clamp(0.0, last);
            (
                at as usize,
                (at as usize + 1).min(from[axis] - 1),
                at.fract(),
            )
        };
        let mut made = Vec::with_capacity(to[0] * to[1] + 3);
        for row in 0..to[0] {
            let (above, below, down) = near(0, row);
            for column in 0..to[1] {
                let (left, other, right) = near(1, column);
                let at = |row: usize, column: usize| f64::from(values[row * from[1] + column]);
                let between = |row: usize| at(row, left) * (1.0 - right) + at(row, other) * right;
                made.push((between(above) * (1.0 - down) + between(below) * down) as f32);
            }
        }
        made.extend_from_slice(&values[self.n_of_patches()..]);
        made
    }

    /// The bias of one head for all pairs of positions of a picture with this grid. // values: [row, head] → [query, key]
    pub fn of_head(
        self,
        (values, grid): (&[f32], Option<[usize; 2]>),
        (n_heads, head_idx): (usize, usize),
        [queries, keys]: [&[usize]; 2],
    ) -> Vec<f32> {
        let own = values.iter().skip(head_idx).step_by(n_heads.max(1));
        let mut own: Vec<f32> = own.copied().collect();
        let mut of = self;
        if let Some(grid) = grid.filter(|grid| self.is_resampled && *grid != self.grid) {
            own = self.resampled(&own, grid);
            of = Self { grid, ..self };
        }
        let at = |query: usize, key: usize| own[of.row(query, key)];
        let rows = queries.iter();
        rows.flat_map(|query| keys.iter().map(move |key| at(*query, *key)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_without_a_token_before_it_begins_at_its_first_patch() {
        let grid = |has_first| GridDistances {
            grid: [2, 3],
            has_first,
            is_resampled: false,
        };
        assert_eq!((grid(false).n_rows(), grid(true).n_rows()), (15, 18));
        assert_eq!(grid(false).row(0, 5), grid(true).row(1, 6));
        assert_eq!(grid(false).row(5, 0), 14);
        assert_eq!(grid(true).row(0, 3), 15);
        assert_eq!(
            (grid(false).n_positions(), grid(true).n_positions()),
            (6, 7)
        );
    }

    #[test]
    fn a_picture_of_another_grid_has_values_between_those_of_stored_distances() {
        let of = GridDistances {
            grid: [2, 1],
            has_first: true,
            is_resampled: true,
        };
        // Three distances in rows, then from and to the first token, and to itself.
        let values = [1.0, 2.0, 4.0, 7.0, 8.0, 9.0];
        let [queries, keys] = [[0, 1, 3], [0, 1, 2]];
        let head = |of: GridDistances, grid| of.of_head((&values, grid), (1, 0), [&queries, &keys]);
        let three = head(of, Some([3, 1]));
        let expected = [9.0, 7.0, 7.0, 8.0, 2.0, 1.4, 8.0, 4.0, 3.2];
        for (found, expected) in three.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{three:?}");
        }
        let plain = GridDistances {
            is_resampled: false,
            ..of
        };
        let [few, alone] = [[0, 1, 2], [0, 1, 2]];
        let stored = |of: GridDistances, grid| of.of_head((&values, grid), (1, 0), [&few, &alone]);
        assert_eq!(stored(of, Some([2, 1])), stored(plain, Some([1, 2])));
    }
}
