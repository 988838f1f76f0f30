//! A head writes nothing.
//!
//! ## What it does
//! Compares what each head adds to the residual with the median head of its layer.
//!
//! ## Why it matters
//! A head whose output is zero costs time and memory and does nothing: its value or output weights died, or it was pruned.
//!
//! ## How it is measured
//! Mean over real positions of ‖W_O z‖ of the head alone, divided by the median of the layer's heads; threshold 1e-3 (ours).
//!
//! ## False alarms
//! A head that is silent on this prompt may speak on another: give several prompts. Layers with one head are not judged.
//!
//! ## Example
//! A head whose rows of W_O are zero.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::stats::Stat;

pub static CHECK: Check = Check {
    id: "dead-head",
    severity: Severity::Warning,
    needs: Needs::Residual,
    source: include_str!("dead_head.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let least = thresholds.dead_head.share_of_median;
    let (mut findings, mut n_judged) = (Vec::new(), 0);
    for layer in evidence.layers {
        let norms: Vec<f64> = layer
            .heads
            .iter()
            .map(|head| head.stats.of(Stat::HeadOutputNorm))
            .collect();
        if norms.len() < 2 || norms.iter().any(|norm| norm.is_nan()) {
            continue;
        }
        n_judged += norms.len();
        let mut sorted = norms.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        for (head_idx, norm) in norms.iter().enumerate() {
            // If most heads are dead, the median is 0 too, and the others count as alive.
            let share = if median == 0.0 && *norm == 0.0 {
                0.0
            } else {
                norm / median
            };
            if share < least {
                findings.push(Finding {
                    check: CHECK.id,
                    severity: Severity::Warning,
                    place: layer.place().head(head_idx),
                    value: share,
                    threshold: least,
                    unit: "of the median head",
                    evidence: format!("adds {norm:.2e} to the residual, the layer's median head {median:.2e}"),
                    advice: "look at this head's W_V and W_O for zeros; a dead head can be pruned, or initialised again".to_owned(),
                });
            }
        }
    }
    match n_judged {
        0 => Verdict::not_applicable("there are no head outputs to compare"),
        _ => Verdict::of(findings, "every head writes"),
    }
}
