//! Learned vectors per distance between tokens.

use super::grid_steps::StepTables;

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
}
