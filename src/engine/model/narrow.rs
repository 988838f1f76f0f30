//! What a block adds to its residual beside attention: the normed input, and a narrow map of it (LAuReL, Menghani et al. 2024, arXiv
//! 2411.07501).

use super::context::BlockContext;
use super::source::{LinearSource, NormSource};
use crate::error::Result;
use crate::ops::Ops;

/// x + norm(out(into(x))), for the input x that attention reads.
#[derive(Debug, Clone, PartialEq)]
pub struct NarrowBranch {
    pub into: LinearSource,
    pub out: LinearSource,
    pub norm: NormSource,
}

impl NarrowBranch {
    /// Adds it, times a factor, to a residual. // from, resid: [position, d_model]
    pub(super) fn add_to<O: Ops>(
        &self,
        context: &BlockContext<'_, O>,
        from: &O::Buffer,
        factor: f32,
        resid: &mut O::Buffer,
    ) -> Result<()> {
        let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
        let (mut narrow, mut wide) = (O::Buffer::default(), O::Buffer::default());
        ops.linear(from, &shelf.linear(&self.into)?, &mut narrow, pace)?;
        ops.linear(&narrow, &shelf.linear(&self.out)?, &mut wide, pace)?;
        ops.norm(&wide, &shelf.norm(&self.norm)?, &mut narrow)?;
        ops.add(&mut narrow, from)?;
        ops.scale(&mut narrow, factor)?;
        ops.add(resid, &narrow)
    }
}
