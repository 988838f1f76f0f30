//! What one layer told: statistics per head and for the layer, and what panels and checks look at beside them.

use attnscope_compute::attention::{AttentionSpec, Audit, HeadSummary};
use attnscope_compute::kernels::residual::Peak;
use attnscope_spec::{Place, Stack};

use super::{HeadType, Values};

/// One head of one layer.
#[derive(Debug, Clone)]
pub struct HeadReport {
    pub stats: Values,
    pub summary: HeadSummary,
    /// What kind of place it looks at.
    pub kind: Option<HeadType>,
    /// What a pattern that somebody else computed holds where it should hold nothing; our own runs have none.
    pub audit: Option<Box<Audit>>,
}

/// Two heads of a layer whose patterns are nearly the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alike {
    pub heads: [usize; 2],
    /// Mean Jensen–Shannon divergence of sampled rows, in nats.
    pub divergence: f64,
}

/// One layer, finished.
#[derive(Debug, Clone)]
pub struct LayerReport {
    pub stack: Stack,
    pub layer_idx: usize,
    /// What it is called where it has no number of its own: a module's path.
    pub name: Option<String>,
    /// What the layer is declared to be.
    pub spec: AttentionSpec,
    /// Rows may sum to less than 1: a learned sink takes the rest.
    pub has_sinks: bool,
    pub stats: Values,
    pub heads: Vec<HeadReport>,
    /// Pairs of heads that look alike, the nearest first.
    pub alike: Vec<Alike>,
    /// Of the residual after the layer.
    pub peak: Option<Peak>,
}

impl LayerReport {
    /// Where it is.
    pub fn place(&self) -> Place {
        Place::layer(self.stack, self.layer_idx)
    }
}
