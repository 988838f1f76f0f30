//! A head attends to everything alike.
//!
//! ## What it does
//! Looks for heads whose rows are spread evenly over all visible keys.
//!
//! ## Why it matters
//! An even row reads the mean of everything: the head selects nothing. It is a collapse too, towards the other end; in a trained
//! model it often means that q and k never grew, or that a learning rate or an initialisation kept them at zero.
//!
//! ## How it is measured
//! Mean over rows that see at least two keys of entropy / log(visible keys), beyond the threshold (ours). In the first layer of
//! a stack it is for information, unless the standard deviation of the head's scores is below a second threshold (ours).
//!
//! ## False alarms
//! Untrained models are uniform rightly: nothing is said where `untrained` fires. In a trace whose recorder found that the model
//! is not trained (`attnscope.untrained`), it is for information: the gains of all norms are alike, all biases are 0, or, in a model
//! without gains, no matrix has a singular value beyond the edge of `untrained-layer`. Trained heads of a first layer average on
//! purpose, where the mean of what went before says something: their scores are flat but not constant.
//! A head of which fewer than four rows see two keys, such as a step of a decoder, is not judged. Nor is one whose keys are alike by what
//! was read: frames of a still picture, at which a layer over time looks, or keys that weigh one and the same vector.
//!
//! ## Example
//! W_K initialised to zero: every score is 0, every row even.

use attnscope_compute::attention::KeyRank;

use super::collapse::has_rows;
use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds, untrained};
use crate::stats::{LayerReport, Stat};

pub static CHECK: Check = Check {
    id: "entropy-uniform",
    severity: Severity::Warning,
    needs: Needs::Pattern,
    source: include_str!("entropy_uniform.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let most = thresholds.entropy_uniform.relative_entropy;
    let flat = thresholds.entropy_uniform.score_std;
    if untrained::is_untrained_model(evidence, thresholds) {
        return Verdict::not_applicable(
            "the whole model is untrained: uniform attention is expected of it",
        );
    }
    let (mut findings, mut n_judged) = (Vec::new(), 0);
    for (layer, head_idx, head) in evidence.heads() {
        let entropy = head.stats.of(Stat::EntropyRelative);
        let is_judged = evidence.has_distributions(layer, head) && has_rows(head);
        if entropy.is_nan() || layer.has_sinks || !is_judged || has_alike_keys(layer) {
            continue;
        }
        n_judged += 1;
        if entropy <= most {
            continue;
        }
        let std = head.stats.of(Stat::ScoreStd);
        let spread = if std.is_finite() {
            format!(", score std {std:.3}")
        } else {
            String::new()
        };
        let is_on_purpose = layer.layer_idx == 0 && std >= flat;
        let untrained = evidence.untrained;
        let reason = untrained.map_or(String::new(), |why| format!("; not trained: {why}"));
        findings.push(Finding {
            check: CHECK.id,
            severity: if is_on_purpose || untrained.is_some() {
                Severity::Info
            } else {
                Severity::Warning
            },
            place: layer.place().head(head_idx),
            value: entropy,
            threshold: most,
            unit: "of log n",
            evidence: format!(
                "mean entropy is {:.2} % of log n: every visible key gets the same{spread}{reason}",
                100.0 * entropy
            ),
            advice: if untrained.is_some() {
                "nothing to do before training: uniform attention is expected of an untrained model"
            } else if is_on_purpose {
                "nothing to do if the head averages on purpose, as heads of first layers do"
            } else {
                "look at the norms of this head's W_Q and W_K: scores this flat do not select any key"
            }
            .to_owned(),
        });
    }
    match n_judged {
        0 => Verdict::not_applicable(
            "fewer than four rows see two keys and are distributions over them",
        ),
        _ => Verdict::of(findings, "no head attends uniformly to all keys"),
    }
}

/// Whether the keys of a query are alike by what was read: one place in the frames of a still picture, or as recorded.
fn has_alike_keys(layer: &LayerReport) -> bool {
    let by = layer.spec.top_keys.map(|top_keys| top_keys.by);
    let is_over_time = matches!(by, Some(KeyRank::Window(window)) if window.is_spread);
    let audit = layer.audit();
    is_over_time || audit.is_some_and(|audit| audit.recorded.has_alike_values)
}
