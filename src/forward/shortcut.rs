//! Shortcuts: a feed-forward layer that reads one block's residual and whose output joins that of a later block.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockSpec, FeedForward, Shortcut};

use super::block_weights::MlpWeights;
use super::context::BlockContext;
use super::feed_forward::feed_forward;
use super::rows::put_columns;
use super::scratch::MlpScratch;

/// Runs the layer of a shortcut that begins in the block, or adds what an earlier block kept to the output of the block's own
/// feed-forward layer. // kept: [row, n_kept]; out: [row, d_model]
pub(super) fn shortcut<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    read: (&O::Buffer, &O::Buffer),
    kept: &mut [f32],
    s: &mut MlpScratch<O>,
    out: &mut O::Buffer,
) -> Result<()> {
    let Some(row) = spec.row.as_deref() else {
        return Ok(());
    };
    let (ops, d_model) = (context.ops, row.d_model);
    let mut added = O::Buffer::default();
    match &row.shortcut {
        None => Ok(()),
        Some(Shortcut::Begins(layer)) => {
            let weights = match &**layer {
                FeedForward::Dense(mlp) => Some(MlpWeights::read(context.shelf(), mlp)?),
                FeedForward::Experts(_) | FeedForward::None => None,
            };
            feed_forward(context, layer, weights.as_ref(), read, s, &mut added)?;
            put_columns(kept, row.n_kept, 0, &ops.get(&added)?.values, d_model);
            Ok(())
        }
        Some(Shortcut::Ends) => {
            let mut values = columns(kept, row.n_kept, 0, d_model);
            // Outputs known from an earlier run have it already.
            let n_known = context.known.map_or(0, |known| known.n);
            values[..n_known * d_model].fill(0.0);
            ops.put_own(values, d_model, &mut added)?;
            ops.add(out, &added)
        }
    }
}
