//! Shared code of checks whose probe changed something that must have no effect.

use super::evidence::{Evidence, InvarianceProbe, Movement, Probed};
use super::figure;
use super::verdict::{Finding, Severity, Verdict};

/// Turns the results of a probe into a verdict: one finding per case that moved.
pub(super) fn judge_invariance(
    evidence: &Evidence<'_>,
    check: &'static str,
    probe: &Probed<InvarianceProbe>,
    advice: &str,
    otherwise: &str,
) -> Verdict {
    let probe = match probe.seen() {
        Ok(probe) => probe,
        Err(verdict) => return verdict,
    };
    let moved = probe.cases.iter();
    let moved = moved.filter_map(|(case, moved)| moved.as_ref().map(|moved| (case, moved)));
    let findings = moved.map(|(case, moved)| finding(check, probe.tolerance, case, moved, advice));
    let otherwise = format!(
        "{otherwise}; largest movement {:.1e} of the largest value",
        probe.largest
    );
    Verdict::of_our_run(evidence, findings.collect(), otherwise)
}

/// Whether anything moved in any case of a probe.
pub(super) fn moves(probe: &Probed<InvarianceProbe>) -> bool {
    matches!(probe, Probed::Ran(probe) if probe.cases.iter().any(|(_, moved)| moved.is_some()))
}

fn finding(
    check: &'static str,
    tolerance: f64,
    case: &str,
    moved: &Movement,
    advice: &str,
) -> Finding {
    let first = moved
        .name
        .clone()
        .unwrap_or_else(|| moved.place.to_string());
    let how_far = if moved.amount.is_finite() {
        format!(
            "is the first to move, by {} of its largest value",
            figure(moved.amount)
        )
    } else {
        "is the first to move: it becomes NaN or infinite".to_owned()
    };
    Finding {
        check,
        severity: Severity::Error,
        place: moved.place,
        value: moved.amount,
        threshold: tolerance,
        unit: "",
        evidence: format!("{case}: {first} {how_far}"),
        advice: advice.to_owned(),
    }
}
