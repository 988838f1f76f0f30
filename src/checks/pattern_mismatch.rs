//! A pattern is not the softmax of its scores.
//!
//! ## What it does
//! Recomputes the softmax of captured scores along the declared axis and compares it with the captured pattern. What differs is
//! tried as another way to normalise, and then as one of the known faults, which is named.
//!
//! ## Why it matters
//! Between scores and pattern something else happened: a second softmax, a temperature, a renormalisation, a mask applied
//! afterwards. A doubled softmax on a bidirectional model passes every other check.
//!
//! ## How it is measured
//! Over visible cells of real queries: the largest |pattern − softmax(scores)|, in f64. Rows with a NaN or without any visible
//! key are left out.
//!
//! ## False alarms
//! Dropout is left to `row-sum`; where `wrong-axis` explains the rows, or `normaliser` names another way to normalise, this check
//! is silent.
//! Scores captured before the scale, the bias or a softcap are not the softmax's input.
//!
//! ## Example
//! `F.softmax(F.softmax(scores, -1), -1)`: every row is almost uniform whatever the scores say.

use attnscope_compute::attention::Normaliser;

use super::evidence::{Evidence, Subject};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds, figure, row_sum, wrong_axis};

pub static CHECK: Check = Check {
    id: "pattern-mismatch",
    severity: Severity::Error,
    needs: Needs::Scores,
    source: include_str!("pattern_mismatch.rs"),
    judge,
};

const ADVICE: &str = "look between scores and pattern for a second softmax, a temperature, or a mask applied after the softmax";

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    if evidence.subject == Subject::Checkpoint {
        return Verdict::not_applicable("the pattern is ours, computed from the scores");
    }
    let audits = || {
        evidence
            .heads()
            .filter_map(|(_, _, head)| head.audit.as_ref())
    };
    if !audits().any(|audit| audit.has_scores) {
        return Verdict::not_applicable("no scores were captured to compare with");
    }
    let allowed = thresholds
        .pattern_mismatch
        .difference
        .max(evidence.row_tolerance);
    let (mut findings, mut is_left_to_others) = (Vec::new(), false);
    for layer in evidence.layers {
        let found = layer
            .heads
            .iter()
            .enumerate()
            .filter_map(|(head_idx, head)| {
                let audit = head.audit.as_ref()?;
                let named = audit.normaliser.map(|found| found.by);
                let is_explained = audit.dropout.is_some()
                    || audit.learned_sink.is_some()
                    || named.is_some_and(|by| by != Normaliser::Softmax)
                    || wrong_axis::explains(evidence, thresholds, layer, head).is_some();
                let worst = audit.mismatch?;
                let is_off = f64::from(worst.difference) > allowed || worst.difference.is_nan();
                is_left_to_others |= is_off && is_explained;
                (is_off && !is_explained).then_some((head_idx, worst, audit.fault))
            });
        let worst = found.max_by(|a, b| a.1.difference.total_cmp(&b.1.difference));
        let Some((head_idx, worst, fault)) = worst else {
            continue;
        };
        let named = fault.map_or(String::new(), |fault| {
            format!("; {}{}", fault.by, row_sum::written_at(layer))
        });
        let advice = fault.map_or(ADVICE, |fault| fault.by.advice());
        let (query_idx, key_idx) = (worst.query_idx, worst.key_idx);
        findings.push(Finding {
            check: CHECK.id,
            severity: Severity::Error,
            place: layer.place().head(head_idx).query(query_idx).key(key_idx),
            value: f64::from(worst.difference),
            threshold: allowed,
            unit: "",
            evidence: format!(
                "query {query_idx}, key {key_idx}: the pattern lies {} from the softmax of its scores{named}",
                figure(f64::from(worst.difference))
            ),
            advice: advice.to_owned(),
        });
    }
    if findings.is_empty() && is_left_to_others {
        return Verdict::not_applicable(
            "patterns differ from the softmax of their scores by what wrong-axis, row-sum or normaliser name",
        );
    }
    Verdict::of(findings, "every pattern is the softmax of its scores")
}
