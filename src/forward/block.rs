//! Runs one block on a residual, or on rows that hold more than the residual.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockRow, BlockSpec};

use super::block_weights::BlockWeights;
use super::branches::{BlockRun, run_branches};
use super::context::BlockContext;
use super::emit::{emit, offer, rows};
use super::hook::{Hook, Hooks};
use super::rows::SplitRow;
use super::scratch::Scratch;
use super::streams;

/// Runs one block on the residual stream, in place.
///
/// # Errors
/// When the pace stops it, a tensor differs from its spec, the device fails, or a hook cannot keep what it asked for.
pub(super) fn run_block<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    weights: &BlockWeights<'_, O>,
    resid: &mut O::Buffer,
    scratch: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<BlockRun> {
    if let Some(row) = spec.row.as_deref() {
        return run_in_row(context, (spec, row), weights, resid, scratch, hooks);
    }
    offer(context.ops, hooks, Hook::ResidPre, resid)?; // [position, d_model]
    let ran = run_branches(context, spec, weights, resid, scratch, hooks)?;
    emit(context.ops, hooks, Hook::ResidPost, resid)?;
    Ok(ran)
}

/// Runs one block in place on rows that hold more than its residual. Hooks see the stream that the block works on.
fn run_in_row<O: Ops>(
    context: &BlockContext<'_, O>,
    (spec, row): (&BlockSpec, &BlockRow),
    weights: &BlockWeights<'_, O>,
    resid: &mut O::Buffer,
    s: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<BlockRun> {
    let (ops, d_model) = (context.ops, row.d_model);
    let mut apart = SplitRow::of(ops, row, resid)?;
    let mut main = O::Buffer::default();
    ops.put(&apart.main(row), d_model, &mut main)?;
    offer(ops, hooks, Hook::ResidPre, &mut main)?; // [row, d_model]
    rows(ops, hooks, Hook::ResidPre, resid)?; // [row, n_streams · d_model + n_kept]
    let mut predicted = match &row.streams {
        Some(streams) => {
            apart.put_main(row, &ops.get(&main)?.values);
            let predicted = streams::predict(streams, context, &apart.streams, &main)?; // [row, n_streams · d_model]
            let n = streams.n * d_model;
            let active = columns(&predicted, n, streams.active * d_model, d_model);
            ops.put(&active, d_model, &mut main)?;
            predicted
        }
        None => Vec::new(),
    };
    s.attention.kept = std::mem::take(&mut apart.kept);
    let spread;
    let mut n_copies = 1;
    let after = match hooks.spreads() {
        Some(copies) => {
            n_copies = copies;
            spread = context.spread(copies);
            &spread
        }
        None => context,
    };
    let ran = run_branches(context, spec, weights, &mut main, s, hooks)?;
    let mut kept = std::mem::take(&mut s.attention.kept);
    if n_copies > 1 {
        (kept, predicted) = (kept.repeat(n_copies), predicted.repeat(n_copies));
    }
    let streams = match &row.streams {
        Some(streams) => {
            let by_token = spec.by_token.as_deref();
            let corrected = streams::correct(streams, after, by_token, predicted, &main)?;
            let n = streams.n * d_model;
            let active = columns(&corrected, n, streams.active * d_model, d_model);
            ops.put(&active, d_model, &mut main)?;
            corrected
        }
        None => ops.get(&main)?.values.into_owned(),
    };
    emit(ops, hooks, Hook::ResidPost, &main)?;
    let (n, n_kept) = (row.n_streams() * d_model, row.n_kept);
    let mut together = Vec::with_capacity(streams.len() + kept.len());
    let mut kept = kept.chunks(n_kept.max(1));
    for row in streams.chunks(n) {
        together.extend_from_slice(row);
        together.extend_from_slice(kept.next().unwrap_or_default());
    }
    ops.put(&together, n + n_kept, resid)?;
    rows(ops, hooks, Hook::ResidPost, resid)?;
    Ok(ran)
}
