//! Probability on keys farther back than the declared window.
//!
//! ## What it does
//! Adds up the probability outside the window of layers that are declared to have one.
//!
//! ## Why it matters
//! A window that is one too wide, absent, or on the wrong layers gives another model than the one that was trained: quality
//! falls without an error. Seen in the wild: transformers #39408, #29623, NeMo PR #9672.
//!
//! ## How it is measured
//! A window of W lets a query see itself and the W − 1 keys before it (0 ≤ query − key < W). Mass farther back is a finding; a
//! layer whose farthest weight over all heads is shorter than the window, in a text longer than it, is information; where every
//! row ends exactly one key too early it is a warning.
//!
//! ## False alarms
//! Conventions differ: some code counts W keys before the query itself. Declare the width that is meant.
//!
//! ## Example
//! Mistral declared with a window of 4096 that attends 4097 keys back.

use super::evidence::{Evidence, Subject};
use super::mask_mass::{Kind, forbidden};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "window-width",
    severity: Severity::Error,
    needs: Needs::Pattern,
    source: include_str!("window_width.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    if !evidence
        .layers
        .iter()
        .any(|layer| layer.spec.mask.window.is_some())
    {
        return Verdict::not_applicable("no layer is declared to have a window");
    }
    let kind = Kind {
        check: CHECK.id,
        most: thresholds.window_width.error_mass,
        what: "lies outside the declared window",
        advice: "compare the mask's window with the configuration's: a query sees itself and width − 1 keys before it",
        of: |audit| audit.outside_window,
        may: |layer| layer.spec.mask.window.is_some(),
    };
    let mut verdict = forbidden(
        evidence,
        &kind,
        "no query gives anything to a key outside its window",
    );
    if evidence.subject != Subject::Checkpoint && verdict.findings.is_empty() {
        let findings: Vec<Finding> = evidence
            .layers
            .iter()
            .filter_map(|layer| too_short(layer))
            .collect();
        verdict = Verdict::of(findings, verdict.why);
    }
    verdict
}

/// An informational finding on a layer that never looks as far as its window allows.
fn too_short(layer: &crate::stats::LayerReport) -> Option<Finding> {
    let width = layer.spec.mask.window?.width_back()?;
    let n = layer.heads.first()?.summary.rows.len();
    let reaches = layer
        .heads
        .iter()
        .filter_map(|head| Some(head.audit.as_ref()?.reach));
    let farthest = reaches.max()?;
    let shape = layer.audit().and_then(|audit| audit.shape.as_ref());
    let is_one_less = shape.is_some_and(|shape| shape.is_tight && shape.window == Some(width - 1));
    (n > width && farthest + 1 < width).then(|| Finding {
        check: CHECK.id,
        severity: if is_one_less { Severity::Warning } else { Severity::Info },
        place: layer.place(),
        value: (farthest + 1) as f64,
        threshold: width as f64,
        unit: "keys",
        evidence: format!("the farthest weight of all heads is {farthest} back; a window of {width} reaches {} back", width - 1),
        advice: "the window may be narrower than declared: compare the mask with the configuration".to_owned(),
    })
}
