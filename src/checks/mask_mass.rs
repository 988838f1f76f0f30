//! Probability on keys that come after the query, under a causal mask.
//!
//! ## What it does
//! Adds up the probability that queries give to later keys, where the mask is declared or inferred to be causal.
//!
//! ## Why it matters
//! Each such cell lets an output read its own label: the loss falls towards 0 and the model cannot generate. Seen in the wild:
//! transformers #48745 (loss almost 0 on random tokens), transformers PR #48770 (perplexity 5 instead of 16), keras #23038,
//! LLMs-from-scratch PR #1062.
//!
//! ## How it is measured
//! Over cells with key > query of real queries and real keys: the sum, and the largest cell with its place. In f32 any mass
//! that is not exactly 0 is a finding: above the threshold an error, below it a warning (a softcap after the mask, or a mask
//! of −20, leaves little, and still proves that the order is wrong). Padded keys and window cells count in their own checks.
//!
//! ## False alarms
//! A prefix-LM sees its prefix both ways: declare it (`attnscope.prefix` in the metadata). A softmax over the wrong axis has no mass here and
//! leaks all the same: `wrong-axis` and `future-leak` find it.
//!
//! ## Example
//! A layer that never got the mask: half of each early row lies on later keys.

use attnscope_compute::attention::{Audit, Direction, Fault, Forbidden, Shape};

use super::evidence::{Evidence, Subject};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds, figure};
use crate::stats::LayerReport;

pub static CHECK: Check = Check {
    id: "mask-mass",
    severity: Severity::Error,
    needs: Needs::Pattern,
    source: include_str!("mask_mass.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    if !evidence.layers.iter().any(|layer| layer.spec.mask.causal) {
        return Verdict::not_applicable("no layer is declared causal: every key may be seen");
    }
    let kind = Kind {
        check: CHECK.id,
        most: thresholds.mask_mass.error_mass,
        what: "comes after it",
        advice: "apply the causal mask to the scores before the softmax, with −inf, in every layer",
        of: |audit| audit.after,
        may: |layer| layer.spec.mask.causal,
    };
    forbidden(evidence, &kind, "no query gives anything to a later key")
}

/// Hidden scores above this were not written as a large negative number.
const LEAST_WRITTEN: f32 = -30.0;

/// A kind of forbidden cell.
pub(super) struct Kind {
    pub check: &'static str,
    /// Probability above which it is an error.
    pub most: f64,
    /// Why the key is forbidden.
    pub what: &'static str,
    pub advice: &'static str,
    pub of: fn(&Audit) -> Forbidden,
    /// Whether a layer can have such cells.
    pub may: fn(&LayerReport) -> bool,
}

/// One finding per layer with probability on cells of a kind: the worst cell of the worst head.
pub(super) fn forbidden(evidence: &Evidence<'_>, kind: &Kind, otherwise: &str) -> Verdict {
    if evidence.subject == Subject::Checkpoint {
        // attnscope writes 0 to every masked cell of its own runs, so there is nothing to measure.
        return Verdict::of_our_run(evidence, Vec::new(), otherwise);
    }
    let mut findings = Vec::new();
    for layer in evidence.layers.iter().filter(|layer| (kind.may)(layer)) {
        let audits = layer.heads.iter().enumerate();
        let found = audits.filter_map(|(head_idx, head)| {
            let forbidden = (kind.of)(head.audit.as_deref()?);
            (forbidden.mass != 0.0).then_some((head_idx, forbidden))
        });
        let found: Vec<(usize, Forbidden)> = found.collect();
        let worst = found
            .iter()
            .max_by(|a, b| a.1.largest.total_cmp(&b.1.largest));
        let Some((head_idx, worst)) = worst else {
            continue;
        };
        let severity = if worst.mass > kind.most || worst.mass.is_nan() {
            Severity::Error
        } else {
            Severity::Warning
        };
        let (query_idx, key_idx) = (worst.query_idx, worst.key_idx);
        let shape = layer.audit().and_then(|audit| audit.shape.as_ref());
        let is_other = |shape: &&Shape| shape.is_tight && shape.direction != Direction::Causal(0);
        let shape = shape.filter(is_other).filter(|_| kind.check == CHECK.id);
        let looks = shape.map_or(String::new(), |shape| {
            format!("; the layer sees {}", shape.words())
        });
        let audit = layer.heads.first().and_then(|head| head.audit.as_deref());
        let deviation = audit.and_then(|audit| audit.head_axis_deviation);
        let is_over_heads = deviation.is_some_and(|deviation| deviation <= evidence.row_tolerance);
        let worst_audit = layer.heads[*head_idx].audit.as_deref();
        let fault = worst_audit.and_then(|audit| audit.fault);
        let is_twice = fault.is_some_and(|fault| fault.by == Fault::Twice);
        let written = worst_audit.and_then(|audit| audit.hidden_score);
        let written = written.filter(|score| *score > LEAST_WRITTEN);
        let written = written.map_or(String::new(), |score| {
            format!("; the mask writes {score:e} to every hidden score")
        });
        let advice = match shape.map(|shape| shape.direction) {
            _ if is_over_heads => {
                "correct the axis of the softmax (wrong-axis): over heads, every key that a finite number masks gets 1/n_heads"
            }
            _ if !written.is_empty() => {
                "write −inf (or −1e9, with the minus sign) to hidden scores: a number that is not far below all others leaves them a share"
            }
            Some(Direction::Prefix(_)) => {
                "declare the prefix (attnscope.prefix in the metadata) if it is meant; otherwise apply the causal mask to it as well"
            }
            Some(Direction::Causal(1)) => {
                "shift the mask by one: torch.triu(…, diagonal=1) marks what is hidden, tril() what is seen"
            }
            Some(Direction::Inverted) => "invert the mask: it hides what it should show",
            _ if is_twice => {
                "remove the second softmax: it gives a share to every key that the first one hid"
            }
            _ => kind.advice,
        };
        let others = match found.len() {
            1 => String::new(),
            n => format!("; {n} heads of the layer do so"),
        };
        findings.push(Finding {
            check: kind.check,
            severity,
            place: layer.place().head(*head_idx).query(query_idx).key(key_idx),
            value: worst.mass,
            threshold: kind.most,
            unit: "",
            evidence: format!(
                "query {query_idx} gives {} to key {key_idx}, which {}; {} in all{others}{looks}{written}",
                figure(f64::from(worst.largest)),
                kind.what,
                figure(worst.mass)
            ),
            advice: advice.to_owned(),
        });
    }
    Verdict::of(findings, otherwise)
}
