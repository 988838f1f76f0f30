//! The state space of Mamba-2, as data.

use attnscope_compute::ops::Activation;

use super::parts::{GatedNormSource, MixerPart, ShortConvolution};
use crate::source::LinearSource;

/// A multi-head state space: out(norm(scan(act(conv(x, b, c)), steps), gate)).
#[derive(Debug, Clone, PartialEq)]
pub struct StateSpaceSpec {
    pub gate: LinearSource,
    pub x: LinearSource,
    /// Map to B, the direction in which the input is written to the state.
    pub b: LinearSource,
    /// Map to C, the direction in which the state is read.
    pub c: LinearSource,
    pub steps: LinearSource,
    /// Over x, b and c, concatenated.
    pub convolution: ShortConvolution,
    pub activation: Activation,
    /// Logarithm of each head's decay rate. // [head]
    pub log_decay: String,
    /// [head]
    pub skip: String,
    /// Added to the steps before the softplus. // [head]
    pub step_bias: String,
    /// Smallest and largest step, after the softplus.
    pub step_limits: [f32; 2],
    pub n_heads: usize,
    pub d_head: usize,
    pub n_groups: usize,
    pub d_state: usize,
    /// The gated norm; without it, the gate alone is applied.
    pub norm: Option<GatedNormSource>,
    pub o: LinearSource,
}

impl StateSpaceSpec {
    /// Number of channels of all heads.
    pub fn n_inner(&self) -> usize {
        self.n_heads * self.d_head
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let maps = [
            ("gate", &self.gate),
            ("x", &self.x),
            ("b", &self.b),
            ("c", &self.c),
            ("steps", &self.steps),
        ];
        let mut parts = Vec::from(maps.map(|(name, map)| MixerPart::Map(name, map)));
        parts.extend(self.convolution.parts());
        let by_head = [
            ("log_decay", &self.log_decay),
            ("skip", &self.skip),
            ("step_bias", &self.step_bias),
        ];
        let n = self.n_heads;
        parts.extend(by_head.map(|(name, tensor)| MixerPart::Tensor(name, tensor, vec![n])));
        parts.extend(self.norm.as_ref().map(GatedNormSource::part));
        parts.push(MixerPart::Map("o", &self.o));
        parts
    }
}
