//! The softmax of a head passes no gradient.
//!
//! ## What it does
//! Counts rows whose softmax is so close to one-hot that its derivative is almost zero.
//!
//! ## Why it matters
//! A saturated row learns nothing: the gradient that reaches q and k is the Jacobian of the softmax times what comes back.
//!
//! ## How it is measured
//! Row saturated: tr J = m − Σp² below 1e-3 (ours), with m the mass of the row; the share of such rows among those that see at
//! least two keys. A warning, and an error where `entropy-collapse` is one: most of the layer is past learning.
//!
//! ## False alarms
//! Heads that are one-hot by design (previous token, sinks, copies) are saturated and fine: they are left out as in
//! `entropy-collapse`. An alignment of words, by the same rule, is information. A verdict that passes says the largest share of
//! saturated rows, which may be high.
//! A head of which fewer than four rows see two keys, such as a step of a decoder, is not judged.
//!
//! ## Example
//! Every row of a head gives 0.9999 to one key.

use attnscope_spec::Place;

use super::collapse::Sharpness;
use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds, collapse, weight};
use crate::stats::Stat;

pub static CHECK: Check = Check {
    id: "softmax-saturation",
    severity: Severity::Error,
    needs: Needs::Pattern,
    source: include_str!("softmax_saturation.rs"),
    judge,
};

const SPREAD: &str = "lower the spread of the scores: scale, QK-norm, or a temperature above 1";
const ALIGNED: &str = "nothing: an alignment of words is as sharp as this";

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let most = thresholds.softmax_saturation.saturated_rows;
    let (mut findings, mut n_judged, mut n_spared) = (Vec::new(), 0, 0);
    let mut nearest: Option<(f64, Place)> = None;
    for (layer, head_idx, head) in evidence.heads() {
        let of = |stat: Stat| head.stats.of(stat);
        let share = of(Stat::SaturatedRows);
        if share.is_nan() || !evidence.has_distributions(layer, head) || !collapse::has_rows(head) {
            continue;
        }
        n_judged += 1;
        let place = layer.place().head(head_idx);
        if !collapse::is_saturated(share, thresholds) {
            if nearest.is_none_or(|(largest, _)| share > largest) {
                nearest = Some((share, place));
            }
            continue;
        }
        if evidence.by_design(layer, head, thresholds).is_some() {
            n_spared += 1;
            continue;
        }
        let mut seen = format!(
            "{:.0} % of rows are saturated; mean largest probability {:.4}",
            100.0 * share,
            of(Stat::MaxProbability)
        );
        let entropy = collapse::relative_entropy(layer, head);
        let is_alignment =
            collapse::sharpness(layer, head, entropy, thresholds) == Sharpness::Alignment;
        let (severity, advice) = if is_alignment {
            seen.push_str("; different queries attend to different keys");
            (Severity::Info, ALIGNED)
        } else {
            let n_past = weight::n_past_learning(evidence, layer, thresholds);
            let of_layer = (n_past, layer.heads.len());
            let severity = weight::alone(&mut seen, head, of_layer, (share, most));
            (severity, SPREAD)
        };
        findings.push(Finding {
            check: CHECK.id,
            severity,
            place,
            value: share,
            threshold: most,
            unit: "of rows",
            evidence: seen,
            advice: advice.to_owned(),
        });
    }
    if n_judged == 0 {
        return Verdict::not_applicable(
            "fewer than four rows see two keys and are distributions over them",
        );
    }
    let spared = match n_spared {
        0 => String::new(),
        n => format!("; heads that are saturated by design: {n}"),
    };
    let otherwise = match nearest {
        Some((share, place)) if share > 0.0 => format!(
            "at most {:.0} % of the rows of a head are saturated ({place}), up to {:.0} % are allowed{spared}",
            100.0 * share,
            100.0 * most
        ),
        Some(_) => format!("no row is saturated{spared}"),
        None => format!("every head is saturated by design: {n_spared}"),
    };
    Verdict::of(findings, otherwise)
}
