//! Nothing keeps the entropy of a head from collapsing, and it is low.
//!
//! ## What it does
//! Computes the least entropy that scores of this spread could have, and names heads where it guarantees nothing and the head is
//! low.
//!
//! ## Why it matters
//! The bound (Zhai et al. 2023, arXiv 2303.06296) says what spread of scores a collapse needs: σ-reparametrisation or QK-norm keep
//! it away.
//!
//! ## How it is measured
//! Per row with n visible keys and centred scores of norm σ: β = exp(−σ√(n/(n−1))), entropy ≥ log(1 + (n−1)β) +
//! σ√(n(n−1))·β / (1 + (n−1)β). Measured norms stand in for the product of spectral norms, which bounds them from above. Value:
//! mean bound / log n.
//!
//! ## False alarms
//! The bound is met only by one particular row: heads far below it in spread are healthy with a bound near 0. Information.
//!
//! ## Example
//! Score std 12 over 64 keys: the bound is 1e-30, the head's entropy 0.1.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::stats::Stat;

pub static CHECK: Check = Check {
    id: "spectral-bound",
    severity: Severity::Info,
    needs: Needs::Scores,
    source: include_str!("spectral_bound.rs"),
    judge,
};

use attnscope_compute::attention::RowSummary;

/// Only heads with a relative entropy below this are reported.
const LOW: f64 = 0.25;

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let least = thresholds.spectral_bound.guaranteed;
    let (mut findings, mut n_judged, mut lowest) = (Vec::new(), 0, f64::INFINITY);
    for layer in evidence.layers {
        let mut worst: Option<Finding> = None;
        for (head_idx, head) in layer.heads.iter().enumerate() {
            // A learned sink takes part of every row, but the bound holds for rows that sum to 1.
            if layer.has_sinks || !evidence.has_distributions(layer, head) {
                continue;
            }
            let rows = head
                .summary
                .rows
                .iter()
                .filter(|row| row.is_real && row.n_visible >= 2);
            let bounds: Vec<f64> = rows.filter_map(guaranteed_share).collect();
            if bounds.is_empty() {
                continue;
            }
            n_judged += 1;
            let bound = bounds.iter().sum::<f64>() / bounds.len() as f64;
            let entropy = head.stats.of(Stat::EntropyRelative);
            lowest = lowest.min(bound);
            if bound >= least
                || entropy.is_nan()
                || entropy >= LOW
                || worst.as_ref().is_some_and(|worst| worst.value <= bound)
            {
                continue;
            }
            worst = Some(Finding {
                check: CHECK.id,
                severity: Severity::Info,
                place: layer.place().head(head_idx),
                value: bound,
                threshold: least,
                unit: "of log n",
                evidence: format!(
                    "with scores this wide (std {:.1}) entropy may fall to {:.2} % of log n; it is {:.1} %",
                    head.stats.of(Stat::ScoreStd),
                    100.0 * bound,
                    100.0 * entropy
                ),
                advice: "QK-norm or σ-reparametrisation limits the spread; without either, nothing keeps this head from a collapse".to_owned(),
            });
        }
        findings.extend(worst);
    }
    match n_judged {
        0 => Verdict::not_applicable("no head has scores whose softmax runs over keys"),
        _ => Verdict::of(
            findings,
            format!(
                "the spread of the scores keeps the entropy of every head above {:.2} % of log n",
                100.0 * lowest
            ),
        ),
    }
}

/// The bound of one row, divided by log n; `None` without scores.
fn guaranteed_share(row: &RowSummary) -> Option<f64> {
    let n = f64::from(row.n_visible);
    let sigma = (n * f64::from(row.score_var)).sqrt();
    sigma.is_finite().then(|| bound(n, sigma) / n.ln())
}

/// The minimum entropy of a softmax over n scores whose centred norm is σ.
fn bound(n: f64, sigma: f64) -> f64 {
    let beta = (-sigma * (n / (n - 1.0)).sqrt()).exp();
    let others = 1.0 + (n - 1.0) * beta;
    others.ln() + sigma * (n * (n - 1.0)).sqrt() * beta / others
}

#[cfg(test)]
mod tests {
    use super::bound;

    #[test]
    fn the_bound_equals_the_entropy_of_the_extremal_row() {
        for n in [4.0f64, 16.0, 64.0] {
            for sigma in [0.1, 1.0, 3.0] {
                let (top, rest) = (
                    sigma * ((n - 1.0) / n).sqrt(),
                    -sigma / (n * (n - 1.0)).sqrt(),
                );
                let sum = top.exp() + (n - 1.0) * rest.exp();
                let (p, q) = (top.exp() / sum, rest.exp() / sum);
                let entropy = -p * p.ln() - (n - 1.0) * q * q.ln();
                assert!((bound(n, sigma) - entropy).abs() < 1e-12, "{n} {sigma}");
            }
        }
    }
}
