//! Causal convolutions over a token and the few before it, whose output is added to what they read. A padded token counts as zeros.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::AddedConvolution;

use super::context::BlockContext;
use super::mixer::{MixerMemory, each_copy, hide_padding, read_kernel};

/// Replaces values by their sum with a convolution of them, if there is one. `memory` holds the inputs of the tokens already
/// processed. // values: [position, channel]
///
/// # Errors
/// When a tensor differs from its spec, or the device fails.
pub(super) fn add_convolved<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: Option<&AddedConvolution>,
    memory: Option<&mut MixerMemory>,
    values: &mut O::Buffer,
) -> Result<()> {
    let Some(spec) = spec else { return Ok(()) };
    let kernel = read_kernel(&spec.convolution, context.shelf())?;
    let mut sum = context.ops.get(values)?.values.into_owned();
    let n = spec.convolution.n_channels.max(1);
    let mut real = sum.clone();
    hide_padding(context, &mut real, n);
    let mixed = each_copy(context, real.len() / n, memory, |rows, kept| {
        kernel.run(&mut kept.tail, &real[rows.start * n..rows.end * n])
    });
    for (sum, mixed) in sum.iter_mut().zip(mixed) {
        *sum = (*sum + mixed) * spec.scale;
    }
    context.ops.put_own(sum, n, values)
}
