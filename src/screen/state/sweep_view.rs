//! Sweeps of the selected head and layer: the last results and the pending requests.

use std::sync::Arc;

use attnscope_run::SweepPoint;
use attnscope_worker::{LayerSweepOf, SweepOf, Swept};

/// The last sweeps and the pending requests.
#[derive(Debug, Default)]
pub struct SweepView {
    pub swept: Option<(SweepOf, Arc<Swept>)>,
    pub awaited: Option<SweepOf>,
    /// Whether to sweep all heads of the layer too.
    pub wants_layer: bool,
    pub layer: Option<(LayerSweepOf, Arc<Vec<SweepPoint>>)>,
    pub awaited_layer: Option<LayerSweepOf>,
}

impl SweepView {
    /// Drops results and pending requests; keeps what the user chose to see.
    pub fn forget(&mut self) {
        *self = Self {
            wants_layer: self.wants_layer,
            ..Self::default()
        };
    }
}
