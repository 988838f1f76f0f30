//! The selective scan of Mamba, as data.

use attnscope_compute::ops::Activation;

use super::parts::{MixerPart, ShortConvolution};
use crate::source::{LinearSource, NormSource};

/// A selective scan: out(scan(y, steps, b, c) · silu(gate)), where y = act(conv(x)), and steps, b and c are computed from y.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectiveScanSpec {
    pub x: LinearSource,
    pub gate: LinearSource,
    pub convolution: ShortConvolution,
    pub activation: Activation,
    /// Low-rank map to the step size, and its norm.
    pub narrow_steps: (LinearSource, NormSource),
    /// Map to B, the direction in which the input is written to the state, and its norm.
    pub b: (LinearSource, NormSource),
    /// Map to C, the direction in which the state is read, and its norm.
    pub c: (LinearSource, NormSource),
    /// Low-rank steps → one step per channel.
    pub steps: LinearSource,
    /// Logarithm of each state's decay rate. // [channel, d_state]
    pub log_decay: String,
    /// [channel]
    pub skip: String,
    pub d_state: usize,
    pub o: LinearSource,
}

impl SelectiveScanSpec {
    pub fn n_channels(&self) -> usize {
        self.convolution.n_channels
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let mut parts = vec![
            MixerPart::Map("x", &self.x),
            MixerPart::Map("gate", &self.gate),
        ];
        parts.extend(self.convolution.parts());
        let normed = [
            ("narrow_steps", "narrow_steps.norm", &self.narrow_steps),
            ("b", "b.norm", &self.b),
            ("c", "c.norm", &self.c),
        ];
        for (name, norm_name, (map, norm)) in normed {
            parts.push(MixerPart::Map(name, map));
            parts.push(MixerPart::Norm(norm_name, norm));
        }
        let n = self.n_channels();
        parts.extend([
            MixerPart::Map("steps", &self.steps),
            MixerPart::Tensor("log_decay", &self.log_decay, vec![n, self.d_state]),
            MixerPart::Tensor("skip", &self.skip, vec![n]),
            MixerPart::Map("o", &self.o),
        ]);
        parts
    }
}
