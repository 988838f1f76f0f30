//! Two layers have equal weights.
//!
//! ## What it does
//! Compares the matrices of every two layers of a stack.
//!
//! ## Why it matters
//! Training makes layers differ from the first step on. Equal ones come from a loop that copies one layer, from a loading error
//! that gives several layers the weights of one, or from a merge that repeats layers.
//!
//! ## How it is measured
//! All matrices of the attention, or all of the feed-forward part, hold the same numbers, bit by bit. Matrices that are 0
//! throughout are left to `zero-weights`.
//!
//! ## False alarms
//! Layers that share their weights by design (ALBERT, universal transformers) are stored once, or share one place in the file:
//! they are not compared. Models made by repeating layers of another (depth up-scaling, "frankenmerges") are named rightly.
//!
//! ## Example
//! `layers = [layer] * 12`, saved and loaded: every layer is layer 0.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::weights_seen::LayerCopy;
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "copied-layer",
    severity: Severity::Warning,
    needs: Needs::Weights,
    source: include_str!("copied_layer.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let weights = match evidence.weights() {
        Ok(weights) => weights,
        Err(verdict) => return verdict,
    };
    let finding = |copy: &LayerCopy| {
        let what = if copy.is_whole {
            "all its matrices equal"
        } else {
            "matrices equal"
        };
        Finding {
            check: CHECK.id,
            severity: Severity::Warning,
            place: copy.place,
            value: copy.tensors.len() as f64,
            threshold: 0.0,
            unit: "tensors",
            evidence: format!("{what} those of {}: {}", copy.of, listed(&copy.tensors)),
            advice: "look for a layer that was put into the model several times, or a loading loop that reads one layer for all; a merge that repeats layers is fine".to_owned(),
        }
    };
    if weights.layers.len() < 2 {
        return Verdict::not_applicable("there are no two layers to compare");
    }
    let findings = weights.copies.iter().map(finding).collect();
    Verdict::of(findings, "no two layers have equal matrices")
}

/// Lists a few names, and how many more there are.
pub(super) fn listed(names: &[String]) -> String {
    const MOST: usize = 3;
    let shown = names
        .iter()
        .take(MOST)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(MOST) {
        0 => shown,
        n => format!("{shown} and {n} more"),
    }
}
