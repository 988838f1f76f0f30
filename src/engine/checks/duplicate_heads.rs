//! Two heads of a layer do the same.
//!
//! ## What it does
//! Compares the patterns of every two heads of a layer by the Jensen–Shannon divergence of their rows.
//!
//! ## Why it matters
//! Copies waste capacity; two heads that agree to many digits often share weights by accident (a wrong reshape, a copied slice).
//!
//! ## How it is measured
//! Mean over up to 8 rows, evenly spread, of the divergence in nats (0 to ln 2; Clark et al. 2019 compare heads so); threshold
//! 1e-3 (ours).
//!
//! ## False alarms
//! Heads that attend to everything alike, and heads that give almost all to the same single key, agree without being copies:
//! pairs of such heads are left out.
//!
//! ## Example
//! Two heads whose slices of W_Q and W_K are equal.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::place::Place;

pub static CHECK: Check = Check {
    id: "duplicate-heads",
    severity: Severity::Warning,
    needs: Needs::Pattern,
    source: include_str!("duplicate_heads.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let most = thresholds.of("duplicate-heads.divergence");
    let even = thresholds.of("duplicate-heads.relative_entropy");
    let by_design = thresholds.of("entropy-collapse.by_design");
    let mut findings = Vec::new();
    let n_distributions = |layer: &&std::sync::Arc<crate::stats::LayerReport>| {
        let heads = layer.heads.iter();
        heads
            .filter(|head| evidence.has_distributions(layer, head))
            .count()
    };
    let n_compared = evidence
        .layers
        .iter()
        .filter(|layer| n_distributions(layer) > 1)
        .count();
    for layer in evidence.layers {
        let is_telling = |head_idx: usize| {
            let head = &layer.heads[head_idx];
            let of = |id: &str| head.stats.of(id);
            let places = ["first_key_mass", "previous_mass", "diagonal_mass"];
            let is_plain = places.iter().any(|id| of(id) >= by_design);
            of("entropy_relative") < even && !is_plain && evidence.has_distributions(layer, head)
        };
        for pair in &layer.alike {
            let [first, second] = pair.heads;
            if pair.divergence > most || !is_telling(first) || !is_telling(second) {
                continue;
            }
            findings.push(Finding {
                check: CHECK.id,
                severity: Severity::Warning,
                place: Place::of(layer).head(second),
                value: pair.divergence,
                threshold: most,
                unit: "nats",
                evidence: format!("heads {first} and {second} have the same rows: divergence {:.2e} nats", pair.divergence),
                advice: "compare their slices of W_Q and W_K; equal slices point at a reshape or a copy, unequal ones at wasted capacity".to_owned(),
            });
        }
    }
    match n_compared {
        0 => Verdict::not_applicable("no layer has two heads whose rows are distributions"),
        _ => Verdict::of(findings, "no two heads of a layer do the same"),
    }
}
