//! What a query gives to each key in every head, as far as it was asked of the worker.

use std::sync::Arc;

use attnscope_worker::{QueryRows, RowsQuery};

use super::runs::Shows;

/// The rows of the selected query, as far as they were asked for.
#[derive(Debug, Default)]
pub struct RowsView {
    /// What was asked of A and of B last.
    pub asked: [Option<RowsQuery>; 2],
    /// What came of it.
    pub rows: [Option<(RowsQuery, Arc<QueryRows>)>; 2],
}

/// Where what is of a side stands.
pub fn nth(side: Shows) -> usize {
    usize::from(side != Shows::A)
}
