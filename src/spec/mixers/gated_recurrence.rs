//! The gated linear recurrence of Griffin, as data.

use attnscope_compute::ops::Activation;

use super::parts::{MixerPart, ShortConvolution};
use crate::source::LinearSource;

/// A gated linear recurrence: out(recurrence(conv(x)) · act(y)). Padding is treated like any token.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedRecurrenceSpec {
    pub x: LinearSource,
    pub y: LinearSource,
    pub convolution: ShortConvolution,
    pub activation: Activation,
    pub n_channels: usize,
    /// Number of square blocks in each gate's block-diagonal map.
    pub n_blocks: usize,
    /// Tensor names of the gates' weights and biases, and of the decay.
    pub at: GateNames,
    pub o: LinearSource,
}

/// Tensors of the two gates, and of the decay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateNames {
    pub input_gate: String,
    pub input_bias: String,
    pub decay_gate: String,
    pub decay_bias: String,
    pub decay: String,
}

impl GatedRecurrenceSpec {
    /// Width of one block of the gates' maps.
    pub fn width(&self) -> usize {
        self.n_channels / self.n_blocks.max(1)
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let (n, width, at) = (self.n_blocks, self.width(), &self.at);
        let mut parts = vec![MixerPart::Map("x", &self.x), MixerPart::Map("y", &self.y)];
        parts.extend(self.convolution.parts());
        let tensors = [
            ("input_gate", &at.input_gate, vec![n, width, width]),
            ("input_gate.bias", &at.input_bias, vec![n, width]),
            ("decay_gate", &at.decay_gate, vec![n, width, width]),
            ("decay_gate.bias", &at.decay_bias, vec![n, width]),
            ("decay", &at.decay, vec![self.n_channels]),
        ];
        parts.extend(tensors.map(|(name, tensor, shape)| MixerPart::Tensor(name, tensor, shape)));
        parts.push(MixerPart::Map("o", &self.o));
        parts
    }
}
