//! The softmax of a head passes no gradient.
//!
//! ## What it does
//! Counts rows whose softmax is so close to one-hot that its derivative is almost zero.
//!
//! ## Why it matters
//! A saturated row learns nothing: the gradient that reaches q and k is the Jacobian of the softmax times what comes back.
//!
//! ## How it is measured
//! Row saturated: tr J = m − Σp² below 1e-3 (ours), with m the mass of the row; the share of such rows among those that see at
//! least two keys.
//!
//! ## False alarms
//! Heads that are one-hot by design (previous token, sinks, copies) are saturated and fine: they are left out as in
//! `entropy-collapse`.
//!
//! ## Example
//! Every row of a head gives 0.9999 to one key.

use super::evidence::{Evidence, by_design_mass};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::place::Place;

pub static CHECK: Check = Check {
    id: "softmax-saturation",
    severity: Severity::Warning,
    needs: Needs::Pattern,
    source: include_str!("softmax_saturation.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let most = thresholds.of("softmax-saturation.saturated_rows");
    let by_design = thresholds.of("entropy-collapse.by_design");
    let (mut findings, mut n_judged) = (Vec::new(), 0);
    for (layer, head_idx, head) in evidence.heads() {
        let of = |id: &str| head.stats.of(id);
        let share = of("saturated_rows");
        if share.is_nan() || !evidence.has_distributions(layer, head) {
            continue;
        }
        n_judged += 1;
        if share <= most || by_design_mass(head) >= by_design {
            continue;
        }
        findings.push(Finding {
            check: CHECK.id,
            severity: Severity::Warning,
            place: Place::of(layer).head(head_idx),
            value: share,
            threshold: most,
            unit: "of rows",
            evidence: format!(
                "{:.0} % of rows are saturated; mean largest probability {:.4}",
                100.0 * share,
                of("max_probability")
            ),
            advice: "lower the spread of the scores: scale, QK-norm, or a temperature above 1"
                .to_owned(),
        });
    }
    match n_judged {
        0 => Verdict::not_applicable("no row sees two keys and is a distribution over them"),
        _ => Verdict::of(findings, "rows still pass gradients"),
    }
}
