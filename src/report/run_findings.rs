//! What a run shows by itself: every check on its layers, without probes.

use std::sync::Arc;

use crate::analysis::Outcome;
use crate::checks::{self, Check, Evidence, Place, Probes, Subject, Thresholds, Verdict};
use crate::model::Model;
use crate::stats::LayerReport;

/// Rows of our own runs are sums of f32.
const ROW_TOLERANCE: f64 = 1e-5;
/// Why checks that change prompts say nothing.
const NO_PROBES: &str = "not run in a report: attnscope check does";

/// Every check's verdict on one finished run, at the default thresholds.
pub(super) fn judge_run(
    model: &Model,
    layers: &[Arc<LayerReport>],
    outcome: &Outcome,
) -> Vec<(&'static Check, Verdict)> {
    let probes = Probes::none(NO_PROBES);
    let largest = layers.iter().map(|layer| layer.stats.of("resid_max_abs"));
    let largest = largest.fold(0.0, f64::max);
    let is_f16 = model.checkpoint.dtype_label() == "f16";
    let first_nonfinite = outcome.nonfinite.as_ref().map(|found| {
        let n_layers = model.spec.stack_of(found.stack).blocks.len();
        let place = match found.layer_idx < n_layers {
            true => Place::layer(found.stack, found.layer_idx),
            // After the last layer: the head.
            false => Place::MODEL,
        };
        (place.query(found.position_idx), found.to_string())
    });
    let evidence = Evidence {
        subject: Subject::Checkpoint,
        layers,
        row_tolerance: ROW_TOLERANCE,
        first_nonfinite,
        narrow_dtype: is_f16.then_some(("f16", largest)),
        lacks: None,
        probes: &probes,
    };
    checks::judge(&evidence, &Thresholds::default())
}
