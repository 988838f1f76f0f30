//! Turning by the places of a picture's patches: rows, columns and the frequencies of both.

/// Turning by the places of a picture's patches: half of the pairs turn by rows, the others by columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridTurn {
    /// Number of positions before the grid, which do not turn unless the embedding says how.
    pub n_first: usize,
    /// Rows and columns; `None` for those of the picture that is read.
    pub grid: Option<[usize; 2]>,
    pub places: GridPlaces,
    pub frequencies: GridFrequencies,
}

/// What a row or a column is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GridPlaces {
    /// The centre of a patch, in a picture whose sides run from −1 to 1, in turns.
    Centres,
    /// Its number, from this one on.
    From(usize),
}

/// Which frequencies rows and columns turn by, and which pairs they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GridFrequencies {
    /// Every second one, the same for both: pairs of rows come first.
    Shared,
    /// Every second one from the first on for rows, from the second on for columns: pairs of rows come first.
    Alternating,
    /// Every second one, the same for both: pairs of columns come first.
    ColumnsFirst,
    /// Every second one, the same for both: the pair of a column and that of a row follow each other.
    ColumnThenRow,
    /// Every third one, the same for both: pairs of time come first, which a picture leaves as they are, then those of rows.
    BehindTime,
    /// As behind time, but both dimensions of a pair turn by frequencies of their own: dimensions take those of their side in turn,
    /// twice over. That is no rotation, but what V-JEPA 2 was trained with.
    BehindTimeInTurn,
    /// Every second one, the same for both: the first half of the dimensions turns by columns, the second by rows, and pairs are
    /// the halves of each half.
    Apart,
}

impl GridTurn {
    /// Row and column of a position, in radians; `None` before the grid.
    fn of(self, position: usize) -> Option<[f32; 2]> {
        let patch = position.checked_sub(self.n_first)?;
        let [n_rows, n_columns] = self.grid.unwrap_or([1; 2]).map(|n| n.max(1));
        let place = |at: usize, n: usize| match self.places {
            GridPlaces::Centres => {
                std::f32::consts::TAU * (2.0 * ((at as f32 + 0.5) / n as f32) - 1.0)
            }
            GridPlaces::From(first) => (at + first) as f32,
        };
        Some([
            place(patch / n_columns, n_rows),
            place(patch % n_columns, n_columns),
        ])
    }
}

/// The angles of a place in a grid, by pair.
pub(super) fn grid_angles(
    (grid, before): (GridTurn, &[f32]),
    frequencies: &[f64],
    position: usize,
) -> Vec<f32> {
    let Some([row, column]) = grid.of(position) else {
        let n_pairs = frequencies.len();
        let last_row = (before.len() / n_pairs.max(1)).saturating_sub(1);
        let own = before.iter().skip(position.min(last_row) * n_pairs);
        let mut angles: Vec<f32> = own.take(n_pairs).copied().collect();
        angles.resize(n_pairs, 0.0);
        return angles;
    };
    let step = match grid.frequencies {
        GridFrequencies::BehindTime | GridFrequencies::BehindTimeInTurn => 3,
        _ => 2,
    };
    let side = |at: f32, first: usize| {
        let own = frequencies.iter().skip(first).step_by(step);
        own.map(move |frequency| at * *frequency as f32)
    };
    let n = frequencies.len();
    match grid.frequencies {
        GridFrequencies::Shared => side(row, 0).chain(side(column, 0)).take(n).collect(),
        GridFrequencies::ColumnsFirst | GridFrequencies::Apart => {
            side(column, 0).chain(side(row, 0)).take(n).collect()
        }
        GridFrequencies::Alternating => side(row, 0).chain(side(column, 1)).take(n).collect(),
        GridFrequencies::ColumnThenRow => {
            let pairs = side(column, 0).zip(side(row, 0));
            pairs.flat_map(|(x, y)| [x, y]).take(n).collect()
        }
        GridFrequencies::BehindTime | GridFrequencies::BehindTimeInTurn => {
            let sides = side(0.0, 0).chain(side(row, 0)).chain(side(column, 0));
            sides.take(n).collect()
        }
    }
}

/// The angles of the first and of the second dimension of each pair, where dimensions of each of three sides take its angles in turn.
pub(super) fn in_turn(angles: &[f32]) -> [Vec<f32>; 2] {
    let n_of_side = (angles.len() / 3).max(1);
    let nth = |nth: usize| {
        let of_side = |side: &[f32]| {
            let own = (0..side.len()).map(|pair_idx| side[(2 * pair_idx + nth) % side.len()]);
            own.collect::<Vec<f32>>()
        };
        angles.chunks(n_of_side).flat_map(of_side).collect()
    };
    [nth(0), nth(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_of_a_side_may_take_its_angles_in_turn() {
        let [first, second] = in_turn(&[0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(first, [0.0, 0.0, 0.0, 1.0, 3.0, 2.0, 4.0, 6.0, 5.0]);
        assert_eq!(second, [0.0, 0.0, 0.0, 2.0, 1.0, 3.0, 5.0, 4.0, 6.0]);
    }
}
