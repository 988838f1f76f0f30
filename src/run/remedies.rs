//! Tries changes on a head whose softmax is too sharp, and reports only those that improve the value in the finding.

use std::sync::Arc;

use attnscope_checks::collapse::times_inv_sqrt_d;
use attnscope_checks::stats::{LayerReport, relative_over_keys};
use attnscope_checks::{Check, Verdict};
use attnscope_compute::attention::{HeadSummary, Scale};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_forward::Input;
use attnscope_spec::{BlockSpec, Model, Place, SelfSpec, Stack};

use super::kept::Kept;
use super::rerun::head_with;
use super::what_if::Change;

/// Value that a finding is about, measured again on a changed head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Relative entropy, which should rise.
    Entropy,
    /// Share of saturated rows, which should fall.
    Saturated,
}

/// Temperatures to try, until one satisfies the threshold.
const TEMPERATURES: [f32; 6] = [2.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// Smaller changes are ignored.
const LEAST_CHANGE: f64 = 0.001;

impl Measure {
    /// Measure of a check's findings; `None` if no remedies are tried for it.
    pub fn of(check: &Check) -> Option<Self> {
        match check.id {
            "entropy-collapse" => Some(Self::Entropy),
            "softmax-saturation" => Some(Self::Saturated),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Entropy => "entropy",
            Self::Saturated => "share of saturated rows",
        }
    }

    fn measured(self, head: &HeadSummary, has_sink: bool) -> f64 {
        match self {
            Self::Entropy => relative_over_keys(head, has_sink),
            Self::Saturated => attnscope_checks::stats::saturated_share(head),
        }
    }

    fn is_better(self, now: f64, then: f64) -> bool {
        let gain = match self {
            Self::Entropy => then - now,
            Self::Saturated => now - then,
        };
        gain >= LEAST_CHANGE
    }

    /// Whether a value is on the good side of the finding's threshold.
    fn is_fine(self, value: f64, threshold: f64) -> bool {
        match self {
            Self::Entropy => value >= threshold,
            Self::Saturated => value <= threshold,
        }
    }
}

/// Adds to each finding of a head how other scales would change its value.
///
/// # Errors
/// When a head cannot be rerun.
pub(super) fn add_remedies<O: Ops>(
    ops: &O,
    model: &Model,
    (input, kept, layers): (&Input, &Kept, &[Arc<LayerReport>]),
    measure: Measure,
    verdict: &mut Verdict,
) -> Result<()> {
    for finding in &mut verdict.findings {
        let Place {
            layer_idx,
            head_idx,
            ..
        } = finding.place;
        let stack = finding.place.grid();
        let (Some(layer_idx), Some(head_idx)) = (layer_idx, head_idx) else {
            continue;
        };
        if stack == Stack::Cross {
            continue;
        }
        let block = model.spec.stack_of(stack).blocks().get(layer_idx);
        let Some(own) = block.and_then(BlockSpec::own) else {
            continue;
        };
        let of_layer =
            |layer: &&Arc<LayerReport>| (layer.stack, layer.layer_idx) == (stack, layer_idx);
        let has_sink = layers
            .iter()
            .find(of_layer)
            .is_some_and(|layer| layer.has_sinks);
        let place = (stack, layer_idx, head_idx);
        let with = |changes: &[Change]| -> Result<Option<f64>> {
            let head = head_with(ops, model, input, kept, place, changes)?;
            Ok(head.map(|head| measure.measured(&head, has_sink)))
        };
        let (now, threshold) = (finding.value, finding.threshold);
        let mut said = Vec::new();
        for (name, changes) in others(own) {
            let then = with(&changes)?.filter(|then| measure.is_better(now, *then));
            said.extend(then.map(|then| format!("{:.1} % with {name}", 100.0 * then)));
        }
        for temperature in TEMPERATURES {
            let Some(then) = with(&[Change::Temperature(temperature)])? else {
                break;
            };
            let is_fine = measure.is_fine(then, threshold);
            // Report the first temperature, and a higher one only if it is the first that suffices.
            if measure.is_better(now, then) && (temperature == TEMPERATURES[0] || is_fine) {
                said.push(format!(
                    "{:.1} % with temperature {temperature}",
                    100.0 * then
                ));
            }
            if is_fine {
                break;
            }
        }
        if said.is_empty() {
            continue;
        }
        finding.advice = format!(
            "{}; its {} would go from {:.1} % to {}",
            finding.advice,
            measure.name(),
            100.0 * now,
            said.join(", ")
        );
    }
    Ok(())
}

/// Changes other than a temperature, by name, except those that the layer already has.
fn others(own: &SelfSpec) -> Vec<(&'static str, Vec<Change>)> {
    let mut others = Vec::new();
    if times_inv_sqrt_d(&own.attention) > 1.0 + 1e-6 {
        others.push(("1/√d", vec![Change::Scale(Scale::InvSqrtD)]));
    }
    if own.projections.q_norm.is_none() {
        let changes = [Change::QkNorm(true), Change::Scale(Scale::InvSqrtD)];
        others.push(("QK-norm", changes.to_vec()));
    }
    others
}
