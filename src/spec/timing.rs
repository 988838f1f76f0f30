//! The heads whose cross-attention follows the time of what is read, as a checkpoint names them.

/// Which heads of cross-attention tell when each token was said, and how their patterns are smoothed.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// Layer and head of cross-attention, in the order of the file.
    pub heads: Vec<[usize; 2]>,
    /// Keys over which the median is taken: an odd number.
    pub median_width: usize,
    /// Seconds from one key to the next.
    pub seconds_a_key: f64,
}

impl Timing {
    pub fn has(&self, layer_idx: usize, head_idx: usize) -> bool {
        self.heads.contains(&[layer_idx, head_idx])
    }
}
