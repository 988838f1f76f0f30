//! An array split by head.

/// An array split by head: [head, row, column].
pub(crate) struct Heads {
    pub dims: [usize; 3],
    pub values: Vec<f32>,
}

impl Heads {
    pub fn head(&self, head_idx: usize) -> &[f32] {
        let n = self.dims[1] * self.dims[2];
        &self.values[head_idx * n..(head_idx + 1) * n]
    }

    /// Transposes [position, head, d_head] to [head, position, d_head].
    pub fn swapped(self) -> Self {
        let [n_positions, n_heads, d_head] = self.dims;
        let mut values = Vec::with_capacity(self.values.len());
        for head_idx in 0..n_heads {
            for position_idx in 0..n_positions {
                let at = (position_idx * n_heads + head_idx) * d_head;
                values.extend_from_slice(&self.values[at..at + d_head]);
            }
        }
        Self {
            dims: [n_heads, n_positions, d_head],
            values,
        }
    }
}
