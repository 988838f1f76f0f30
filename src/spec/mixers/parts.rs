//! Parts that several mixers have, and the list of tensors that every mixer reads.

use attnscope_compute::kernels::recurrent::GateOrder;

use crate::source::{LinearSource, NormSource};

/// One thing that a mixer reads, under a short name.
#[derive(Debug, Clone, PartialEq)]
pub enum MixerPart<'a> {
    Map(&'static str, &'a LinearSource),
    Norm(&'static str, &'a NormSource),
    /// A tensor that is neither, with its shape.
    Tensor(&'static str, &'a str, Vec<usize>),
}

/// A norm beside a gate, before the map of the output.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedNormSource {
    pub gain: String,
    /// Values that are stored: as many as there are channels, or as one group has.
    pub n_stored: usize,
    pub order: GateOrder,
    /// Channels that are normed together.
    pub width: usize,
    pub eps: f32,
}

impl GatedNormSource {
    /// What it computes, for comparisons.
    pub fn words(&self) -> String {
        let order = match self.order {
            GateOrder::NormFirst => "norm before the gate",
            GateOrder::GateFirst => "norm after the gate",
        };
        format!("{order} over {} channels, eps {}", self.width, self.eps)
    }

    pub(super) fn part(&self) -> MixerPart<'_> {
        MixerPart::Tensor("norm", &self.gain, vec![self.n_stored])
    }
}

/// A convolution over a token and those before it, each channel by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortConvolution {
    /// Last the weight of the token itself. // [channel, 1, token]
    pub kernel: String,
    /// [channel]
    pub bias: Option<String>,
    pub n_channels: usize,
    pub n_tokens: usize,
}

impl ShortConvolution {
    /// Values of earlier tokens that it reaches back to.
    pub fn n_kept(&self) -> usize {
        self.n_tokens.saturating_sub(1) * self.n_channels
    }

    /// The shape of the stored kernel.
    pub fn kernel_shape(&self) -> Vec<usize> {
        vec![self.n_channels, 1, self.n_tokens]
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let kernel = MixerPart::Tensor("kernel", &self.kernel, self.kernel_shape());
        let bias = self.bias.as_ref();
        let bias = bias.map(|bias| MixerPart::Tensor("kernel.bias", bias, vec![self.n_channels]));
        [kernel].into_iter().chain(bias).collect()
    }
}
