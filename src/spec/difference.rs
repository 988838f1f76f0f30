//! Differential attention as data: which tensors give λ.

/// How heads and their partners are put together, as data.
#[derive(Debug, Clone, PartialEq)]
pub struct DifferenceSource {
    /// Vectors of queries and keys, q1, k1, q2 and k2: λ = e^(q1·k1) − e^(q2·k2) + λ₀. // [d_head] each
    pub lambdas: [String; 4],
    pub d_head: usize,
    /// λ₀, which grows with the layer; what is left is multiplied by 1 − λ₀ once more.
    pub first: f32,
    /// Of the norm by the root mean square that each pair's difference passes.
    pub eps: f32,
}
