//! Causal convolutions over a token and the few before it, whose output is added to what they read.

use super::mixers::ShortConvolution;

/// (x + convolution of x) · scale, in place of x.
#[derive(Debug, Clone, PartialEq)]
pub struct AddedConvolution {
    pub convolution: ShortConvolution,
    pub scale: f32,
}

impl AddedConvolution {
    /// What differs between two convolutions, in words.
    pub fn words(&self) -> String {
        format!("{} tokens, times {}", self.convolution.n_tokens, self.scale)
    }
}
