//! Results for one layer: statistics per head and for the layer, and details for panels and checks.

use attnscope_compute::attention::{AttentionSpec, Audit, HeadSummary, LayerAudit};
use attnscope_compute::kernels::residual::Peak;
use attnscope_spec::{Place, Stack};

use super::{HeadType, Values};

/// Results for one head of one layer.
#[derive(Debug, Clone)]
pub struct HeadReport {
    pub stats: Values,
    pub summary: HeadSummary,
    /// The kind of place it looks at.
    pub kind: Option<HeadType>,
    /// Probability found on forbidden cells of a recorded pattern; `None` for attnscope's own runs.
    pub audit: Option<Box<Audit>>,
}

/// Two heads of a layer with nearly identical patterns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alike {
    pub heads: [usize; 2],
    /// Mean Jensen–Shannon divergence of sampled rows, in nats.
    pub divergence: f64,
}

/// The finished results for one layer.
#[derive(Debug, Clone)]
pub struct LayerReport {
    pub stack: Stack,
    pub layer_idx: usize,
    /// Its name if it has no layer number: a module path.
    pub name: Option<String>,
    /// The declared attention of the layer.
    pub spec: AttentionSpec,
    /// Rows may sum to less than 1, because a learned sink takes the rest.
    pub has_sinks: bool,
    pub stats: Values,
    pub heads: Vec<HeadReport>,
    /// Pairs of similar heads, the most similar first.
    pub alike: Vec<Alike>,
    /// The peak of the residual after the layer.
    pub peak: Option<Peak>,
}

impl LayerReport {
    /// The place of the layer.
    pub fn place(&self) -> Place {
        Place::layer(self.stack, self.layer_idx)
    }

    /// What a recording tells of the whole layer; `None` for a layer that attnscope ran itself.
    pub fn audit(&self) -> Option<&LayerAudit> {
        self.heads.first()?.audit.as_ref()?.of_layer.as_deref()
    }
}
