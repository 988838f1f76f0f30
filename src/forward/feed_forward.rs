//! Feed-forward layers, dense or of experts; rows whose output is known from an earlier run are skipped.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::FeedForward;

use super::block_weights::MlpWeights;
use super::context::BlockContext;
use super::experts::experts;
use super::mlp::run_mlp;
use super::scratch::MlpScratch;
use super::steps::nothing;

/// Computes a feed-forward layer's output for all rows: known rows are copied, and only the others run.
pub(super) fn feed_forward_of_all<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &FeedForward,
    weights: Option<&MlpWeights<'_, O>>,
    (from, resid): (&O::Buffer, &O::Buffer),
    s: &mut MlpScratch<O>,
    to: &mut O::Buffer,
) -> Result<()> {
    // Which tokens a full expert leaves out depends on those before them, a convolution reads patches around each, and a router may go by
    // the token of every row.
    let is_apart = !spec.is_limited() && !spec.mixes() && !spec.reads_tokens();
    let Some(known) = context.known.filter(|known| known.n > 0 && is_apart) else {
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

/// Computes a feed-forward layer's output. Experts read their own weights, and some also read the residual before the norm.
pub(super) fn feed_forward<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &FeedForward,
    weights: Option<&MlpWeights<'_, O>>,
    (from, resid): (&O::Buffer, &O::Buffer),
    s: &mut MlpScratch<O>,
    to: &mut O::Buffer,
) -> Result<()> {
    match (spec, weights) {
        (FeedForward::Dense(mlp), Some(weights)) => run_mlp(context, mlp, weights, from, s, to),
        (FeedForward::Dense(_), None) => Ok(()),
        (FeedForward::Experts(spec), _) => experts(context, spec, (from, resid), s, to),
        (FeedForward::None, _) => nothing(context.ops, from, to),
    }
}
