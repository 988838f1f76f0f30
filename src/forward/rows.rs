//! Layout of a row between blocks where it is more than one residual: further streams, then the keys and values that one layer
//! leaves for later ones. A run can resume from a layer's rows, without the layers before it.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::{BlockRow, BlockSpec, KeptStart, RowSpec, StreamEnds};

use super::context::BlockContext;
use super::hyper::{self, OpenStreams};
use super::last_mixer::beside;
use super::streams;

/// Writes some columns of rows. // rows: [row, width]; from: [row, n]
pub(super) fn put_columns(rows: &mut [f32], width: usize, first: usize, from: &[f32], n: usize) {
    let pairs = rows.chunks_mut(width.max(1)).zip(from.chunks(n.max(1)));
    pairs.for_each(|(row, from)| row[first..first + n].copy_from_slice(from));
}

/// A row split into residual streams and the values kept beside them.
pub(super) struct SplitRow {
    /// [row, n_streams · d_model]
    pub streams: Vec<f32>,
    /// [row, n_kept]
    pub kept: Vec<f32>,
}

impl SplitRow {
    /// Splits rows, as the block reads them.
    pub fn of<O: Ops>(ops: &O, row: &BlockRow, resid: &O::Buffer) -> Result<Self> {
        let host = ops.get(resid)?;
        let n = row.n_streams() * row.d_model;
        let mut apart = Self {
            streams: columns(&host.values, host.width, 0, n),
            kept: columns(&host.values, host.width, n, row.n_kept),
        };
        if let Some(join) = row.join {
            join.apply(&mut apart.streams, &mut apart.kept);
        }
        Ok(apart)
    }

    /// Returns the stream that the block works on. // [row, d_model]
    pub fn main(&self, row: &BlockRow) -> Vec<f32> {
        let n = row.n_streams() * row.d_model;
        columns(&self.streams, n, row.active() * row.d_model, row.d_model)
    }

    pub fn put_main(&mut self, row: &BlockRow, main: &[f32]) {
        let n = row.n_streams() * row.d_model;
        let first = row.active() * row.d_model;
        put_columns(&mut self.streams, n, first, main, row.d_model);
    }
}

/// Returns the input of a block's attention and the kept values of its rows, to run single heads; `None` if a row is the
/// residual.
pub(super) fn read_of<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &BlockSpec,
    resid: &O::Buffer,
) -> Result<Option<(O::Buffer, Vec<f32>)>> {
    let Some(row) = spec.row.as_deref() else {
        return Ok(None);
    };
    let apart = SplitRow::of(context.ops, row, resid)?;
    let mut main = O::Buffer::default();
    if let Some(hyper) = row.connected() {
        let (of_attention, sizes) = (&hyper.branches[0], (hyper.n, row.d_model));
        OpenStreams::read(of_attention, context, sizes, apart.streams, &mut main)?;
        return Ok(Some((main, apart.kept)));
    }
    context.ops.put(&apart.main(row), row.d_model, &mut main)?;
    if let Some(wide) = beside(context.ops, Some(row), &main, &apart.kept)? {
        return Ok(Some((wide, apart.kept)));
    }
    if let Some(streams) = row.predicted() {
        let predicted = streams::predict(streams, context, &apart.streams, &main)?;
        let first = streams.active * row.d_model;
        let read = columns(&predicted, streams.n * row.d_model, first, row.d_model);
        context.ops.put(&read, row.d_model, &mut main)?;
    }
    Ok(Some((main, apart.kept)))
}

/// Widens an embedding to the width of rows, with a second stream where they have one. // resid: [row, d_model]; side: [row, n_kept]
pub(super) fn begin<O: Ops>(
    (ops, tensors): (&O, &attnscope_checkpoint::Tensors),
    spec: &RowSpec,
    side: &[f32],
    resid: &mut O::Buffer,
) -> Result<()> {
    let first = ops.get(resid)?.values.into_owned();
    let others = match &spec.streams {
        Some(StreamEnds::Mapped(maps)) => streams::begin(maps, ops, tensors, resid, &first)?,
        Some(StreamEnds::Copied { n, .. }) => vec![first.clone(); n - 1],
        None => Vec::new(),
    };
    let (d_model, width) = (spec.d_model, spec.width());
    let n_rows = match spec.first {
        KeptStart::Rows => first.len() / spec.n_kept.max(1),
        _ => first.len() / d_model.max(1),
    };
    let mut rows = vec![0.0; n_rows * width];
    let streams = std::iter::once(&first).chain(&others);
    let streams = streams.filter(|_| spec.first != KeptStart::Rows);
    for (stream_idx, stream) in streams.enumerate() {
        put_columns(&mut rows, width, stream_idx * d_model, stream, d_model);
    }
    let at = spec.n_streams() * d_model;
    match &spec.first {
        KeptStart::Nothing => {}
        KeptStart::Embedding => put_columns(&mut rows, width, at, &first, d_model),
        KeptStart::Rows => put_columns(&mut rows, width, at, &first, spec.n_kept),
        KeptStart::Side(_) => put_columns(&mut rows, width, at, side, spec.n_kept),
    }
    ops.put(&rows, width, resid)
}

/// Reduces rows to one residual after the last block. // rows: [row, width] → [row, d_model]
pub(super) fn end<O: Ops>(
    (ops, tensors): (&O, &attnscope_checkpoint::Tensors),
    spec: &RowSpec,
    resid: &O::Buffer,
    to: &mut O::Buffer,
) -> Result<()> {
    let host = ops.get(resid)?;
    let (d_model, width) = (spec.d_model, host.width);
    let n = spec.n_streams();
    let one = match &spec.streams {
        Some(StreamEnds::Mapped(maps)) => {
            let stream = |idx| columns(&host.values, width, idx * d_model, d_model);
            let all: Vec<Vec<f32>> = (0..n).map(stream).collect();
            streams::end(maps, ops, tensors, &all)?
        }
        Some(StreamEnds::Copied { fold, .. }) => {
            let all = columns(&host.values, width, 0, n * d_model);
            hyper::fold(fold, (ops, tensors, &|| false), (n, d_model), &all)?
        }
        None => columns(&host.values, width, 0, d_model),
    };
    drop(host);
    ops.put(&one, d_model, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_and_written_at_their_place() {
        let mut rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let taken = columns(&rows, 3, 1, 2);
        assert_eq!(taken, [2.0, 3.0, 5.0, 6.0]);
        put_columns(&mut rows, 3, 0, &taken, 2);
        assert_eq!(rows, [2.0, 3.0, 3.0, 5.0, 6.0, 6.0]);
    }
}
