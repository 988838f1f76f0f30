//! What a row holds while the blocks run, where that is more than one residual: further streams of it, and behind them keys and values
//! that one layer leaves for later ones. Whoever has a layer's rows can go on from there, whatever came before.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockRow, BlockSpec, RowSpec};

use super::block_weights::BlockWeights;
use super::context::{BlockContext, Scratch};
use super::emit::{emit, offer, rows};
use super::forward::{BlockRun, run_branches};
use super::hook::{Hook, Hooks};
use super::streams;

/// Writes some columns of rows. // rows: [row, width]; from: [row, n]
pub(super) fn put_columns(rows: &mut [f32], width: usize, first: usize, from: &[f32], n: usize) {
    let pairs = rows.chunks_mut(width.max(1)).zip(from.chunks(n.max(1)));
    pairs.for_each(|(row, from)| row[first..first + n].copy_from_slice(from));
}

/// A row taken apart: what a block works on, and what lies beside it.
pub(super) struct Apart {
    /// [row, n_streams · d_model]
    pub streams: Vec<f32>,
    /// [row, n_kept]
    pub kept: Vec<f32>,
}

impl Apart {
    /// Takes rows apart.
    pub fn of<O: Ops>(ops: &O, row: &BlockRow, resid: &O::Buffer) -> Result<Self> {
        let host = ops.get(resid)?;
        let n = row.n_streams() * row.d_model;
        Ok(Self {
            streams: columns(&host.values, host.width, 0, n),
            kept: columns(&host.values, host.width, n, row.n_kept),
        })
    }

    /// The stream that the block works on. // [row, d_model]
    fn main(&self, row: &BlockRow) -> Vec<f32> {
        let n = row.n_streams() * row.d_model;
        columns(&self.streams, n, row.active() * row.d_model, row.d_model)
    }

    fn put_main(&mut self, row: &BlockRow, main: &[f32]) {
        let n = row.n_streams() * row.d_model;
        let first = row.active() * row.d_model;
        put_columns(&mut self.streams, n, first, main, row.d_model);
    }
}

/// What the attention of a block reads, and what its row keeps: for heads that run alone. `None` where a row is the residual.
pub(super) fn read_of<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    resid: &O::Buffer,
) -> Result<Option<(O::Buffer, Vec<f32>)>> {
    let Some(row) = spec.row.as_deref() else {
        return Ok(None);
    };
    let apart = Apart::of(context.ops, row, resid)?;
    let mut main = O::Buffer::default();
    context.ops.put(&apart.main(row), row.d_model, &mut main)?;
    if let Some(streams) = &row.streams {
        let predicted = streams::predict(streams, context, &apart.streams, &main)?;
        let first = streams.active * row.d_model;
        let read = columns(&predicted, streams.n * row.d_model, first, row.d_model);
        context.ops.put(&read, row.d_model, &mut main)?;
    }
    Ok(Some((main, apart.kept)))
}

/// Runs one block on rows that hold more than its residual, in place. Hooks see the stream that the block works on.
pub(super) fn run_in_row<O: Ops>(
    context: &BlockContext<'_, O>,
    (spec, row): (&BlockSpec, &BlockRow),
    weights: &BlockWeights<'_, O>,
    resid: &mut O::Buffer,
    s: &mut Scratch<O>,
    hooks: &mut dyn Hooks,
) -> Result<BlockRun> {
    let (ops, d_model) = (context.ops, row.d_model);
    let mut apart = Apart::of(ops, row, resid)?;
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

/// Brings an embedding to the width of rows. // resid: [row, d_model]
pub(super) fn begin<O: Ops>(
    (ops, tensors): (&O, &attnscope_checkpoint::Tensors),
    spec: &RowSpec,
    resid: &mut O::Buffer,
) -> Result<()> {
    let first = ops.get(resid)?.values.into_owned();
    let others = match &spec.streams {
        Some(maps) => streams::begin(maps, ops, tensors, resid, &first)?,
        None => Vec::new(),
    };
    let (d_model, width) = (spec.d_model, spec.width());
    let n_rows = first.len() / d_model.max(1);
    let mut rows = vec![0.0; n_rows * width];
    let streams = std::iter::once(&first).chain(&others);
    for (stream_idx, stream) in streams.enumerate() {
        put_columns(&mut rows, width, stream_idx * d_model, stream, d_model);
    }
    ops.put(&rows, width, resid)
}

/// What is left of rows behind the last block. // rows: [row, width] → [row, d_model]
pub(super) fn end<O: Ops>(
    (ops, tensors): (&O, &attnscope_checkpoint::Tensors),
    spec: &RowSpec,
    resid: &O::Buffer,
    to: &mut O::Buffer,
) -> Result<()> {
    let host = ops.get(resid)?;
    let (d_model, width) = (spec.d_model, host.width);
    let streams: Vec<Vec<f32>> = (0..spec.n_streams())
        .map(|idx| columns(&host.values, width, idx * d_model, d_model))
        .collect();
    drop(host);
    let mean = match &spec.streams {
        Some(maps) => streams::end(maps, ops, tensors, &streams)?,
        None => streams.concat(),
    };
    ops.put(&mean, d_model, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_put_where_they_were_taken() {
        let mut rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let taken = columns(&rows, 3, 1, 2);
        assert_eq!(taken, [2.0, 3.0, 5.0, 6.0]);
        put_columns(&mut rows, 3, 0, &taken, 2);
        assert_eq!(rows, [2.0, 3.0, 3.0, 5.0, 6.0, 6.0]);
    }
}
