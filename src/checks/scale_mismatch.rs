//! The spread of the scores is not what their scale and norms predict.
//!
//! ## What it does
//! Compares the observed variance of the scores with what the head's own norms predict under independence, and looks for a scale
//! that is larger than 1/√d_head.
//!
//! ## Why it matters
//! With 1/√d and independent components of unit variance scores have variance 1 whatever d is (Vaswani et al. 2017); a missing
//! scale multiplies the variance by d and saturates the softmax.
//!
//! ## How it is measured
//! Observed: variance of scale·q·k over visible pairs. Predicted: scale²·mean(‖q‖²‖k‖²)/d_head over the same pairs. Value: their
//! ratio, or its inverse.
//!
//! ## False alarms
//! Trained heads are far from independent by design: information, never a fault. Families that state another scale (granite, mup
//! models) make up for it in their weights.
//!
//! ## Example
//! T5 has no scale and initialises W_Q smaller instead: its predicted variance is ordinary, and nothing is said.

use attnscope_spec::Place;

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds, collapse};
use crate::stats::Stat;

pub static CHECK: Check = Check {
    id: "scale-mismatch",
    severity: Severity::Info,
    needs: Needs::Scores,
    source: include_str!("scale_mismatch.rs"),
    judge,
};

/// Scores with less variance than this saturate nothing.
const ORDINARY_VARIANCE: f64 = 4.0;

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let most = thresholds.scale_mismatch.variance_ratio;
    let times = thresholds.scale_mismatch.times_inv_sqrt_d;
    let (mut findings, mut n_judged) = (Vec::new(), 0);
    let mut farthest: Option<(f64, f64, Place)> = None;
    for layer in evidence.layers {
        let spec = &layer.spec;
        let mut worst: Option<(f64, Finding)> = None;
        for (head_idx, head) in layer.heads.iter().enumerate() {
            let of = |stat: Stat| head.stats.of(stat);
            let (observed, predicted) = (of(Stat::ScoreVarObserved), of(Stat::ScoreVarPredicted));
            let ratio = observed / predicted;
            let excess = collapse::spread_excess(&head.stats);
            if !ratio.is_finite() || head.summary.rows.len() < 4 {
                continue;
            }
            n_judged += 1;
            let times_usual = collapse::times_inv_sqrt_d(spec);
            let is_unscaled = times_usual >= times && observed > ORDINARY_VARIANCE;
            if !is_unscaled && excess <= most {
                if farthest
                    .as_ref()
                    .is_none_or(|(largest, ..)| excess > *largest)
                {
                    farthest = Some((excess, ratio, layer.place().head(head_idx)));
                }
                continue;
            }
            let evidence = if is_unscaled {
                format!(
                    "the scale is {:.1} times 1/√d and scores have variance {observed:.1}; with 1/√d it would be {:.2}",
                    times_usual,
                    observed / (times_usual * times_usual)
                )
            } else {
                format!("scores have variance {observed:.3}, their norms predict {predicted:.3}")
            };
            let (value, threshold) = if is_unscaled {
                (times_usual, times)
            } else {
                (ratio, if ratio > 1.0 { most } else { 1.0 / most })
            };
            let finding = Finding {
                check: CHECK.id,
                severity: Severity::Info,
                place: layer.place().head(head_idx),
                value,
                threshold,
                unit: "times",
                evidence,
                advice: "compare the scale with the training code's; a head whose queries and keys align on purpose is fine".to_owned(),
            };
            if worst.as_ref().is_none_or(|(size, _)| excess > *size) {
                worst = Some((excess, finding));
            }
        }
        findings.extend(worst.map(|(_, finding)| finding));
    }
    let otherwise = farthest.map_or(String::new(), |(_, ratio, place)| {
        format!(
            "the variance of scores is at most {most} times what norms predict, or that much less; farthest is {place} at {ratio:.2} times"
        )
    });
    match n_judged {
        0 => Verdict::not_applicable("there are no queries and keys to look at"),
        _ => Verdict::of(findings, otherwise),
    }
}
