//! A row of a batch depends on the other rows.
//!
//! ## What it does
//! Compares what a module gives for a row alone with what it gives for the same row among others.
//!
//! ## Why it matters
//! A mask broadcast over the wrong axis, a softmax or a norm over the batch mixes samples; the loss looks fine. Seen in the
//! wild: a mask broadcast bug, hyunwoongko/transformer PR #40.
//!
//! ## How it is measured
//! From a probe of the model itself (`attnscope capture-script`): per module, largest |difference| divided by the largest
//! |value|, in the order of the forward pass.
//!
//! ## False alarms
//! Kernels round differently for other batch sizes: movements up to a thousandth of a percent are rounding. Experts
//! with a capacity drop tokens by what else is in the batch (GShard, Switch): there it is the design of a training, and still what
//! makes the same text give other outputs at inference.
//!
//! ## Example
//! A mean over dim 0 of [batch, position, width].

use super::evidence::Evidence;
use super::invariance::judge_invariance;
use super::verdict::{Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "batch-leak",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("batch_leak.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    judge_invariance(
        evidence,
        CHECK.id,
        &evidence.probes.batch,
        "look at the first module that moves for a mean, norm or softmax over the batch, for masks of the wrong shape, and for experts with a capacity",
        "rows do not depend on their neighbours",
    )
}
