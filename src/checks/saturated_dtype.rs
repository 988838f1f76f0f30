//! Weights lie at the end of what their element type holds.
//!
//! ## What it does
//! Counts weights that are infinite, or equal to the largest finite number of f16 or bf16 where they are stored as such.
//!
//! ## Why it matters
//! Values that were too large for the type were clipped or became infinite when they were saved: the weights are not those that
//! were trained.
//!
//! ## How it is measured
//! |w| is 65504 in f16, 3.39e38 in bf16, or infinite in any type, in a tensor that the model reads.
//!
//! ## False alarms
//! Tables of masks hold such numbers by design, and are not read as weights. Eight-bit and quantised weights reach the end of
//! their type on purpose, since their scales are made so: they are not judged.
//!
//! ## Example
//! A T5 checkpoint saved in f16: two columns of `wo.weight` are 65504.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::weights_seen::SaturatedTensor;
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "saturated-dtype",
    severity: Severity::Warning,
    needs: Needs::Weights,
    source: include_str!("saturated_dtype.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let weights = match evidence.weights() {
        Ok(weights) => weights,
        Err(verdict) => return verdict,
    };
    let finding = |tensor: &SaturatedTensor| {
        let mut counts = Vec::new();
        if tensor.n_largest > 0 {
            counts.push(format!("{} at ±{:.4e}", tensor.n_largest, tensor.largest));
        }
        if tensor.n_infinite > 0 {
            counts.push(format!("{} infinite", tensor.n_infinite));
        }
        Finding {
            check: CHECK.id,
            severity: Severity::Warning,
            place: tensor.place,
            value: (tensor.n_largest + tensor.n_infinite) as f64,
            threshold: 0.0,
            unit: "values",
            evidence: format!(
                "{} in {}: of {} values {}",
                tensor.tensor,
                tensor.dtype,
                tensor.n_values,
                counts.join(", ")
            ),
            advice: "save the weights in bf16 or f32 again, from a copy that was not clipped"
                .to_owned(),
        }
    };
    let findings = weights.saturated.iter().map(finding).collect();
    Verdict::of(findings, "no weight lies at the end of its element type")
}
