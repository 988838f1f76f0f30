//! The cross-attention heads that align tokens with time, as named by a checkpoint.

/// Cross-attention heads that show when each token was spoken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Layer and head indices, in the order of the file.
    pub heads: Vec<[usize; 2]>,
}

impl Timing {
    pub fn has(&self, layer_idx: usize, head_idx: usize) -> bool {
        self.heads.contains(&[layer_idx, head_idx])
    }
}
