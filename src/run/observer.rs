//! Observers that follow a run and can stop it.

use std::ops::ControlFlow;
use std::sync::Arc;

use attnscope_checks::stats::LayerReport;
use attnscope_spec::Stack;

use super::first_nonfinite::NonFinite;
use super::kept::Kept;

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Embedding,
    /// This layer is running now, after `n_done` others.
    Layer {
        stack: Stack,
        layer_idx: usize,
        n_done: usize,
    },
    Predictions,
}

/// Receives the progress and results of a run, and can stop it.
pub trait Observer {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()>;
    fn layer(&mut self, report: LayerReport) -> ControlFlow<()>;
    /// Called once, before the first layer, with the store of kept layer inputs.
    fn keeping(&mut self, _: &Arc<Kept>) {}
    /// Called once, at the first NaN or infinity.
    fn nonfinite(&mut self, _: &NonFinite) {}
}

/// Ignores everything and never stops a run.
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

/// Collects every layer's report and never stops a run.
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
