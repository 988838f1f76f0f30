//! Two passes over one prompt differ.
//!
//! ## What it does
//! Runs the prompt twice in eval mode, from the same and from another random state, and compares what every module gives.
//!
//! ## Why it matters
//! Dropout that is still on (a functional dropout without `training=self.training`, or `dropout_p` given to
//! `scaled_dot_product_attention` in eval mode) makes every output worse and no two alike. State that a module keeps between
//! calls has the same effect, and so has teacher forcing that is decided by chance in eval mode too.
//!
//! ## How it is measured
//! From a probe of the model itself (`attnscope capture-script`): per module, largest |difference| divided by the largest
//! |value|; movements up to 1e-4 are the order in which a parallel device adds (ours).
//!
//! ## False alarms
//! Models that sample by design (variational layers, noisy routers) differ; the first module tells. It is information where a probe
//! recorded that two passes from one random state of torch agree, that nothing but `randint`, `randperm` and `multinomial` drew,
//! and that what they drew was used as indices alone, as that of sampled keys is.
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
    let mut verdict = judge_invariance(
        evidence,
        CHECK.id,
        &evidence.probes.repeat,
        "look in the first module that moves for dropout that does not ask for self.training, for a choice by chance such as teacher forcing, \
         and for state kept between calls",
        "two passes agree",
    );
    let has_moved = !verdict.findings.is_empty();
    if let Some(functions) = evidence.probes.sampled.as_ref().filter(|_| has_moved) {
        for finding in &mut verdict.findings {
            finding.severity = Severity::Info;
            finding.evidence = format!(
                "{}; functions of torch that choose indices drew every random number ({functions})",
                finding.evidence
            );
            "nothing to do where the code samples on purpose, as attention over sampled keys does; seed it to compare two runs"
                .clone_into(&mut finding.advice);
        }
        verdict = Verdict::of_our_run(evidence, verdict.findings, "two passes agree");
    }
    verdict
}
