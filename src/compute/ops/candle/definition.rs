//! The reference path on the host for a row block with a NaN or an infinity.
//!
//! A device's maximum may ignore a NaN, so such blocks are recomputed on the host; broken models are slow, but not hidden.

use candle_core::{Result, Tensor};
use rayon::prelude::*;

use super::buffer::host;
use super::finished::Finished;
use super::group::Group;
use super::scores::Block;
use crate::attention::{HeadMath, LogSums, RowSummary, SoftmaxAxis, finish_row};

/// Computes scores, pattern and summaries of a block from q·k. // products: [head, row, key]
pub(super) fn finish(
    group: &Group<'_>,
    block: &Block,
    products: &Tensor,
    columns: Option<&Tensor>,
) -> Result<Finished> {
    let (run, n_rows, n_keys) = (group.run, block.n_rows(), block.n_keys);
    let columns = match columns {
        Some(columns) => Some(host(columns)?), // [head, key], or [row, key] for a softmax over heads
        None => None,
    };
    let mut scores = host(products)?;
    let mut pattern = vec![0.0; scores.len()];
    let both = scores
        .par_chunks_mut(n_keys)
        .zip(pattern.par_chunks_mut(n_keys));
    let row = |(nth, (scores, pattern)): (usize, (&mut [f32], &mut [f32]))| -> RowSummary {
        let (idx, query_idx) = (nth / n_rows, block.queries.start + nth % n_rows);
        let head_idx = group.together.heads.start + idx;
        let math = HeadMath {
            spec: run.spec,
            head_idx,
            visibility: run.visibility,
            sink: run.sinks.map(|sinks| sinks[head_idx]),
            k_norms: &group.k_norms[group.kv_of(idx)],
            value_norms: run.value_norms_of(head_idx),
            log_sums: columns.as_ref().map(|all| match run.spec.softmax_axis {
                SoftmaxAxis::Heads => LogSums::OverHeads {
                    values: all,
                    width: n_keys,
                    first_query: block.queries.start,
                },
                SoftmaxAxis::Keys | SoftmaxAxis::Queries => {
                    LogSums::OverQueries(&all[idx * n_keys..][..n_keys])
                }
            }),
            positions: run.positions,
            learned: &group.learned[idx],
        };
        let q_norm = group.q_norms[idx * run.visibility.n_queries + query_idx];
        let mut summary = finish_row(&math, query_idx, q_norm, scores, pattern);
        if let Some(repeats) = run.repeats
            && repeats.before(query_idx).next().is_some()
        {
            (summary.duplicate_mass, summary.induction_mass) =
                repeats.masses(query_idx, |key_idx| pattern[key_idx]);
        }
        summary
    };
    let rows = both.enumerate().map(row).collect();
    let shape = products.shape();
    Ok(Finished {
        scores: Some(Tensor::from_vec(scores, shape, products.device())?),
        pattern: Tensor::from_slice(&pattern, shape, products.device())?,
        rows,
        on_host: Some(pattern),
    })
}
