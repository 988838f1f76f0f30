//! Rows of a pattern do not sum to 1, and no other axis explains it.
//!
//! ## What it does
//! Compares the sum of every row with 1, within what the stored dtype allows.
//!
//! ## Why it matters
//! A row that is no distribution scales what a query reads: a softmax left out or applied twice, dropout left on, a pattern
//! that was renormalised over the wrong keys.
//!
//! ## How it is measured
//! Per head, the row sum farthest from 1, over real queries that see a key; tolerance 1e-5 for f32, 5e-3 for f16, 2e-2 for
//! bf16. Where `wrong-axis` explains the rows, this check is silent.
//!
//! ## False alarms
//! Learned sinks (gpt-oss) take part of every row: with scores at hand they are recognised by one logit that explains all
//! rows; without scores, rows below 1 are undecidable. Dropout left on during the capture is named with its p, a warning.
//!
//! ## Example
//! `dropout(pattern)` in training mode with p = 0.1: visible cells are exactly 0 or the softmax divided by 0.9.

use super::evidence::{Evidence, worst_row};
use super::verdict::{Finding, Severity, Status, Verdict};
use super::{Check, Needs, Thresholds, wrong_axis};
use crate::place::Place;

pub static CHECK: Check = Check {
    id: "row-sum",
    severity: Severity::Error,
    needs: Needs::Pattern,
    source: include_str!("row_sum.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let (mut findings, mut is_undecided, mut is_explained) = (Vec::new(), false, false);
    for layer in evidence.layers {
        let mut worst: Option<Finding> = None;
        for (head_idx, head) in layer.heads.iter().enumerate() {
            let Some((query_idx, mass)) = worst_row(head) else {
                continue;
            };
            if !mass.is_finite() || (mass - 1.0).abs() <= evidence.row_tolerance {
                continue;
            }
            if wrong_axis::explains(evidence, thresholds, layer, head).is_some() {
                is_explained = true;
                continue;
            }
            let audit = head.audit.as_ref();
            let is_sunk = audit.is_some_and(|audit| audit.learned_sink.is_some());
            let rows = || {
                head.summary
                    .rows
                    .iter()
                    .filter(|row| row.is_real && row.n_visible > 0)
            };
            let is_below = rows().all(|row| f64::from(row.mass) <= 1.0 + evidence.row_tolerance);
            if (layer.has_sinks && is_below) || is_sunk {
                continue;
            }
            let finding = |severity, evidence: String, advice: &str, threshold| Finding {
                check: CHECK.id,
                severity,
                place: Place::of(layer).head(head_idx).query(query_idx),
                value: (mass - 1.0).abs(),
                threshold,
                unit: "",
                evidence,
                advice: advice.to_owned(),
            };
            let tolerance = evidence.row_tolerance;
            let found = match audit {
                Some(audit) if audit.dropout.is_some() => finding(
                    Severity::Warning,
                    format!(
                        "cells are 0 or the softmax divided by {:.3}: dropout with p = {:.3} was on",
                        1.0 - audit.dropout.unwrap_or(0.0),
                        audit.dropout.unwrap_or(0.0)
                    ),
                    "capture in evaluation mode (model.eval()): dropout hides what the rows sum to",
                    tolerance,
                ),
                Some(audit) if !audit.has_scores && is_below => {
                    is_undecided = true;
                    finding(
                        Severity::Warning,
                        format!(
                            "row sums to {mass:.4}, and no row to more than 1: a learned sink, or part of the row is lost"
                        ),
                        "capture the scores as well: with them a learned sink can be told from a fault",
                        tolerance,
                    )
                }
                _ => finding(
                    Severity::Error,
                    format!("row sums to {mass:.4}, and no other axis explains it"),
                    "look for a missing or a second normalisation between scores and pattern",
                    tolerance,
                ),
            };
            if worst.as_ref().is_none_or(|worst| found.value > worst.value) {
                worst = Some(found);
            }
        }
        findings.extend(worst);
    }
    let is_decided = findings
        .iter()
        .any(|finding: &Finding| finding.severity == Severity::Error);
    let otherwise = if is_explained {
        "wrong-axis explains the rows"
    } else {
        "every row sums to 1"
    };
    let mut verdict = Verdict::of_our_run(evidence, findings, otherwise);
    if is_explained && verdict.findings.is_empty() {
        verdict = Verdict::not_applicable(otherwise);
    }
    if is_undecided && !is_decided {
        verdict.status = Status::Undecidable;
        verdict.why =
            "rows below 1 without scores: a learned sink cannot be told from a fault".to_owned();
    }
    verdict
}
