//! Weights of a sum: a stored vector says of each dimension how much of the residual and of a branch's output is added.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::SumWeights;

use super::context::BlockContext;

/// Multiplies the residual by its weights, if the sum has any. // [position, d_model]
pub(super) fn weigh_resid<O: Ops>(
    context: &BlockContext<'_, O>,
    sum: &Option<Box<SumWeights>>,
    resid: &mut O::Buffer,
) -> Result<()> {
    weigh(context, sum, 0, resid)
}

/// Multiplies what a branch adds by its weights, if the sum has any. // [position, d_model]
pub(super) fn weigh_added<O: Ops>(
    context: &BlockContext<'_, O>,
    sum: &Option<Box<SumWeights>>,
    added: &mut O::Buffer,
) -> Result<()> {
    weigh(context, sum, 1, added)
}

fn weigh<O: Ops>(
    context: &BlockContext<'_, O>,
    sum: &Option<Box<SumWeights>>,
    which: usize,
    values: &mut O::Buffer,
) -> Result<()> {
    let Some(sum) = sum else { return Ok(()) };
    let stored = context.shelf().tensors.expect(&sum.tensor, &sum.shape)?;
    let stored = stored.widen()?;
    let weights = &sum.of_both(&stored)[which];
    let mut host = context.ops.get(values)?.values.into_owned();
    for row in host.chunks_mut(sum.width.max(1)) {
        row.iter_mut().zip(weights).for_each(|(v, by)| *v *= by);
    }
    context.ops.put_own(host, sum.width, values)
}
