//! A packed document depends on the one before it.
//!
//! ## What it does
//! Changes the first of two packed documents and looks whether the second moves.
//!
//! ## Why it matters
//! Packing without isolation trains a model to attend across unrelated texts; starting positions again is not isolation. Seen
//! in the wild: transformers PR #46634, axolotl PR #3796, nanoVLM PR #204. transformers 5.24 keeps documents apart by `position_ids`
//! only with `use_cache=False`: with its default, 0.35 of the attention of a fresh Llama goes to the other document.
//!
//! ## How it is measured
//! From a probe with `documents=[…]` (`attnscope capture-script`): per module, largest |difference| at positions of the second
//! document, divided by the largest |value|. On traces with `--documents 0,17`: probability on keys of another document.
//!
//! ## False alarms
//! Models that are meant to attend across documents.
//!
//! ## Example
//! Two documents in one row with a plain causal mask: every token of the second reads the first.

use super::evidence::{Evidence, Subject};
use super::invariance::judge_invariance;
use super::mask_mass::{Kind, forbidden};
use super::verdict::{Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "document-leak",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("document_leak.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let mut audits = evidence
        .heads()
        .filter_map(|(_, _, head)| head.audit.as_ref());
    if evidence.subject == Subject::Trace && audits.any(|audit| audit.has_documents) {
        let kind = Kind {
            check: CHECK.id,
            most: thresholds.document_leak.error_mass,
            what: "belongs to another document",
            advice: ADVICE,
            of: |audit| audit.across_documents,
            may: |layer| !layer.spec.is_cross,
        };
        return forbidden(evidence, &kind, OTHERWISE);
    }
    judge_invariance(
        evidence,
        CHECK.id,
        &evidence.probes.documents,
        ADVICE,
        OTHERWISE,
    )
}

const ADVICE: &str = "use a block-diagonal mask, or cumulative sequence lengths, for packed rows";
const OTHERWISE: &str = "documents do not see each other";
