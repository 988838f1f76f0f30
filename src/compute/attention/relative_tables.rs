//! What learned biases are made of: vectors per distance between tokens, or maps of values.

use super::grid_steps::StepTables;
use crate::kernels::recurrent::softplus;

/// Learned vectors per distance, for disentangled attention (He et al. 2020, arXiv 2006.03654).
#[derive(Debug, Clone, Default)]
pub struct RelativeTables {
    /// Multiplied with queries. // [row, n_heads · d_head]
    pub keys: Option<Vec<f32>>,
    /// Multiplied with keys. // [row, n_heads · d_head]
    pub queries: Option<Vec<f32>>,
    /// Added to the product of every query with a row. // [head, row]
    pub of_rows: Option<Vec<f32>>,
    /// Those of places of a picture.
    pub steps: StepTables,
    /// What makes a bias of values.
    pub of_values: Option<ValueBias>,
}

/// A bias of keys: e^(s · softplus(w·v + b)), where v are all values of the key's position.
#[derive(Debug, Clone)]
pub struct ValueBias {
    /// w // [kv_head, n_kv_heads · d_value]
    pub weights: Vec<f32>,
    /// b // [kv_head]
    pub biases: Option<Vec<f32>>,
    /// s // [kv_head]
    pub strengths: Vec<f32>,
}

impl ValueBias {
    /// The bias of every key for one head of keys. // values: [key, n_kv_heads · d_value]
    pub fn of_keys(&self, values: &[f32], kv_head_idx: usize) -> Vec<f32> {
        let width = (self.weights.len() / self.strengths.len().max(1)).max(1);
        let weights = &self.weights[kv_head_idx * width..][..width];
        let bias = self
            .biases
            .as_ref()
            .map_or(0.0, |biases| biases[kv_head_idx]);
        let of_key = |row: &[f32]| {
            let sum: f32 = row.iter().zip(weights).map(|(v, w)| v * w).sum();
            (self.strengths[kv_head_idx] * softplus(sum + bias)).exp()
        };
        values.chunks(width).map(of_key).collect()
    }
}
