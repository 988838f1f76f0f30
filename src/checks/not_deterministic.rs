//! Two passes over one prompt differ.
//!
//! ## What it does
//! Runs the prompt twice in eval mode, from the same and from another random state, and compares what every module gives.
//!
//! ## Why it matters
//! Dropout that is still on (a functional dropout without `training=self.training`, or `dropout_p` given to
//! `scaled_dot_product_attention` in eval mode) makes every output worse and no two alike. State that a module keeps between
//! calls has the same effect.
//!
//! ## How it is measured
//! From a probe of the model itself (`attnscope capture-script`): per module, largest |difference| divided by the largest
//! |value|; movements up to 1e-4 are the order in which a parallel device adds (ours).
//!
//! ## False alarms
//! Models that sample by design (variational layers, noisy routers) differ; the first module tells.
//!
//! ## Example
//! `F.dropout(pattern, 0.1)`: the first module to move is the projection behind the first attention.

use super::evidence::Evidence;
use super::invariance::judge_invariance;
use super::verdict::{Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "not-deterministic",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("not_deterministic.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    judge_invariance(
        evidence,
        CHECK.id,
        &evidence.probes.repeat,
        "look in the first module that moves for dropout that does not ask for self.training, and for state kept between calls",
        "two passes agree",
    )
}
