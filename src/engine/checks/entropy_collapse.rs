//! A head attends to one key, and not by design.
//!
//! ## What it does
//! Looks for heads whose rows are almost one-hot, and separates the causes: long queries and keys, their cosine, the spread of
//! the scores, saturation, or merely few keys.
//!
//! ## Why it matters
//! When entropy collapses the softmax passes no gradient and the head cannot learn its way out; training oscillates or diverges
//! (Zhai et al. 2023, arXiv 2303.06296).
//!
//! ## How it is measured
//! Mean over rows of entropy / log(visible keys), below the threshold. The evidence names norms, cosine, score spread and
//! saturated rows in the order in which they follow from each other; a run adds what 1/√d, QK-norm and a temperature of 2
//! would make of this head's entropy.
//!
//! ## False alarms
//! Previous-token, induction, duplicate-token, current-token and sink heads are low by design: a head that gives most of its
//! mass to one such kind of place is left out. There is no published number; the threshold is ours.
//!
//! ## Example
//! Scores without 1/√d at d_head = 256: their standard deviation is 16 times too large, and every row is one-hot.

use super::evidence::{Evidence, by_design_mass};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::place::Place;

pub static CHECK: Check = Check {
    id: "entropy-collapse",
    severity: Severity::Warning,
    needs: Needs::Scores,
    source: include_str!("entropy_collapse.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let least = thresholds.of("entropy-collapse.relative_entropy");
    let by_design = thresholds.of("entropy-collapse.by_design");
    let (mut findings, mut n_judged, mut n_spared) = (Vec::new(), 0, 0);
    for (layer, head_idx, head) in evidence.heads() {
        if !evidence.has_distributions(layer, head) {
            continue;
        }
        let of = |id: &str| head.stats.of(id);
        let entropy = of("entropy_relative");
        if entropy.is_nan() {
            continue;
        }
        n_judged += 1;
        if entropy >= least {
            continue;
        }
        if by_design_mass(head) >= by_design {
            n_spared += 1;
            continue;
        }
        let saturated = 100.0 * of("saturated_rows");
        let mut causes = Vec::new();
        if of("q_norm").is_finite() {
            causes.push(format!("‖q‖ {:.1}, ‖k‖ {:.1}", of("q_norm"), of("k_norm")));
            causes.push(format!("cos {:.2}", of("qk_cosine")));
        }
        if of("score_std").is_finite() {
            let predicted = of("score_var_predicted").sqrt();
            causes.push(format!(
                "score std {:.1} (its norms predict {predicted:.1})",
                of("score_std")
            ));
        }
        causes.push(format!("{saturated:.0} % of rows saturated"));
        findings.push(Finding {
            check: CHECK.id,
            severity: Severity::Warning,
            place: Place::of(layer).head(head_idx),
            value: entropy,
            threshold: least,
            unit: "of log n",
            evidence: format!(
                "mean entropy is {:.1} % of log n: {}",
                100.0 * entropy,
                causes.join(", ")
            ),
            advice: advice(&of).to_owned(),
        });
    }
    match n_judged {
        0 => Verdict::not_applicable("no row sees two keys and is a distribution over them"),
        _ if n_spared > 0 => Verdict::of(
            findings,
            format!("heads with a low entropy have it by design: {n_spared}"),
        ),
        _ => Verdict::of(findings, "no head attends to one key"),
    }
}

/// What to do about the first cause that is not as it should be.
fn advice(of: &dyn Fn(&str) -> f64) -> &'static str {
    let (spread, predicted) = (of("score_std"), of("score_var_predicted").sqrt());
    if spread.is_nan() {
        "capture q, k and scores as well: the pattern alone does not say whether norms, cosine or scale are the cause"
    } else if predicted > 3.0 {
        "queries and keys are too long for their scale: check 1/√d, add QK-norm, or lower the learning rate of W_Q and W_K"
    } else if spread > 2.0 * predicted {
        "queries and keys align more than their norms alone would have it: look at their cosine, and at a shared bias"
    } else {
        "the scores' spread is ordinary: look at what the few visible keys have in common"
    }
}
