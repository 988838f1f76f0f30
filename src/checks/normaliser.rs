//! A head turns scores into its pattern in another way than a softmax over keys.
//!
//! ## What it does
//! Names the way to normalise of each recorded head: softmax, softmax with a 1 in the denominator or a learned sink, sigmoid, ReLU
//! and its square, sparsemax, entmax with α = 1.5, Sinkhorn, linear attention, the difference of two softmaxes, a softmax to which a
//! recorded matrix is added.
//!
//! ## Why it matters
//! Rows that do not sum to 1, or that differ from the softmax of their scores, are a fault in one model and the design of
//! another. What a head does on purpose is information, and no other check accuses it.
//!
//! ## How it is measured
//! With scores: each way is computed from them in f64, with at most one number of its own for each head, and the first that
//! explains every cell is taken, the simplest first. A cell may miss by what the stored dtype allows, as a share of the largest
//! cell of its row. Without scores: cells of both signs in rows of one common sum are a difference of two softmaxes, exact zeros
//! between other cells in rows that sum to 1 a sparse normaliser, and rows and columns that sum to 1 Sinkhorn. Value: the largest
//! miss.
//!
//! ## False alarms
//! It is information, but for two cases, which are warnings. Scores of both signs that are one factor times q·k and weigh the
//! values as they are, behind a mask that multiplies, are a softmax forgotten, or linear attention without features. A matrix with
//! negative cells behind the softmax is a bias that came too late, or a graph or a distance that is mixed in on purpose. A head
//! whose scores hardly differ fits several ways; then nothing but a softmax is named.
//!
//! ## Example
//! `torch.sigmoid(scores - math.log(n))`: every cell is the sigmoid of its score less log n, and rows sum to anything.

use std::sync::Arc;

use attnscope_checkpoint::counted::counted;
use attnscope_compute::attention::{Explained, Features, Normaliser};

use super::evidence::{Evidence, Subject};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds, row_sum};
use crate::stats::LayerReport;

pub static CHECK: Check = Check {
    id: "normaliser",
    severity: Severity::Info,
    needs: Needs::Pattern,
    source: include_str!("normaliser.rs"),
    judge,
};

const BARE: &str = "put the softmax between scores and values, and hide scores with −inf before it; nothing to do in linear attention \
     without features";

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    if evidence.subject == Subject::Checkpoint {
        return Verdict::not_applicable(
            "the pattern is ours: the configuration says how it is normalised",
        );
    }
    let audits = || {
        evidence
            .heads()
            .filter_map(|(_, _, head)| head.audit.as_deref())
    };
    if audits().next().is_none() {
        return Verdict::not_applicable("no pattern was captured");
    }
    let found = evidence
        .layers
        .iter()
        .filter_map(|layer| Some((of_layer(evidence, layer)?, layer)));
    let findings = with_bare_once(found);
    let n_known = audits().filter(|audit| audit.normaliser.is_some()).count();
    if findings.is_empty() && n_known == 0 {
        return Verdict::not_applicable("no scores to tell it from");
    }
    Verdict::of(
        findings,
        "every head that can be told is a softmax over keys",
    )
}

/// Findings of layers, of which all that weigh values by bare scores are one: it is one design, or one line of code.
fn with_bare_once<'a>(
    found: impl Iterator<Item = (Finding, &'a Arc<LayerReport>)>,
) -> Vec<Finding> {
    let (mut findings, mut n_bare, mut first_bare) = (Vec::<Finding>::new(), 0, None);
    for (finding, layer) in found {
        let is_bare = finding.advice == BARE;
        n_bare += usize::from(is_bare);
        if is_bare && first_bare.is_some() {
            continue;
        }
        if is_bare {
            first_bare = Some((findings.len(), layer.place()));
        }
        findings.push(finding);
    }
    if let Some((idx, _)) = first_bare.filter(|_| n_bare > 1) {
        findings[idx].evidence += &format!("; and so in {} more", counted(n_bare - 1, "layer"));
    }
    findings
}

/// One finding for the heads of a layer: the most frequent normaliser that is not a softmax.
fn of_layer(evidence: &Evidence<'_>, layer: &LayerReport) -> Option<Finding> {
    let found: Vec<(usize, Explained<Normaliser>)> = layer
        .heads
        .iter()
        .enumerate()
        .filter_map(|(head_idx, head)| Some((head_idx, head.audit.as_ref()?.normaliser?)))
        .filter(|(_, found)| found.by != Normaliser::Softmax)
        .collect();
    let (first_idx, mut first) = *found.first()?;
    if let Normaliser::SinkOfRows { least } = &mut first.by {
        for (_, other) in &found {
            if let Normaliser::SinkOfRows { least: other } = other.by {
                *least = least.min(other);
            }
        }
    }
    let is_mixed_with_sign = |found: &Explained<Normaliser>| {
        matches!(
            found.by,
            Normaliser::Mixture {
                is_signed: true,
                ..
            }
        )
    };
    let signed = found.iter().find(|(_, found)| is_mixed_with_sign(found));
    let is_signed = signed.is_some();
    let (first_idx, first) = signed.copied().unwrap_or((first_idx, first));
    let kind = |found: &Explained<Normaliser>| std::mem::discriminant(&found.by);
    let alike = found
        .iter()
        .filter(|(_, other)| kind(other) == kind(&first))
        .count();
    let off = found.iter().map(|(_, found)| found.off).fold(0.0, f64::max);
    let place = layer.place();
    let (place, who) = match (alike, layer.heads.len()) {
        (1, n) if n > 1 => (place.head(first_idx), format!("head {first_idx}")),
        (n, all) if n == all => (
            place,
            if all == 1 {
                "the head".to_owned()
            } else {
                format!("all {n} heads")
            },
        ),
        (n, _) => (place, format!("{n} heads")),
    };
    let others = found.len() - alike;
    let others = if others == 0 {
        String::new()
    } else {
        format!("; {others} heads in other ways")
    };
    let is_bare = is_forgotten_softmax(layer, &first.by);
    let n_cells: usize = found.iter().map(|(_, found)| found.n_cells).sum();
    Some(Finding {
        check: CHECK.id,
        severity: if is_bare || is_signed { Severity::Warning } else { Severity::Info },
        place,
        value: off,
        threshold: evidence.row_tolerance,
        unit: "",
        evidence: if is_bare {
            format!(
                "{who}: scores of both signs, one factor times q·k, weigh the values as they are: no softmax ran, and the mask \
                 multiplies by 0 and 1; it explains {n_cells} cells within {off:.1e}{others}{}",
                row_sum::written_at(layer)
            )
        } else {
            format!("{who}: {}; it explains {n_cells} cells within {off:.1e}{others}", first.by)
        },
        advice: if is_bare {
            BARE
        } else if is_signed {
            "nothing to do where a graph or a distance is mixed in on purpose; where it was meant as a bias, add it to the scores, \
             before the softmax"
        } else {
            "nothing to do where this is meant; statistics that need rows of probabilities are left out"
        }
        .to_owned(),
    })
}

/// Whether nothing came between q·k and the values but a factor and a mask of 0 and 1. Features of linear attention leave no cell
/// negative, and a decay no single factor.
fn is_forgotten_softmax(layer: &LayerReport, by: &Normaliser) -> bool {
    let is_bare = *by
        == Normaliser::Linear {
            features: Features::Bare,
        };
    let is_signed = || {
        let audits = layer.heads.iter().filter_map(|head| head.audit.as_deref());
        audits.into_iter().any(|audit| audit.is_signed)
    };
    let scale = layer.audit().and_then(|audit| audit.score_scale.as_ref());
    is_bare && scale.is_some_and(|scale| scale.is_fitted) && is_signed()
}
