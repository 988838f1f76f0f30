//! Maps the values of one segment of a log to its history: a restarted training may record other statistics or
//! layers.

use attnscope_spec::Stack;

use super::grid::{Grid, LayerShape};
use super::record::UNKNOWN;

/// Mapping from rows of one shape to rows of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// For each statistic, its index in the history.
    columns: Vec<usize>,
    /// For each cell, its index in the history's grid.
    cells: Vec<usize>,
    /// For each layer, its index in the history's grid.
    layers: Vec<usize>,
    n_columns: usize,
    n_cells: usize,
    n_layers: usize,
}

/// Statistics and grid of a row of values.
pub(super) type Shape<'a> = (&'a [usize], &'a Grid);

impl Layout {
    /// Returns `None` if no mapping is needed, or if the outer shape lacks something.
    pub fn new(
        (statistics, grid): Shape<'_>,
        (outer_statistics, outer): Shape<'_>,
    ) -> Option<Self> {
        if statistics == outer_statistics && grid == outer {
            return None;
        }
        let column = |idx: &usize| outer_statistics.iter().position(|known| known == idx);
        let cells = 0..grid.n_cells();
        let layer = |of: &LayerShape| {
            let mut known = outer.layers().iter();
            known.position(|known| known.place() == of.place())
        };
        Some(Self {
            layers: grid.layers().iter().map(layer).collect::<Option<_>>()?,
            n_layers: outer.layers().len(),
            columns: statistics.iter().map(column).collect::<Option<_>>()?,
            cells: cells
                .map(|cell| outer.cell(&grid.place(cell)))
                .collect::<Option<_>>()?,
            n_columns: outer_statistics.len(),
            n_cells: outer.n_cells(),
        })
    }

    /// Maps values to a row of the history; missing ones are [`UNKNOWN`].
    pub fn laid(&self, values: &[f32]) -> Box<[f32]> {
        let mut row = vec![UNKNOWN; self.n_columns * self.n_cells].into_boxed_slice();
        for (column, values) in self.columns.iter().zip(values.chunks(self.cells.len())) {
            for (cell, value) in self.cells.iter().zip(values) {
                row[column * self.n_cells + cell] = *value;
            }
        }
        row
    }

    /// Returns the number of layers of the rows that are mapped.
    pub fn n_own_layers(&self) -> usize {
        self.layers.len()
    }

    /// Maps values of layers to those of the history; missing ones have the default.
    pub fn of_layers<T: Clone + Default>(&self, values: &[T]) -> Vec<T> {
        let mut all = vec![T::default(); self.n_layers];
        for (layer, value) in self.layers.iter().zip(values) {
            all[*layer] = value.clone();
        }
        all
    }
}

/// Returns all layers of two grids, in order; `None` if a layer's number of heads differs: then they are different models.
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
    fn values_are_mapped_to_their_layer_and_statistic() {
        let (outer, inner) = (grid(&[(0, 1), (1, 2)]), grid(&[(1, 2)]));
        assert_eq!(joined(&inner, &grid(&[(0, 1)])).as_ref(), Some(&outer));
        assert_eq!(joined(&outer, &grid(&[(1, 3)])), None);
        let layout = Layout::new((&[7], &inner), (&[3, 7], &outer)).expect("another shape");
        // Two heads and their layer, for the second statistic.
        let row = layout.laid(&[1.0, 2.0, 3.0]);
        let known: Vec<(usize, f32)> = (0..row.len())
            .filter(|at| !row[*at].is_nan())
            .map(|at| (at, row[at]))
            .collect();
        assert_eq!(layout.of_layers(&[Some(0.5)]), [None, Some(0.5)]);
        assert_eq!(row.len(), 10);
        assert_eq!(known, [(6, 1.0), (7, 2.0), (9, 3.0)]);
        assert_eq!(Layout::new((&[3], &outer), (&[3], &outer)), None);
    }
}
