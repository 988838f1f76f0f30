//! Span-based dynamic convolution: each head mixes the tokens around a token with weights of its own.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::mixers::SpanConvolutionSpec;

use super::rows::{each_copy, mapped};
use crate::context::BlockContext;
use crate::weights::WeightReader;

/// The weights of the convolution.
pub struct SpanConvolutionWeights<'a, O: Ops> {
    q: O::Linear<'a>,
    /// [channel, token]
    depthwise: Cow<'a, [f32]>,
    pointwise: O::Linear<'a>,
    /// [channel]
    span_bias: Cow<'a, [f32]>,
    kernel: O::Linear<'a>,
    values: O::Linear<'a>,
    o: O::Linear<'a>,
}

impl<'a, O: Ops> SpanConvolutionWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &SpanConvolutionSpec) -> Result<Self> {
        let tensor = |name: &str, shape: &[usize]| shelf.tensors.expect(name, shape)?.widen();
        Ok(Self {
            q: shelf.linear(&spec.q)?,
            depthwise: tensor(&spec.depthwise, &spec.depthwise_shape())?,
            pointwise: shelf.linear(&spec.pointwise)?,
            span_bias: tensor(&spec.span_bias, &spec.span_bias_shape())?,
            kernel: shelf.linear(&spec.kernel)?,
            values: shelf.linear(&spec.values)?,
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `to` with the output of the convolution. // from: [position, d_model]
pub(super) fn run<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &SpanConvolutionSpec,
    weights: &SpanConvolutionWeights<'_, O>,
    from: &O::Buffer,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, n_wide) = (context.ops, spec.n_wide);
    let (d_model, width) = (spec.q.n_in, spec.q.n_out());
    let host = ops.get(from)?;
    let n = host.values.len() / d_model.max(1);
    let spans = each_copy(context, n, None, |rows, _| {
        let values = &host.values[rows.start * d_model..rows.end * d_model];
        let of = |channel: usize, _: usize, nth: usize| weights.depthwise[channel * n_wide + nth];
        around(values, d_model, n_wide, of)
    });
    let (mut narrow, mut mixed) = (O::Buffer::default(), O::Buffer::default());
    ops.put(&spans, d_model, &mut narrow)?;
    let mut spans = mapped(context, &narrow, &weights.pointwise, &mut mixed)?; // [position, channel]
    let queries = mapped(context, from, &weights.q, &mut mixed)?;
    let rows = spans
        .chunks_mut(width.max(1))
        .zip(queries.chunks(width.max(1)));
    for (span, q) in rows {
        let pairs = span.iter_mut().zip(weights.span_bias.iter()).zip(q);
        pairs.for_each(|((span, bias), q)| *span = (*span + bias) * q);
    }
    ops.put(&spans, width, &mut narrow)?;
    let mut kernels = mapped(context, &narrow, &weights.kernel, &mut mixed)?; // [position, head · token]
    kernels.chunks_mut(n_wide.max(1)).for_each(softmax);
    let values = mapped(context, from, &weights.values, &mut mixed)?; // [position, channel]
    let (n_kernel, d_head) = (spec.n_heads * n_wide, (width / spec.n_heads.max(1)).max(1));
    let heads = each_copy(context, n, None, |rows, _| {
        let of_copy = &values[rows.start * width..rows.end * width];
        let of = |channel: usize, position: usize, nth: usize| {
            kernels[(rows.start + position) * n_kernel + channel / d_head * n_wide + nth]
        };
        around(of_copy, width, n_wide, of)
    });
    ops.put(&heads, width, &mut narrow)?;
    ops.linear(&narrow, &weights.o, to, context.pace) // [position, d_model]
}

/// Sums the rows around each row, weighted by channel, row and place in the kernel; rows outside are zero.
fn around(
    values: &[f32],
    width: usize,
    n_wide: usize,
    weight: impl Fn(usize, usize, usize) -> f32,
) -> Vec<f32> {
    let n = values.len() / width.max(1);
    let mut sums = vec![0.0; values.len()];
    for (position, sum) in sums.chunks_mut(width.max(1)).enumerate() {
        for nth in 0..n_wide {
            let Some(at) = (position + nth)
                .checked_sub(n_wide / 2)
                .filter(|at| *at < n)
            else {
                continue;
            };
            let row = &values[at * width..][..width];
            for (channel, (sum, value)) in sum.iter_mut().zip(row).enumerate() {
                *sum += value * weight(channel, position, nth);
            }
        }
    }
    sums
}

fn softmax(row: &mut [f32]) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter_mut()
        .for_each(|value| *value = (*value - most).exp());
    let sum: f32 = row.iter().sum();
    row.iter_mut().for_each(|value| *value /= sum);
}
