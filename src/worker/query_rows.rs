//! Attention from one query to each key, in every head; requested when heads are sorted by it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use attnscope_compute::error::Result;
use attnscope_run::{HeadDetail, HeadQuery, part_detail};
use attnscope_spec::Stack;

use super::run_id::RunId;

/// A head: its attention's stack, layer, and index in the layer.
pub type HeadAt = (Stack, usize, usize);

/// One row of each head's pattern.
pub type QueryRows = BTreeMap<HeadAt, Vec<f32>>;

/// Request for one query's row of each listed head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsQuery {
    pub run: RunId,
    pub query_idx: usize,
    pub heads: Vec<HeadAt>,
}

/// Computes the heads one after another and takes the row from each. `detail` returns `None` if the run keeps no data for a head.
///
/// # Errors
/// When a head cannot be computed, or the work was stopped.
pub(super) fn query_rows(
    query: &RowsQuery,
    mut detail: impl FnMut(HeadQuery) -> Option<Result<HeadDetail>>,
) -> Option<Result<Arc<QueryRows>>> {
    let mut rows = QueryRows::new();
    for at in &query.heads {
        let (stack, layer_idx, head_idx) = *at;
        let head = HeadQuery {
            stack,
            layer_idx,
            head_idx,
            hides_first_key: false,
            weighs_values: false,
        };
        match detail(head)? {
            Ok(detail) => {
                rows.insert(*at, row(&detail, head, query.query_idx));
            }
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(Arc::new(rows)))
}

/// Returns one row of a head; empty if the head does not have the query, or if the row of a pooled map cannot be computed alone.
fn row(detail: &HeadDetail, head: HeadQuery, query_idx: usize) -> Vec<f32> {
    if query_idx >= detail.n_queries {
        return Vec::new();
    }
    let of = |cells: &[f32], range: Range<usize>| cells.get(range).unwrap_or_default().to_vec();
    let n = detail.n_keys;
    match &detail.rows {
        _ if detail.pooling() == 1 => {
            let cells = &detail.pattern.finest().cells;
            of(cells, query_idx * n..(query_idx + 1) * n)
        }
        Some(rows) => {
            let part = part_detail(rows, head, query_idx..query_idx + 1, 0..n);
            of(&part.pattern.finest().cells, 0..n)
        }
        None => Vec::new(),
    }
}
