//! An array split by head.

/// An array split by head: [head, row, column].
pub struct Heads {
    pub dims: [usize; 3],
    pub values: Vec<f32>,
}

impl Heads {
    pub fn head(&self, head_idx: usize) -> &[f32] {
        let n = self.dims[1] * self.dims[2];
        &self.values[head_idx * n..(head_idx + 1) * n]
    }
}
