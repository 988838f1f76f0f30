//! The selective scan of Mamba, as data.

use attnscope_compute::ops::Activation;

use super::parts::{MixerPart, ShortConvolution};
use crate::source::{LinearSource, NormSource};

/// A selective scan: out(scan(y, steps, b, c) · silu(gate)), with y = act(conv(x)) and the rest made of y.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectiveScanSpec {
    pub x: LinearSource,
    pub gate: LinearSource,
    pub convolution: ShortConvolution,
    pub activation: Activation,
    /// What steps are made of, and its norm.
    pub narrow_steps: (LinearSource, NormSource),
    /// What is written along.
    pub b: (LinearSource, NormSource),
    /// What is read along.
    pub c: (LinearSource, NormSource),
    /// Narrow steps → steps.
    pub steps: LinearSource,
    /// The logarithm of how fast a state decays. // [channel, d_state]
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
