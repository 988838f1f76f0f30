//! Differential attention as data: which tensors give λ.

/// How the patterns of paired heads are combined, as data.
#[derive(Debug, Clone, PartialEq)]
pub struct DifferenceSource {
    /// Vectors q1, k1, q2 and k2, which give λ = e^(q1·k1) − e^(q2·k2) + λ₀. // [d_head] each
    pub lambdas: [String; 4],
    pub d_head: usize,
    /// λ₀, which grows with the layer; the difference is also multiplied by 1 − λ₀.
    pub first: f32,
    /// ε of the RMS norm applied to each pair's difference.
    pub eps: f32,
}
