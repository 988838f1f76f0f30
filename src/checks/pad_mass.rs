//! Probability on padded keys.
//!
//! ## What it does
//! Adds up the probability that real queries give to keys that the attention mask calls padding.
//!
//! ## Why it matters
//! Outputs then depend on how much padding a batch happened to need. Seen in the wild: TransformerLens #1609 (loss 4.5 → 13.6
//! without an error), transformers #29419.
//!
//! ## How it is measured
//! Over cells of real queries and padded keys: the sum, and the largest cell. Padded queries are left out: what they do is
//! garbage by design.
//!
//! ## False alarms
//! None known where the attention mask is the right one.
//!
//! ## Example
//! A left-padded batch run without `attention_mask`: the first real tokens attend to pads.

use super::evidence::Evidence;
use super::mask_mass::{Kind, forbidden};
use super::verdict::{Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "pad-mass",
    severity: Severity::Error,
    needs: Needs::Pattern,
    source: include_str!("pad_mass.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let has_pads = evidence
        .heads()
        .any(|(_, _, head)| head.summary.real_keys.is_some());
    if !has_pads {
        return Verdict::not_applicable("no key is padding");
    }
    let kind = Kind {
        check: CHECK.id,
        most: thresholds.pad_mass.error_mass,
        what: "is padding",
        advice: "pass the attention mask to the model, and add −inf to the scores of padded keys before the softmax",
        of: |audit| audit.on_pads,
        may: |_| true,
    };
    forbidden(evidence, &kind, "no query gives anything to a padded key")
}
