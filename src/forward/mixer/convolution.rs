//! A gated convolution over a few tokens.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::mixers::ConvolutionSpec;

use super::memory::MixerMemory;
use super::rows::each_copy;
use super::short_convolution::{Kernel, read_kernel};
use crate::context::BlockContext;
use crate::weights::WeightReader;

/// The weights of a gated convolution.
pub struct ConvolutionWeights<'a, O: Ops> {
    b: O::Linear<'a>,
    c: O::Linear<'a>,
    x: O::Linear<'a>,
    kernel: Kernel<'a>,
    o: O::Linear<'a>,
}

impl<'a, O: Ops> ConvolutionWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &ConvolutionSpec) -> Result<Self> {
        Ok(Self {
            b: shelf.linear(&spec.b)?,
            c: shelf.linear(&spec.c)?,
            x: shelf.linear(&spec.x)?,
            kernel: read_kernel(&spec.convolution, shelf)?,
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `to` with the output of the convolution. // from: [position, d_model]
pub(super) fn run<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ConvolutionSpec,
    weights: &ConvolutionWeights<'_, O>,
    from: &O::Buffer,
    memory: Option<&mut MixerMemory>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, pace) = (context.ops, context.pace);
    let (mut b, mut c, mut x) = Default::default();
    ops.linear(from, &weights.b, &mut b, pace)?; // [position, channel]
    ops.linear(from, &weights.c, &mut c, pace)?;
    ops.linear(from, &weights.x, &mut x, pace)?;
    ops.multiply(&mut x, &b)?;
    let gated = ops.get(&x)?;
    let n = spec.convolution.n_channels;
    let picture = context.sequence.picture.as_deref();
    let n_columns = picture.map_or(context.sequence.len(), |picture| picture.grid()[1]);
    let mixed = each_copy(
        context,
        gated.values.len() / n.max(1),
        memory,
        |rows, kept| {
            let values = &gated.values[rows.start * n..rows.end * n];
            let around = weights.kernel.over(n_columns, values);
            around.unwrap_or_else(|| weights.kernel.run(&mut kept.tail, values))
        },
    );
    ops.put(&mixed, n, &mut b)?; // [position, channel]
    ops.multiply(&mut b, &c)?;
    ops.linear(&b, &weights.o, to, pace) // [position, d_model]
}
