//! Final states of a recurrent encoder, for its decoder.

/// Final states of an encoder's layers, the initial states of a decoder.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FinalStates {
    /// Both directions, concatenated. // [layer][width]
    pub h: Vec<Vec<f32>>,
    pub c: Vec<Vec<f32>>,
}
