//! The stored form of a causal convolution over a few tokens, which most mixers begin with.

use std::borrow::Cow;

use super::parts::MixerPart;
use crate::error::Result;
use crate::kernels::recurrent::short_convolution;
use crate::model::weights::Shelf;
use crate::ops::Ops;

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
    fn kernel_shape(&self) -> Vec<usize> {
        vec![self.n_channels, 1, self.n_tokens]
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let kernel = MixerPart::Tensor("kernel", &self.kernel, self.kernel_shape());
        let bias = self.bias.as_ref();
        let bias = bias.map(|bias| MixerPart::Tensor("kernel.bias", bias, vec![self.n_channels]));
        [kernel].into_iter().chain(bias).collect()
    }

    pub(super) fn read<'a, O: Ops>(&self, shelf: Shelf<'a, O>) -> Result<Kernel<'a>> {
        let stored = shelf.tensors.expect(&self.kernel, &self.kernel_shape())?;
        Ok(Kernel {
            weights: stored.widen()?,
            bias: match &self.bias {
                Some(name) => Some(shelf.vector(name, self.n_channels)?),
                None => None,
            },
            n_channels: self.n_channels,
        })
    }
}

/// The weights of a convolution.
pub struct Kernel<'a> {
    /// [channel, token]
    weights: Cow<'a, [f32]>,
    /// [channel]
    bias: Option<Cow<'a, [f32]>>,
    n_channels: usize,
}

impl Kernel<'_> {
    /// // values: [position, channel] → [position, channel]
    pub(super) fn run(&self, tail: &mut Vec<f32>, values: &[f32]) -> Vec<f32> {
        let bias = self.bias.as_deref();
        short_convolution(tail, values, &self.weights, bias, self.n_channels)
    }
}
