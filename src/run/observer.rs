//! Who hears of a run as it goes, and can stop it.

use std::ops::ControlFlow;
use std::sync::Arc;

use attnscope_checks::stats::LayerReport;
use attnscope_spec::Stack;

use super::first_nonfinite::NonFinite;
use super::kept::Kept;

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Embedding,
    /// This layer runs now, after so many others.
    Layer {
        stack: Stack,
        layer_idx: usize,
        n_done: usize,
    },
    Predictions,
}

/// Hears of a run as it goes, and can stop it.
pub trait Observer {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()>;
    fn layer(&mut self, report: LayerReport) -> ControlFlow<()>;
    /// Called once, before the first layer, with where layer inputs will be kept.
    fn keeping(&mut self, _: &Arc<Kept>) {}
    /// Called once, when the first NaN or infinity appears.
    fn nonfinite(&mut self, _: &NonFinite) {}
}

/// Hears of nothing and stops nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, _: LayerReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Keeps every layer's report and stops nothing.
#[derive(Debug, Clone, Default)]
pub struct Layers(pub Vec<LayerReport>);

impl Observer for Layers {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        self.0.push(report);
        ControlFlow::Continue(())
    }
}
