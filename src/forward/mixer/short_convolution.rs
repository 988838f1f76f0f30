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
    /// Rows and columns of the kernel, if it lies over those of a picture.
    over_grid: Option<usize>,
}

impl Kernel<'_> {
    /// // values: [position, channel] → [position, channel]
    pub(crate) fn run(&self, tail: &mut Vec<f32>, values: &[f32]) -> Vec<f32> {
        let bias = self.bias.as_deref();
        short_convolution(tail, values, &self.weights, bias, self.n_channels)
    }

    /// The convolution over the patches of a picture, row by row; `None` if the kernel lies over tokens. // values: [patch, channel] → [patch, channel]
    pub(super) fn over(&self, n_columns: usize, values: &[f32]) -> Option<Vec<f32>> {
        let (side, n) = (self.over_grid?, self.n_channels.max(1));
        let n_patches = values.len() / n;
        let (n_columns, half) = (n_columns.max(1), side / 2);
        let mut sums = vec![0.0; values.len()];
        if let Some(bias) = &self.bias {
            sums.chunks_mut(n).for_each(|sum| sum.copy_from_slice(bias));
        }
        for (patch, sum) in sums.chunks_mut(n).enumerate() {
            for nth in 0..side * side {
                let row = (patch / n_columns + nth / side).checked_sub(half);
                let column = (patch % n_columns + nth % side).checked_sub(half);
                let inside = row.zip(column.filter(|column| *column < n_columns));
                let at = inside.map(|(row, column)| row * n_columns + column);
                let Some(at) = at.filter(|at| *at < n_patches) else {
                    continue;
                };
                let from = &values[at * n..][..n];
                let weights = self.weights.iter().skip(nth).step_by(side * side);
                let pairs = sum.iter_mut().zip(from).zip(weights);
                pairs.for_each(|((sum, value), weight)| *sum += value * weight);
            }
        }
        Some(sums)
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
        over_grid: spec.over_grid.then_some(spec.n_tokens),
    })
}
