//! Learned vectors of distances between tokens.

/// Learned vectors of distances, as an attention with disentangled positions has them (He et al. 2020, arXiv 2006.03654).
#[derive(Debug, Clone, Default)]
pub struct RelativeTables {
    /// Multiplied with queries. // [row, n_heads · d_head]
    pub keys: Option<Vec<f32>>,
    /// Multiplied with keys. // [row, n_heads · d_head]
    pub queries: Option<Vec<f32>>,
}
