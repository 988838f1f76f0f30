//! The heads and layers of a history, in one order for every record.

use attnscope_checkpoint::counted::counted;
use attnscope_spec::{Place, Stack};

/// One layer with attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerShape {
    pub stack: Stack,
    pub layer_idx: usize,
    pub n_heads: usize,
}

impl LayerShape {
    pub fn place(&self) -> Place {
        Place::layer(self.stack, self.layer_idx)
    }
}

/// The layers of a history. The values of a statistic are one row: the heads of the first layer, of the second one and so
/// on, followed by one cell for each whole layer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grid {
    layers: Vec<LayerShape>,
}

impl Grid {
    pub fn new(layers: Vec<LayerShape>) -> Self {
        Self { layers }
    }

    pub fn layers(&self) -> &[LayerShape] {
        &self.layers
    }

    pub fn n_heads(&self) -> usize {
        self.layers.iter().map(|layer| layer.n_heads).sum()
    }

    /// Returns the number of cells of one statistic: heads, then layers.
    pub fn n_cells(&self) -> usize {
        self.n_heads() + self.layers.len()
    }

    /// Returns the number of layers and heads in words.
    pub fn size(&self) -> String {
        format!(
            "{}, {}",
            counted(self.layers.len(), "layer"),
            counted(self.n_heads(), "head")
        )
    }

    /// Returns the place of a cell.
    pub fn place(&self, cell: usize) -> Place {
        let mut first = 0;
        for layer in &self.layers {
            if cell < first + layer.n_heads {
                return layer.place().head(cell - first);
            }
            first += layer.n_heads;
        }
        let layer = self.layers.get(cell - first);
        layer.map_or(Place::MODEL, LayerShape::place)
    }

    /// Returns the cells of a layer's heads, by the layer's index in [`Grid::layers`].
    pub fn heads_of(&self, nth_layer: usize) -> std::ops::Range<usize> {
        let before = &self.layers[..nth_layer];
        let first = before.iter().map(|layer| layer.n_heads).sum();
        first..first + self.layers[nth_layer].n_heads
    }

    /// Returns the index in [`Grid::layers`] of a cell's layer.
    pub fn layer_of(&self, cell: usize) -> usize {
        let n_heads = self.n_heads();
        if cell >= n_heads {
            return cell - n_heads;
        }
        let mut first = 0;
        for (nth, layer) in self.layers.iter().enumerate() {
            first += layer.n_heads;
            if cell < first {
                return nth;
            }
        }
        self.layers.len()
    }

    /// Returns the cell of a head, or of a whole layer if the place names no head.
    pub fn cell(&self, place: &Place) -> Option<usize> {
        let is_meant = |layer: &LayerShape| {
            Some(layer.layer_idx) == place.layer_idx && layer.stack == place.grid()
        };
        let nth = self.layers.iter().position(is_meant)?;
        match place.head_idx {
            None => Some(self.n_heads() + nth),
            Some(head_idx) => {
                let heads = self.heads_of(nth);
                (head_idx < heads.len()).then_some(heads.start + head_idx)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_places_convert_into_each_other() {
        let layer = |stack, layer_idx, n_heads| LayerShape {
            stack,
            layer_idx,
            n_heads,
        };
        let grid = Grid::new(vec![
            layer(Stack::Encoder, 0, 2),
            layer(Stack::Decoder, 0, 3),
            layer(Stack::Cross, 0, 1),
        ]);
        assert_eq!((grid.n_heads(), grid.n_cells()), (6, 9));
        for cell in 0..grid.n_cells() {
            assert_eq!(grid.cell(&grid.place(cell)), Some(cell));
        }
        assert_eq!(grid.place(4).to_string(), "decoder.L0H2");
        assert_eq!(grid.place(8).to_string(), "cross.L0");
        assert_eq!([2, 5, 7].map(|cell| grid.layer_of(cell)), [1, 2, 1]);
        assert_eq!(grid.cell(&Place::layer(Stack::Encoder, 0).head(2)), None);
    }
}
