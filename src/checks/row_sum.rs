//! Rows of a pattern do not sum to 1, and no other axis explains it.
//!
//! ## What it does
//! Compares the sum of every row with 1, within what the stored dtype allows; and says where dropout was on, in the numbers or
//! by what the capture file recorded.
//!
//! ## Why it matters
//! A row that is not a distribution scales what a query reads: a softmax left out or applied twice, dropout left on, a pattern
//! that was renormalised over the wrong keys.
//!
//! ## How it is measured
//! Per head, the row sum farthest from 1, over real queries that see a key; tolerance 1e-5 for f32, 5e-3 for f16, 2e-2 for
//! bf16. Where `wrong-axis` explains the rows, or `normaliser` names a way to normalise that does not aim at 1, this check is
//! silent. Rows without any visible key, and rows with a NaN, do not count. With scores at hand a fault is named: a mask that was
//! applied after the softmax, a sum over other keys, a factor, a softmax left out.
//!
//! ## False alarms
//! Learned sinks (gpt-oss) take part of every row: with scores at hand they are recognised by one logit that explains all
//! rows. Without scores, rows off 1 whose cells are all probabilities are undecidable: sigmoid attention has them too. Dropout
//! left on during the capture is named with its p, a warning; dropout that runs in evaluation mode is an error.
//!
//! ## Example
//! `dropout(pattern)` in training mode with p = 0.1: visible cells are exactly 0 or the softmax divided by 0.9.

use attnscope_compute::attention::{Audit, Normaliser, RowSummary};

use super::evidence::{Evidence, worst_row};
use super::verdict::{Finding, Severity, Status, Verdict};
use super::{Check, Needs, Thresholds, wrong_axis};
use crate::stats::{HeadReport, LayerReport};

pub static CHECK: Check = Check {
    id: "row-sum",
    severity: Severity::Error,
    needs: Needs::Pattern,
    source: include_str!("row_sum.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let (mut findings, mut is_undecided, mut is_explained) = (Vec::new(), false, false);
    let mut n_mixed = 0;
    for layer in evidence.layers {
        // Rows of mixed heads sum to what the mixing weights of a head sum to.
        if layer.audit().is_some_and(|audit| audit.recorded.is_mixed) {
            n_mixed += 1;
            continue;
        }
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
            let audit = head.audit.as_deref();
            let is_by_design = audit.is_some_and(|audit| {
                let named = audit.normaliser.map(|found| found.by);
                named.is_some_and(|by| by != Normaliser::Softmax) || audit.learned_sink.is_some()
            });
            let is_below =
                rows(head).all(|row| f64::from(row.mass) <= 1.0 + evidence.row_tolerance);
            if (layer.has_sinks && is_below) || is_by_design {
                continue;
            }
            let said = Said::of(audit, head, mass, layer);
            is_undecided |= said.is_undecided;
            let found = Finding {
                check: CHECK.id,
                severity: said.severity,
                place: layer.place().head(head_idx).query(query_idx),
                value: (mass - 1.0).abs(),
                threshold: evidence.row_tolerance,
                unit: "",
                evidence: said.evidence,
                advice: said.advice.to_owned(),
            };
            let rank = |finding: &Finding| (finding.severity, finding.value);
            if worst
                .as_ref()
                .is_none_or(|worst| rank(&found) > rank(worst))
            {
                worst = Some(found);
            }
        }
        findings.extend(worst.or_else(|| recorded_dropout(layer)));
    }
    let is_decided = findings
        .iter()
        .any(|finding: &Finding| finding.severity == Severity::Error);
    let otherwise = if is_explained {
        "wrong-axis explains the rows"
    } else {
        "every row sums to 1"
    };
    if n_mixed > 0 && n_mixed == evidence.layers.len() {
        return Verdict::not_applicable("heads are mixed after the softmax (talking heads)");
    }
    let mut verdict = Verdict::of_our_run(evidence, findings, otherwise);
    if is_explained && verdict.findings.is_empty() {
        verdict = Verdict::not_applicable(otherwise);
    }
    if is_undecided && !is_decided {
        verdict.status = Status::Undecidable;
        verdict.would_test = None;
        verdict.why =
            "rows off 1 without scores: a learned sink or a sigmoid cannot be told from a fault"
                .to_owned();
    }
    verdict
}

/// Rows of real queries that see a key.
fn rows(head: &HeadReport) -> impl Iterator<Item = &RowSummary> {
    let rows = head.summary.rows.iter();
    rows.filter(|row| row.is_real && row.n_visible > 0 && row.mass.is_finite())
}

/// The finding for a head whose row sums are off.
struct Said {
    severity: Severity,
    evidence: String,
    advice: &'static str,
    is_undecided: bool,
}

const IN_EVALUATION: &str =
    "pass dropout_p=p if self.training else 0.0, or use nn.Dropout, which model.eval() turns off";
const IN_TRAINING: &str =
    "capture in evaluation mode (model.eval()): dropout hides what the rows sum to";

impl Said {
    fn of(audit: Option<&Audit>, head: &HeadReport, mass: f64, layer: &LayerReport) -> Self {
        let error = |evidence: String, advice: &'static str| Self {
            severity: Severity::Error,
            evidence,
            advice,
            is_undecided: false,
        };
        if let Some(p) = audit.and_then(|audit| audit.dropout) {
            let recorded = layer.audit().map(|audit| &audit.recorded);
            let is_evaluation = recorded.is_some_and(|call| call.is_training == Some(false));
            let evidence = format!(
                "cells are 0 or the softmax divided by {:.3}: dropout with p = {p:.3} was on",
                1.0 - p
            );
            if is_evaluation {
                return error(format!("{evidence}, in evaluation mode"), IN_EVALUATION);
            }
            return Self {
                severity: Severity::Warning,
                ..error(evidence, IN_TRAINING)
            };
        }
        if let Some(fault) = audit.and_then(|audit| audit.fault) {
            return error(
                format!("row sums to {mass:.4}: {}{}", fault.by, written_at(layer)),
                fault.by.advice(),
            );
        }
        // Unnormalised cells with exact zeros between them look like the output of a ReLU.
        let n = head.summary.rows.len();
        let may_be_meant = audit.is_some_and(|audit| {
            let is_rectified = 20 * audit.n_zeroed > n * (n + 1);
            let is_open = !audit.has_scores && !audit.is_signed;
            is_open && (is_rectified || rows(head).all(|row| row.top1 <= 1.0))
        });
        if may_be_meant {
            return Self {
                severity: Severity::Warning,
                is_undecided: true,
                ..error(
                    format!("row sums to {mass:.4}: a learned sink, a sigmoid, a ReLU, or a fault"),
                    "capture the scores as well: with them a way to normalise can be told from a fault",
                )
            };
        }
        error(
            format!("row sums to {mass:.4}, and no other axis explains it"),
            "look for a missing or a second normalisation between scores and pattern",
        )
    }
}

/// Where the code weighs values by what no call of a softmax gave, in words.
pub(super) fn written_at(layer: &LayerReport) -> String {
    let place = layer
        .audit()
        .and_then(|audit| audit.recorded.place.as_ref());
    place.map_or(String::new(), |place| {
        format!("; values are weighed at {place}")
    })
}

/// Reports dropout that was recorded but is not visible in the numbers, because it happened inside a kernel.
fn recorded_dropout(layer: &LayerReport) -> Option<Finding> {
    let call = &layer.audit()?.recorded;
    let p = call.dropout_p.filter(|p| *p > 0.0);
    let (severity, evidence, advice) = match (p, call.is_training) {
        (Some(p), Some(false)) => (
            Severity::Error,
            format!(
                "the call was made with dropout_p = {p}, in evaluation mode: every output is noisy"
            ),
            IN_EVALUATION,
        ),
        (Some(p), _) => (
            Severity::Warning,
            format!("the call was made with dropout_p = {p}"),
            IN_TRAINING,
        ),
        (None, _) if call.is_deterministic == Some(false) => (
            Severity::Warning,
            "two passes over one input differ: dropout or sampling is on".to_owned(),
            "capture in evaluation mode (model.eval()), and look for dropout that does not ask whether the model trains",
        ),
        _ => return None,
    };
    Some(Finding {
        check: CHECK.id,
        severity,
        place: layer.place(),
        value: p.unwrap_or(f64::NAN),
        threshold: 0.0,
        unit: "",
        evidence,
        advice: advice.to_owned(),
    })
}
