//! All tokens have become one.
//!
//! ## What it does
//! Measures how far the residual's rows lie from their mean after each layer.
//!
//! ## Why it matters
//! Attention averages: without skips and feed-forward layers rows converge doubly exponentially to the same vector (Dong et al.
//! 2021, arXiv 2103.03404), and nothing after that layer can tell tokens apart.
//!
//! ## How it is measured
//! ‖X − 1x̄ᵀ‖ / ‖X‖ in the Frobenius norm (there the composite 1-∞ norm), x̄ the mean row, over real positions of resid_post.
//! A log has a second rule: the ratio of a layer falls below 0.7 of its level at the very record where the loss jumps up, and the next
//! record is below that too. Weights of one record before cannot do that: the forward pass, or the data, is another.
//!
//! ## False alarms
//! A single token, or the same token throughout without positions, is alike by nature. A massive activation shared by all
//! positions makes ‖X‖ large and the ratio small.
//!
//! ## Example
//! A stack of pure attention layers: the ratio falls from 0.9 to 1e-6 within a few layers.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::stats::Stat;

pub static CHECK: Check = Check {
    id: "rank-collapse",
    severity: Severity::Warning,
    needs: Needs::Residual,
    source: include_str!("rank_collapse.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let least = thresholds.rank_collapse.resid_spread;
    let (mut findings, mut n_judged) = (Vec::new(), 0);
    for layer in evidence.layers {
        let n_real = layer.heads.first().map_or(0, |head| {
            head.summary.rows.iter().filter(|row| row.is_real).count()
        });
        let spread = layer.stats.of(Stat::ResidSpread);
        let cosine = layer.stats.of(Stat::ResidCosine);
        // One recorded row, as the last step of a loop leaves it, lies at its own mean.
        if spread.is_nan() || cosine.is_nan() || n_real < 2 {
            continue;
        }
        n_judged += 1;
        if spread >= least {
            continue;
        }
        findings.push(Finding {
            check: CHECK.id,
            severity: Severity::Warning,
            place: layer.place(),
            value: spread,
            threshold: least,
            unit: "",
            evidence: format!("residuals lie {:.2e} of their size from their mean; mean cosine of two tokens {cosine:.4}", spread),
            advice: "look at the first layer where this begins: its branch outweighs the residual, or the skip is missing".to_owned(),
        });
        // Later layers belong to the same collapse.
        break;
    }
    match n_judged {
        0 => Verdict::not_applicable("there is no residual of two tokens"),
        _ => Verdict::of(findings, "tokens stay apart"),
    }
}
