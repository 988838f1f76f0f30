//! Scores have grown out of range.
//!
//! ## What it does
//! Compares the largest |score| of each head with the limit of QK-Clip, and |q·k| before scaling with what f16 holds.
//!
//! ## Why it matters
//! Exploding scores come before a diverging loss: rows become one-hot and gradients vanish (ViT-22B, arXiv 2302.05442); in f16
//! the product overflows before it is scaled.
//!
//! ## How it is measured
//! Largest |scale·q·k| over visible pairs, after rope and QK-norm, before softcap and bias; threshold 100 (τ of Kimi K2, arXiv
//! 2507.20534). The f16 limit is 65 504 for |q·k|. A warning, and an error where `entropy-collapse` is one: most of the layer is
//! past learning.
//!
//! ## False alarms
//! A softcap bounds what enters the softmax: the scores before it are judged, and the finding says so.
//!
//! ## Example
//! A head with max |score| 141 after a learning-rate spike.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds, collapse, weight};
use crate::stats::Stat;

pub static CHECK: Check = Check {
    id: "score-explosion",
    severity: Severity::Error,
    needs: Needs::Scores,
    source: include_str!("score_explosion.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let most = thresholds.score_explosion.max_abs_score;
    let f16 = thresholds.score_explosion.f16_limit;
    let (mut findings, mut n_judged) = (Vec::new(), 0);
    for (layer, head_idx, head) in evidence.heads() {
        let largest = head.stats.of(Stat::MaxAbsScore);
        // Infinite scores are left to `nan-or-inf`.
        if !largest.is_finite() {
            continue;
        }
        n_judged += 1;
        let product = largest / f64::from(layer.spec.scale.factor(layer.spec.d_head));
        let capped = layer
            .spec
            .softcap
            .map_or(String::new(), |cap| format!(", before a softcap of {cap}"));
        let finding = |value, threshold, evidence: String, advice: &str| Finding {
            check: CHECK.id,
            severity: Severity::Warning,
            place: layer.place().head(head_idx),
            value,
            threshold,
            unit: "",
            evidence,
            advice: advice.to_owned(),
        };
        if largest > most {
            let times = collapse::times_inv_sqrt_d(&layer.spec);
            let is_by_scale = times >= collapse::UNSCALED && largest / times <= most;
            let (with_usual, advice) = if is_by_scale {
                let with_usual = format!("; it would be {:.1} with 1/√d", largest / times);
                (with_usual, collapse::Cause::Scale.advice())
            } else {
                let advice = "clip W_Q and W_K of this head (QK-Clip), add QK-norm, or lower the learning rate";
                (String::new(), advice)
            };
            let mut found = finding(
                largest,
                most,
                format!("max |score| is {largest:.1}{capped}{with_usual}"),
                advice,
            );
            let n_past = weight::n_past_learning(evidence, layer, thresholds);
            let of_layer = (n_past, layer.heads.len());
            found.severity = weight::alone(&mut found.evidence, head, of_layer, (largest, most));
            findings.push(found);
        } else if product > f16 {
            findings.push(finding(
                product,
                f16,
                format!("max |q·k| before scaling is {product:.0}, more than f16 holds"),
                "scale queries before the product, or compute scores in f32 or bf16",
            ));
        }
    }
    match n_judged {
        0 => Verdict::not_applicable("there are no scores to look at"),
        _ => Verdict::of(findings, format!("every |score| is below {most}")),
    }
}
