//! Rows that an earlier run of the tokens left: what a feed-forward layer added to the first of them is not computed again.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::FeedForward;

use super::block_weights::MlpWeights;
use super::context::{BlockContext, MlpScratch};
use super::forward::feed_forward;

/// What a feed-forward layer adds to the first rows, before any norm on it.
#[derive(Debug, Clone, Copy)]
pub struct KnownRows<'a> {
    pub n: usize,
    /// [n, d_model]
    pub rows: &'a [f32],
}

/// What a feed-forward layer adds to all rows: to those that are known what is known, and only the others run.
pub(super) fn feed_forward_of_all<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &FeedForward,
    weights: Option<&MlpWeights<'_, O>>,
    (from, resid): (&O::Buffer, &O::Buffer),
    s: &mut MlpScratch<O>,
    to: &mut O::Buffer,
) -> Result<()> {
    let Some(known) = context.known.filter(|known| known.n > 0) else {
        return feed_forward(context, spec, weights, (from, resid), s, to);
    };
    let ops = context.ops;
    ops.put(known.rows, known.rows.len() / known.n, to)?; // [n, d_model]
    let others: Vec<usize> = (known.n..context.positions().len()).collect();
    if others.is_empty() {
        return Ok(());
    }
    let rows_of = |all: &O::Buffer| -> Result<O::Buffer> {
        let mut rows = O::Buffer::default();
        ops.gather_rows(all, &others, &mut rows)?;
        Ok(rows)
    };
    let (from, resid, mut added) = (rows_of(from)?, rows_of(resid)?, O::Buffer::default());
    feed_forward(context, spec, weights, (&from, &resid), s, &mut added)?;
    ops.append(to, &added)
}
