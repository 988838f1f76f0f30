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
//! Mean over rows of entropy / log(visible keys), below the threshold; with a learned sink, the entropy of what the sink leaves.
//! The evidence names norms, cosine, score spread and saturated rows in the order in which they follow from each other; a run
//! adds what 1/√d, QK-norm and a higher temperature would make of this head's entropy, where they change it. The Rows panel
//! asks the same questions and gives the same answers. A warning; an error where at least two heads, and half of the layer's, are
//! past learning: at least half of the rows saturated, and scores beyond 4 times the line of `score-explosion`. A history knows
//! what was before, and what the loss did: it decides by the same rules on more.
//!
//! ## False alarms
//! Previous-token, induction, duplicate-token, current-token, positional and sink heads are low by design: a head that gives most
//! of its mass to one such kind of place, or to one distance, is left out, and the verdict says which and why. One key is a sink where it is the first token
//! or a delimiter, or where most queries of the layer look at it. Cross-attention whose queries look at different keys, each at
//! one or at few, is an alignment of words, which is sharp by nature: information, one line for a layer, below a line of its
//! own. Where most heads of a layer are so sharp, and scale and lengths alone would spread their scores by more than 5, as they do,
//! they are sharp whichever words belong together: a warning. There is no published number; the thresholds are ours.
//! A head of which fewer than four rows see two keys, such as a step of a decoder, is not judged.
//!
//! ## Example
//! Scores without 1/√d at d_head = 256: their standard deviation is 16 times too large, and every row is one-hot.

use attnscope_spec::Place;

use super::collapse::{self, Design, Sharpness};
use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Status, Verdict};
use super::{Check, Needs, Thresholds, weight};
use crate::stats::{HeadReport, Stat};

pub static CHECK: Check = Check {
    id: "entropy-collapse",
    severity: Severity::Error,
    needs: Needs::Scores,
    source: include_str!("entropy_collapse.rs"),
    judge,
};

/// The evidence text for an alignment.
const ALIGNED: &str = "each query attends to one or a few keys, and different queries to different keys, as in an alignment of words";

/// The evidence text for heads that are as sharp as an alignment by their scores alone.
const OUT_OF_RANGE: &str = "; scores this wide make it sharp, whatever the words";

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let least = thresholds.entropy_collapse.relative_entropy;
    let alignment = thresholds.entropy_collapse.alignment;
    let (mut findings, mut n_judged, mut excused) = (Vec::new(), 0, Vec::new());
    for layer in evidence.layers {
        let (mut sharpest, mut n_alignments): (Option<Finding>, usize) = (None, 0);
        let n_past = weight::n_past_learning(evidence, layer, thresholds);
        for (head_idx, head) in layer.heads.iter().enumerate() {
            if !evidence.has_distributions(layer, head) {
                continue;
            }
            let entropy = collapse::relative_entropy(layer, head);
            if entropy.is_nan() || !collapse::has_rows(head) {
                continue;
            }
            n_judged += 1;
            let sharpness = collapse::sharpness(layer, head, entropy, thresholds);
            let place = layer.place().head(head_idx);
            let finding = |severity, threshold, advice: &str| Finding {
                check: CHECK.id,
                severity,
                place,
                value: entropy,
                threshold,
                unit: "of log n",
                evidence: format!(
                    "mean entropy is {:.1} % of log n: {}",
                    100.0 * entropy,
                    causes(head).join(", ")
                ),
                advice: advice.to_owned(),
            };
            match sharpness {
                Sharpness::Ordinary => {}
                Sharpness::Alignment => {
                    n_alignments += 1;
                    if sharpest.as_ref().is_none_or(|known| entropy < known.value) {
                        sharpest = Some(finding(Severity::Info, alignment, ALIGNED));
                    }
                }
                Sharpness::OutOfRange => {
                    let advice = collapse::cause(&layer.spec, &head.stats).advice();
                    let mut finding = finding(Severity::Warning, alignment, advice);
                    finding.evidence.push_str(OUT_OF_RANGE);
                    findings.push(finding);
                }
                Sharpness::Collapsed => match evidence.by_design(layer, head, thresholds) {
                    Some(design) => excused.push((place, entropy, design)),
                    None => {
                        let advice = collapse::cause(&layer.spec, &head.stats).advice();
                        let mut finding = finding(Severity::Warning, least, advice);
                        let of_layer = (n_past, layer.heads.len());
                        finding.severity =
                            weight::alone(&mut finding.evidence, head, of_layer, (entropy, least));
                        findings.push(finding);
                    }
                },
            }
        }
        // One finding for all alignments of a layer.
        findings.extend(sharpest.map(|mut finding| {
            if n_alignments > 1 {
                let others = format!(
                    "; {} more heads of the layer are as sharp",
                    n_alignments - 1
                );
                finding.evidence.push_str(&others);
            }
            finding
        }));
    }
    if n_judged == 0 {
        return Verdict::not_applicable(
            "fewer than four rows see two keys and are distributions over them",
        );
    }
    let excused = excuses(&excused);
    let mut verdict = match &excused {
        Some(excused) => Verdict::of(findings, excused.clone()),
        None => Verdict::of(findings, "no head attends to one key"),
    };
    if let (Status::Fired, Some(excused)) = (verdict.status, excused) {
        verdict.why = format!("{}; {excused}", verdict.why);
    }
    verdict
}

/// Lengths, angles and spread of a head's scores, if measured.
fn causes(head: &HeadReport) -> Vec<String> {
    let of = |stat: Stat| head.stats.of(stat);
    let mut causes = Vec::new();
    if of(Stat::QNorm).is_finite() {
        causes.push(format!(
            "‖q‖ {:.1}, ‖k‖ {:.1}",
            of(Stat::QNorm),
            of(Stat::KNorm)
        ));
        causes.push(format!("cos {:.2}", of(Stat::QkCosine)));
    }
    if of(Stat::ScoreStd).is_finite() {
        let predicted = of(Stat::ScoreVarPredicted).sqrt();
        let predicted = if predicted.is_nan() {
            String::new()
        } else {
            format!(" (its norms predict {predicted:.1})")
        };
        causes.push(format!("score std {:.1}{predicted}", of(Stat::ScoreStd)));
    }
    let saturated = 100.0 * of(Stat::SaturatedRows);
    causes.push(format!("{saturated:.0} % of rows saturated"));
    causes
}

/// The excused heads with their reasons: lowest entropy first, at most a few.
fn excuses(excused: &[(Place, f64, Design)]) -> Option<String> {
    const MOST: usize = 3;
    let mut lowest: Vec<_> = excused.iter().collect();
    lowest.sort_by(|a, b| a.1.total_cmp(&b.1));
    let said = lowest.iter().take(MOST).map(|(place, entropy, design)| {
        format!(
            "{place} at {:.1} % of log n gives {:.2} to {}",
            100.0 * entropy,
            design.share,
            design.what
        )
    });
    let said: Vec<String> = said.collect();
    let others = match excused.len().saturating_sub(MOST) {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    (!excused.is_empty()).then(|| {
        format!(
            "heads with a low entropy have it by design: {}: {}{others}",
            excused.len(),
            said.join("; ")
        )
    })
}
