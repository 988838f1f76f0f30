//! What a run shows by itself: every check on its layers, without probes.

use std::sync::Arc;

use attnscope_checks::stats::LayerReport;
use attnscope_checks::{Check, Thresholds, Verdict};
use attnscope_prompt::TokenizerLoss;
use attnscope_run::{Outcome, judge_layers, unasked};
use attnscope_spec::Model;

/// Why checks that change prompts or look at weights say nothing.
const NO_PROBES: &str = "a report runs the prompts as they are";

/// Every check's verdict on one finished run.
pub fn judge_run(
    model: &Model,
    layers: &[Arc<LayerReport>],
    outcome: &Outcome,
    thresholds: &Thresholds,
) -> Vec<(&'static Check, Verdict)> {
    let probes = unasked(NO_PROBES);
    judge_layers(
        model,
        layers,
        outcome,
        &probes,
        thresholds,
        // Checks that would want to know are not run.
        TokenizerLoss::default(),
    )
}
