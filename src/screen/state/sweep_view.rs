//! The sweeps of the selected head and layer: the last ones, and those that are awaited.

use std::sync::Arc;

use attnscope_run::SweepPoint;
use attnscope_worker::{LayerSweepOf, SweepOf, Swept};

/// The last sweep, and the one that is awaited.
#[derive(Debug, Default)]
pub struct SweepView {
    pub swept: Option<(SweepOf, Arc<Swept>)>,
    pub awaited: Option<SweepOf>,
    /// Whether all heads of the layer are swept too.
    pub wants_layer: bool,
    pub layer: Option<(LayerSweepOf, Arc<Vec<SweepPoint>>)>,
    pub awaited_layer: Option<LayerSweepOf>,
}

impl SweepView {
    /// Drops what was computed, and what is awaited; what is wanted stays.
    pub fn forget(&mut self) {
        *self = Self {
            wants_layer: self.wants_layer,
            ..Self::default()
        };
    }
}
