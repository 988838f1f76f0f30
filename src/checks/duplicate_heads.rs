//! Two heads of a layer do the same.
//!
//! ## What it does
//! Compares the patterns of every two heads of a layer by the Jensen–Shannon divergence of their rows.
//!
//! ## Why it matters
//! Copies waste capacity; two heads that agree to many digits often share weights by accident (a wrong reshape, a copied slice).
//!
//! ## How it is measured
//! Mean over 8 rows, evenly spread, of the divergence in nats (0 to ln 2; Clark et al. 2019 compare heads so); threshold 1e-3
//! (ours). Heads are not compared on fewer rows. With a learned sink, what the sink leaves of each row is compared.
//!
//! ## False alarms
//! Heads that attend to everything alike, and heads that give almost all to the same single key or to a learned sink, agree
//! without being copies: pairs of such heads are left out. In cross-attention, heads that align a text word by word agree to
//! some digits: there a divergence above 1e-6 is for information. So are the heads of a model whose recorder found that it is
//! not trained.
//!
//! ## Example
//! Two heads whose slices of W_Q and W_K are equal.

use attnscope_spec::Stack;

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds, collapse};
use crate::stats::{HeadReport, LayerReport, Stat};

pub static CHECK: Check = Check {
    id: "duplicate-heads",
    severity: Severity::Warning,
    needs: Needs::Pattern,
    source: include_str!("duplicate_heads.rs"),
    judge,
};

/// With fewer rows, similarity of two heads means nothing.
const FEWEST_ROWS: usize = attnscope_compute::attention::N_SAMPLED;

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let most = thresholds.duplicate_heads.divergence;
    let even = thresholds.duplicate_heads.relative_entropy;
    let rounding = thresholds.duplicate_heads.rounding;
    let by_design = thresholds.entropy_collapse.by_design;
    let mut findings = Vec::new();
    // The rows on which heads can be compared: those that see a key, in heads that are distributions.
    let n_rows = |layer: &LayerReport, head: &HeadReport| {
        let rows = head.summary.rows.iter();
        if evidence.has_distributions(layer, head) {
            rows.filter(|row| row.is_real && row.n_visible > 0).count()
        } else {
            0
        }
    };
    let of_pair = |layer: &LayerReport| {
        // The second largest count, because a pair needs two heads.
        let mut all: Vec<usize> = layer.heads.iter().map(|head| n_rows(layer, head)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.get(1).copied().unwrap_or(0)
    };
    let n_compared = evidence.layers.iter().map(|layer| of_pair(layer)).max();
    for layer in evidence.layers {
        let is_telling = |head_idx: usize| {
            let head = &layer.heads[head_idx];
            let of = |stat: Stat| head.stats.of(stat);
            let places = [
                Stat::SinkMass,
                Stat::FirstKeyMass,
                Stat::PreviousMass,
                Stat::DiagonalMass,
            ];
            let is_plain = places.iter().any(|stat| of(*stat) >= by_design);
            let entropy = collapse::relative_entropy(layer, head);
            entropy < even && !is_plain && evidence.has_distributions(layer, head)
        };
        for pair in &layer.alike {
            let [first, second] = pair.heads;
            if pair.divergence > most || !is_telling(first) || !is_telling(second) {
                continue;
            }
            let is_alignment = layer.stack == Stack::Cross && pair.divergence > rounding;
            findings.push(Finding {
                check: CHECK.id,
                severity: if is_alignment || evidence.untrained.is_some() {
                    Severity::Info
                } else {
                    Severity::Warning
                },
                place: layer.place().head(second),
                value: pair.divergence,
                threshold: most,
                unit: "nats",
                evidence: format!("heads {first} and {second} have the same rows: divergence {:.2e} nats", pair.divergence),
                advice: "compare their slices of W_Q and W_K; equal slices point at a reshape or a copy, unequal ones at wasted capacity".to_owned(),
            });
        }
    }
    match n_compared.unwrap_or(0) {
        0 => Verdict::not_applicable("no layer has two heads whose rows are distributions"),
        n if n < FEWEST_ROWS => Verdict::not_applicable(format!(
            "heads are compared on {FEWEST_ROWS} rows, and there are only {n}"
        )),
        _ => Verdict::of(findings, "no two heads of a layer do the same"),
    }
}
