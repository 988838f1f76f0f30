//! What a recurrent encoder leaves for its decoder.

/// What an encoder's layers ended with, for a decoder to begin with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ends {
    /// Both directions side by side. // [layer][width]
    pub h: Vec<Vec<f32>>,
    pub c: Vec<Vec<f32>>,
}
