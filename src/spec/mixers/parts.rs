//! Parts that several mixers share, and the type for listing the tensors that a mixer reads.

use attnscope_compute::kernels::recurrent::GateOrder;

use crate::source::{LinearSource, NormSource};

/// One tensor or map that a mixer reads, with a short name.
#[derive(Debug, Clone, PartialEq)]
pub enum MixerPart<'a> {
    Map(&'static str, &'a LinearSource),
    Norm(&'static str, &'a NormSource),
    /// Any other tensor, with its shape.
    Tensor(&'static str, &'a str, Vec<usize>),
}

/// A norm combined with a gate, before the output map.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedNormSource {
    pub gain: String,
    /// Number of stored gains: one per channel, or one per channel of a group.
    pub n_stored: usize,
    pub order: GateOrder,
    /// Number of channels normalised together.
    pub width: usize,
    pub eps: f32,
}

impl GatedNormSource {
    /// Describes the computation, for comparisons.
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

/// A depthwise causal convolution over a token and the tokens before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortConvolution {
    /// Kernel weights; the last one belongs to the token itself. // [channel, 1, token]
    pub kernel: String,
    /// [channel]
    pub bias: Option<String>,
    pub n_channels: usize,
    pub n_tokens: usize,
}

impl ShortConvolution {
    /// Number of cached values: those of the earlier tokens that the kernel covers.
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
