//! State that a mixer keeps of processed tokens; its size does not depend on their number.

/// State of one mixer; empty before the first token.
#[derive(Debug, Default)]
pub struct MixerMemory {
    /// Latest inputs of its convolution. // [token, channel]
    pub tail: Vec<f32>,
    /// Recurrent state, in the mixer's own layout.
    pub state: Vec<f32>,
}

impl MixerMemory {
    pub fn is_empty(&self) -> bool {
        self.tail.is_empty() && self.state.is_empty()
    }

    pub fn n_values(&self) -> usize {
        self.tail.len() + self.state.len()
    }
}
