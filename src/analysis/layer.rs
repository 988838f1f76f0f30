//! What one layer told: statistics per head and for the layer, and what panels draw from.

use crate::attention::HeadSummary;
use crate::model::Stack;
use crate::stats::Values;

/// One head of one layer.
#[derive(Debug, Clone)]
pub struct HeadReport {
    pub stats: Values,
    pub summary: HeadSummary,
}

/// One layer, finished.
#[derive(Debug, Clone)]
pub struct LayerReport {
    pub stack: Stack,
    pub layer_idx: usize,
    pub stats: Values,
    pub heads: Vec<HeadReport>,
}
