//! Checks on the layers of a finished run, without probes.

use std::sync::Arc;

use attnscope_checks::stats::LayerReport;
use attnscope_checks::{Check, Thresholds, Verdict};
use attnscope_prompt::Lost;
use attnscope_run::{Outcome, judge_layers, unasked};
use attnscope_spec::Model;

/// Reason given for checks that need probes or weights.
const NO_PROBES: &str = "not run in a report: attnscope check does";

/// Returns every check's verdict on one finished run, at the default thresholds.
pub fn judge_run(
    model: &Model,
    layers: &[Arc<LayerReport>],
    outcome: &Outcome,
) -> Vec<(&'static Check, Verdict)> {
    let probes = unasked(NO_PROBES);
    judge_layers(
        model,
        layers,
        outcome,
        &probes,
        &Thresholds::in_force(),
        // Checks that need this are not run.
        Lost::default(),
    )
}
