//! Low-rank branch parallel to attention: the normed input plus a narrow map of it (LAuReL, Menghani et al. 2024, arXiv
//! 2411.07501).

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::NarrowBranch;

use super::context::BlockContext;

/// Adds the branch's output, times a factor, to a residual. // from, resid: [position, d_model]
pub(super) fn add_narrow<O: Ops>(
    branch: &NarrowBranch,
    context: &BlockContext<'_, O>,
    from: &O::Buffer,
    factor: f32,
    resid: &mut O::Buffer,
) -> Result<()> {
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let (mut narrow, mut wide) = (O::Buffer::default(), O::Buffer::default());
    ops.linear(from, &shelf.linear(&branch.into)?, &mut narrow, pace)?;
    ops.linear(&narrow, &shelf.linear(&branch.out)?, &mut wide, pace)?;
    ops.norm(&wide, &shelf.norm(&branch.norm)?, &mut narrow)?;
    ops.add(&mut narrow, from)?;
    ops.scale(&mut narrow, factor)?;
    ops.add(resid, &narrow)
}
