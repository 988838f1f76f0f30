//! Experts of attention, as data: each token chooses the queries and the output map of its heads.

use super::feed_forward::RouterRule;
use super::source::LinearSource;

/// Experts of attention (Zhang et al. 2022, arXiv 2210.05144). Each token chooses a few, of which each makes the queries of as many heads
/// as there are keys, and maps what these heads give. Heads come in groups, that of the expert with the largest weight first.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadExperts {
    pub router: LinearSource,
    pub rule: RouterRule,
    /// Of each expert. // d_model → heads of a group · d_head
    pub q: Vec<LinearSource>,
    /// Of each expert; its weight multiplies the output. // heads of a group · d_value → d_model
    pub o: Vec<LinearSource>,
}
