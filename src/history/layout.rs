//! Where the values of one segment of a log lie in its history: a training that was started again may record other statistics, or
//! see other layers.

use attnscope_spec::Stack;

use super::grid::{Grid, LayerShape};
use super::record::UNKNOWN;

/// Where values of one shape lie in rows of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// For each statistic its place among the history's.
    columns: Vec<usize>,
    /// For each cell its place in the history's grid.
    cells: Vec<usize>,
    n_columns: usize,
    n_cells: usize,
}

/// The statistics and the grid that rows of values have.
pub(super) type Shape<'a> = (&'a [usize], &'a Grid);

impl Layout {
    /// `None` where rows are the same already, and where the outer shape lacks something.
    pub fn new(
        (statistics, grid): Shape<'_>,
        (outer_statistics, outer): Shape<'_>,
    ) -> Option<Self> {
        if statistics == outer_statistics && grid == outer {
            return None;
        }
        let column = |idx: &usize| outer_statistics.iter().position(|known| known == idx);
        let cells = 0..grid.n_cells();
        Some(Self {
            columns: statistics.iter().map(column).collect::<Option<_>>()?,
            cells: cells
                .map(|cell| outer.cell(&grid.place(cell)))
                .collect::<Option<_>>()?,
            n_columns: outer_statistics.len(),
            n_cells: outer.n_cells(),
        })
    }

    /// A row of the history, with what the values do not tell as [`UNKNOWN`].
    pub fn laid(&self, values: &[f32]) -> Box<[f32]> {
        let mut row = vec![UNKNOWN; self.n_columns * self.n_cells].into_boxed_slice();
        for (column, values) in self.columns.iter().zip(values.chunks(self.cells.len())) {
            for (cell, value) in self.cells.iter().zip(values) {
                row[column * self.n_cells + cell] = *value;
            }
        }
        row
    }
}

/// All layers of two grids, in order; `None` where a layer has another number of heads in each: then they are two models.
pub(super) fn joined(a: &Grid, b: &Grid) -> Option<Grid> {
    let mut layers: Vec<LayerShape> = a.layers().to_vec();
    for layer in b.layers() {
        let is_place = |known: &&LayerShape| known.place() == layer.place();
        match layers.iter().find(is_place) {
            Some(known) if known.n_heads != layer.n_heads => return None,
            Some(_) => {}
            None => layers.push(layer.clone()),
        }
    }
    let order = |stack: Stack| match stack {
        Stack::Encoder => 0,
        Stack::Only => 1,
        Stack::Decoder => 2,
        Stack::Cross => 3,
    };
    layers.sort_by_key(|layer| (order(layer.stack), layer.layer_idx));
    Some(Grid::new(layers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(layers: &[(usize, usize)]) -> Grid {
        let shape = |(layer_idx, n_heads): &(usize, usize)| LayerShape {
            stack: Stack::Only,
            layer_idx: *layer_idx,
            n_heads: *n_heads,
        };
        Grid::new(layers.iter().map(shape).collect())
    }

    #[test]
    fn values_go_where_their_layer_and_their_statistic_are() {
        let (outer, inner) = (grid(&[(0, 1), (1, 2)]), grid(&[(1, 2)]));
        assert_eq!(joined(&inner, &grid(&[(0, 1)])).as_ref(), Some(&outer));
        assert_eq!(joined(&outer, &grid(&[(1, 3)])), None);
        let layout = Layout::new((&[7], &inner), (&[3, 7], &outer)).expect("another shape");
        // Two heads and their layer, of the second statistic.
        let row = layout.laid(&[1.0, 2.0, 3.0]);
        let known: Vec<(usize, f32)> = (0..row.len())
            .filter(|at| !row[*at].is_nan())
            .map(|at| (at, row[at]))
            .collect();
        assert_eq!(row.len(), 10);
        assert_eq!(known, [(6, 1.0), (7, 2.0), (9, 3.0)]);
        assert_eq!(Layout::new((&[3], &outer), (&[3], &outer)), None);
    }
}
