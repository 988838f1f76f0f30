//! A gated convolution over a few tokens, in the place of attention.

use std::borrow::Cow;

use super::context::{AttentionScratch, BlockContext};
use super::spec::ConvolutionSpec;
use super::weights::Shelf;
use crate::error::Result;
use crate::ops::Ops;

/// The weights of a convolution.
pub struct ConvolutionWeights<'a, O: Ops> {
    b: O::Linear<'a>,
    c: O::Linear<'a>,
    x: O::Linear<'a>,
    /// [channel, token]
    kernel: Cow<'a, [f32]>,
    /// [channel]
    bias: Option<Cow<'a, [f32]>>,
    o: O::Linear<'a>,
}

impl<'a, O: Ops> ConvolutionWeights<'a, O> {
    /// # Errors
    /// As for [`Shelf::linear`].
    pub(super) fn read(shelf: Shelf<'a, O>, spec: &ConvolutionSpec) -> Result<Self> {
        let kernel = shelf.tensors.expect(&spec.kernel, &spec.kernel_shape())?;
        Ok(Self {
            b: shelf.linear(&spec.b)?,
            c: shelf.linear(&spec.c)?,
            x: shelf.linear(&spec.x)?,
            kernel: kernel.widen()?,
            bias: match &spec.bias {
                Some(name) => Some(shelf.vector(name, spec.n_channels)?),
                None => None,
            },
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `s.out` with what the convolution adds. Padding gives it nothing. // from: [position, d_model]
pub(super) fn run_convolution<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ConvolutionSpec,
    weights: &ConvolutionWeights<'_, O>,
    from: &O::Buffer,
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    let (ops, pace) = (context.ops, context.pace);
    // Of the copies of one sequence that may lie here, none reaches into the one before it.
    let n_past = context.n_past;
    let n_positions = (context.sequence.len() - n_past).max(1);
    let mut real = O::Buffer::default();
    let host = ops.get(from)?;
    let (width, mut rows) = (host.width, host.values.into_owned());
    for (position_idx, row) in rows.chunks_mut(width).enumerate() {
        if !context
            .sequence
            .is_real(n_past + position_idx % n_positions)
        {
            row.fill(0.0);
        }
    }
    ops.put(&rows, width, &mut real)?;
    ops.linear(&real, &weights.b, &mut s.q, pace)?; // [position, channel]
    ops.linear(&real, &weights.c, &mut s.k, pace)?;
    ops.linear(&real, &weights.x, &mut s.v, pace)?;
    ops.multiply(&mut s.v, &s.q)?;
    let gated = ops.get(&s.v)?;
    let bias = weights.bias.as_deref();
    let mixed: Vec<f32> = match &mut s.past {
        Some(past) => {
            // The tokens before those that run count as well, as many as the kernel reaches back.
            let n_new = gated.values.len();
            past.v_on_host.extend_from_slice(&gated.values);
            let mut all = convolved(&past.v_on_host, spec, &weights.kernel, bias);
            let n_kept = (spec.n_tokens - 1) * spec.n_channels;
            let n_over = past.v_on_host.len().saturating_sub(n_kept);
            past.v_on_host.drain(..n_over);
            all.split_off(all.len() - n_new)
        }
        None => {
            let copies = gated.values.chunks((n_positions * spec.n_channels).max(1));
            copies
                .flat_map(|values| convolved(values, spec, &weights.kernel, bias))
                .collect()
        }
    };
    ops.put(&mixed, spec.n_channels, &mut s.z)?; // [position, channel]
    ops.multiply(&mut s.z, &s.k)?;
    ops.linear(&s.z, &weights.o, &mut s.out, pace) // [position, d_model]
}

/// Σ over a token and those before it of weight · value, each channel by itself. // [position, channel]
fn convolved(
    values: &[f32],
    spec: &ConvolutionSpec,
    kernel: &[f32],
    bias: Option<&[f32]>,
) -> Vec<f32> {
    let (n, width) = (spec.n_channels, spec.n_tokens);
    let mut mixed = Vec::with_capacity(values.len());
    for position_idx in 0..values.len() / n.max(1) {
        for channel_idx in 0..n {
            let weights = &kernel[channel_idx * width..][..width];
            let mut sum = bias.map_or(0.0, |bias| bias[channel_idx]);
            for (back, weight) in weights.iter().rev().enumerate().take(position_idx + 1) {
                sum += weight * values[(position_idx - back) * n + channel_idx];
            }
            mixed.push(sum);
        }
    }
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LinearSource;

    #[test]
    fn the_last_weight_is_the_token_s_own() {
        let map = || LinearSource::whole(String::new(), None, 1, 1);
        let spec = ConvolutionSpec {
            b: map(),
            c: map(),
            x: map(),
            kernel: String::new(),
            bias: None,
            n_channels: 1,
            n_tokens: 2,
            o: map(),
        };
        let mixed = convolved(&[1.0, 2.0, 4.0], &spec, &[10.0, 1.0], Some(&[0.5]));
        assert_eq!(mixed, [1.5, 12.5, 24.5]);
    }
}
