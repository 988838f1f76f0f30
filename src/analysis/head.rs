//! One head at full resolution, run again from a kept layer input: for the head on screen.

use std::sync::Mutex;
use std::sync::PoisonError;

use super::kept::Kept;
use crate::attention::{BlockSink, Pooled};
use crate::error::{Error, Result};
use crate::model::{BlockWeights, Model, NoHooks, Scratch, Sequence, attend_heads, run_block};
use crate::ops::Ops;

/// Cells of a detail on one side at most. Longer sequences are pooled by their maximum, and say so.
pub const FULL_CELLS: usize = 4096;

/// Scores and pattern of one head.
#[derive(Debug, Clone)]
pub struct HeadDetail {
    pub layer_idx: usize,
    pub head_idx: usize,
    pub n_queries: usize,
    pub n_keys: usize,
    /// −inf where masked; by cells. // [query, key]
    pub scores: Pooled,
    /// 0 where masked; by cells. // [query, key]
    pub pattern: Pooled,
}

impl HeadDetail {
    /// Queries and keys per cell: 1 unless the sequence is longer than [`FULL_CELLS`].
    pub fn pooling(&self) -> usize {
        self.pattern.queries_per_cell.max(self.pattern.keys_per_cell)
    }
}

/// Runs one head again and keeps all of it.
///
/// # Errors
/// When nothing was kept to start from, a tensor is not as the spec says, or `stop` says so.
pub fn head_detail<O: Ops>(
    ops: &O,
    model: &Model,
    sequence: &Sequence,
    kept: &Kept,
    layer_idx: usize,
    head_idx: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<HeadDetail> {
    let Some((from_layer, input)) = kept.nearest(layer_idx) else {
        return Err(Error::Prompt("this layer has not run yet".to_owned()));
    };
    let tensors = &model.checkpoint.tensors;
    let blocks = &model.spec.main_stack().blocks;
    let mut resid = O::Buffer::default();
    ops.put(&input, model.spec.d_model, &mut resid)?; // [position, d_model]
    let mut scratch = Scratch::<O>::default();
    for spec in &blocks[from_layer..layer_idx] {
        let weights = BlockWeights::read(ops, tensors, spec)?;
        run_block(ops, spec, &weights, sequence, &mut resid, &mut scratch, &mut NoHooks, stop)?;
    }
    let (n_queries, n_keys) = (sequence.len(), sequence.len());
    let empty = Pooled::with_cells(n_queries, n_keys, FULL_CELLS);
    let mut scores = empty.clone();
    scores.cells.fill(f32::NEG_INFINITY);
    let sink = Collect { n_keys, held: Mutex::new((scores, empty)) };
    let heads = head_idx..head_idx + 1;
    attend_heads(ops, tensors, &blocks[layer_idx], sequence, &resid, heads, &sink, stop)?;
    let (scores, pattern) = sink.held.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(HeadDetail { layer_idx, head_idx, n_queries, n_keys, scores, pattern })
}

/// Collects the blocks of one head.
struct Collect {
    n_keys: usize,
    held: Mutex<(Pooled, Pooled)>,
}

impl BlockSink for Collect {
    fn block(&self, _: usize, first_query: usize, scores: &[f32], pattern: &[f32]) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = scores.chunks(self.n_keys).zip(pattern.chunks(self.n_keys));
        for (query_idx, (scores, pattern)) in (first_query..).zip(rows) {
            held.0.add_row(query_idx, scores);
            held.1.add_row(query_idx, pattern);
        }
    }
}
