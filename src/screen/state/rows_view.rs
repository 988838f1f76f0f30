//! Attention from the selected query to each key, in every head, as requested from the worker.

use std::sync::Arc;

use attnscope_worker::{QueryRows, RowsQuery};

use super::runs::Shows;

/// Rows of the selected query, requested and received.
#[derive(Debug, Default)]
pub struct RowsView {
    /// The last requests for A and B.
    pub asked: [Option<RowsQuery>; 2],
    /// The last results for A and B.
    pub rows: [Option<(RowsQuery, Arc<QueryRows>)>; 2],
}

/// Index of a side in these arrays.
pub fn nth(side: Shows) -> usize {
    usize::from(side != Shows::A)
}
