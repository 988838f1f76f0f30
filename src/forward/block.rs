//! Runs one block on a residual, or on rows that hold more than the residual.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockRow, BlockSpec, PredictedStreams};

use super::block_weights::BlockWeights;
use super::branches::{BlockRun, run_branches};
use super::context::BlockContext;
use super::emit::{emit, offer, rows};
use super::hook::{Hook, Hooks};
use super::hyper::OpenStreams;
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

/// Runs one block in place on rows that hold more than its residual. Hooks see the stream that the block works on; with
/// hyper-connections, what attention reads of all streams, and behind the block the fold of all.
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
    s.attention.open = match row.connected() {
        Some(hyper) => {
            let (of_attention, sizes) = (&hyper.branches[0], (hyper.n, d_model));
            let streams = std::mem::take(&mut apart.streams);
            let open = OpenStreams::read(of_attention, context, sizes, streams, &mut main)?;
            Some(open)
        }
        None => {
            ops.put(&apart.main(row), d_model, &mut main)?;
            None
        }
    };
    offer(ops, hooks, Hook::ResidPre, &mut main)?; // [row, d_model]
    rows(ops, hooks, Hook::ResidPre, resid)?; // [row, n_streams · d_model + n_kept]
    let mut predicted = Vec::new();
    if let Some(streams) = row.predicted() {
        apart.put_main(row, &ops.get(&main)?.values);
        predicted = streams::predict(streams, context, &apart.streams, &main)?; // [row, n_streams · d_model]
        ops.put(&active(streams, d_model, &predicted), d_model, &mut main)?;
    }
    let n_copies = hooks.spreads();
    s.attention.kept = std::mem::take(&mut apart.kept);
    let ran = run_branches(context, spec, weights, &mut main, s, hooks)?;
    let kept = std::mem::take(&mut s.attention.kept);
    let spread = n_copies.map(|copies| context.spread(copies));
    if let Some(copies) = n_copies {
        predicted = predicted.repeat(copies);
    }
    let of_streams = match (row.predicted(), s.attention.open.take()) {
        (_, Some(open)) => open.streams,
        (Some(streams), None) => {
            let after = spread.as_ref().unwrap_or(context);
            let by_token = spec.by_token.as_deref();
            let corrected = streams::correct(streams, after, by_token, predicted, &main)?;
            ops.put(&active(streams, d_model, &corrected), d_model, &mut main)?;
            corrected
        }
        (None, None) => ops.get(&main)?.values.into_owned(),
    };
    emit(ops, hooks, Hook::ResidPost, &main)?;
    let joined = joined(row, &of_streams, &kept);
    ops.put(&joined, row.n_streams() * d_model + row.n_kept, resid)?;
    rows(ops, hooks, Hook::ResidPost, resid)?;
    Ok(ran)
}

/// The stream that blocks work on. // all: [row, n_streams · d_model] → [row, d_model]
fn active(streams: &PredictedStreams, d_model: usize, all: &[f32]) -> Vec<f32> {
    columns(all, streams.n * d_model, streams.active * d_model, d_model)
}

/// Puts streams and kept values of each row side by side. // [row, n_streams · d_model + n_kept]
fn joined(row: &BlockRow, streams: &[f32], kept: &[f32]) -> Vec<f32> {
    let mut together = Vec::with_capacity(streams.len() + kept.len());
    let mut kept = kept.chunks(row.n_kept.max(1));
    for streams in streams.chunks(row.n_streams() * row.d_model) {
        together.extend_from_slice(streams);
        together.extend_from_slice(kept.next().unwrap_or_default());
    }
    together
}
