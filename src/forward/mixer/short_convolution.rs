//! Weights of a causal convolution over a few tokens, the first step of most mixers.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::recurrent::short_convolution;
use attnscope_compute::ops::Ops;
use attnscope_spec::mixers::ShortConvolution;

use crate::weights::WeightReader;

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
    pub(crate) fn run(&self, tail: &mut Vec<f32>, values: &[f32]) -> Vec<f32> {
        let bias = self.bias.as_deref();
        short_convolution(tail, values, &self.weights, bias, self.n_channels)
    }
}

pub(crate) fn read_kernel<'a, O: Ops>(
    spec: &ShortConvolution,
    shelf: WeightReader<'a, O>,
) -> Result<Kernel<'a>> {
    let mut stored = Vec::with_capacity(spec.kernels.len());
    for (name, shape) in spec.stored_kernels() {
        stored.push(shelf.tensors.expect(name, &shape)?.widen()?);
    }
    let weights = match stored.len() {
        1 => stored.swap_remove(0),
        _ => Cow::Owned(stored.concat()),
    };
    Ok(Kernel {
        weights,
        bias: match &spec.bias {
            Some(name) => Some(shelf.vector(name, spec.n_channels)?),
            None => None,
        },
        n_channels: spec.n_channels,
    })
}
