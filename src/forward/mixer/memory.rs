//! What a mixer keeps of the tokens that have run: as much after one as after a million.

/// The state of one mixer; empty before the first token.
#[derive(Debug, Default)]
pub struct MixerMemory {
    /// What its convolution reaches back to. // [token, channel]
    pub tail: Vec<f32>,
    /// Of the kind that the mixer has.
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
