//! The selective scan of Mamba, as data.

use attnscope_compute::ops::Activation;

use super::parts::{MixerPart, ShortConvolution};
use crate::norm_source::NormSource;
use crate::source::LinearSource;

/// A selective scan: out(scan(y, steps, b, c) · silu(gate)), where y = act(conv(x)), and steps, b and c are computed from y.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectiveScanSpec {
    pub x: LinearSource,
    pub gate: LinearSource,
    pub convolution: ShortConvolution,
    pub activation: Activation,
    /// Equal parts of the channels, from each of which its steps, B and C are made.
    pub heads: Vec<ScanHead>,
    /// Vectors by channel are stored with an axis for heads.
    pub is_stored_by_head: bool,
    /// Logarithm of each state's decay rate. // [channel, d_state]
    pub log_decay: String,
    /// [channel]
    pub skip: String,
    pub d_state: usize,
    pub o: LinearSource,
}

/// The maps from a head's channels. // [channel of the head] → …
#[derive(Debug, Clone, PartialEq)]
pub struct ScanHead {
    /// Low-rank map to the step size, and its norm.
    pub narrow_steps: (LinearSource, Option<NormSource>),
    /// Map to B, the direction in which the input is written to the state, and its norm.
    pub b: (LinearSource, Option<NormSource>),
    /// Map to C, the direction in which the state is read, and its norm.
    pub c: (LinearSource, Option<NormSource>),
    /// Low-rank steps → one step per channel of the head.
    pub steps: LinearSource,
}

impl ScanHead {
    pub(super) fn linears_mut(&mut self) -> [&mut LinearSource; 4] {
        let steps = &mut self.steps;
        [
            &mut self.narrow_steps.0,
            &mut self.b.0,
            &mut self.c.0,
            steps,
        ]
    }
}

impl SelectiveScanSpec {
    /// The shapes of the logarithms of decay rates, and of skips.
    pub fn shapes(&self) -> [Vec<usize>; 2] {
        let n_heads = self.heads.len().max(1);
        let channels = if self.is_stored_by_head {
            vec![n_heads, self.n_channels() / n_heads]
        } else {
            vec![self.n_channels()]
        };
        [[&channels[..], &[self.d_state]].concat(), channels]
    }

    pub fn n_channels(&self) -> usize {
        self.convolution.n_channels
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let mut parts = vec![
            MixerPart::Map("x", &self.x),
            MixerPart::Map("gate", &self.gate),
        ];
        parts.extend(self.convolution.parts());
        for head in &self.heads {
            let normed = [
                ("narrow_steps", "narrow_steps.norm", &head.narrow_steps),
                ("b", "b.norm", &head.b),
                ("c", "c.norm", &head.c),
            ];
            for (name, norm_name, (map, norm)) in normed {
                parts.push(MixerPart::Map(name, map));
                parts.extend(norm.iter().map(|norm| MixerPart::Norm(norm_name, norm)));
            }
            parts.push(MixerPart::Map("steps", &head.steps));
        }
        let [of_decay, of_skip] = self.shapes();
        parts.extend([
            MixerPart::Tensor("log_decay", &self.log_decay, of_decay),
            MixerPart::Tensor("skip", &self.skip, of_skip),
            MixerPart::Map("o", &self.o),
        ]);
        parts
    }
}
