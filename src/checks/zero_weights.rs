//! A matrix, or the rows of a head, are exactly 0.
//!
//! ## What it does
//! Finds matrices of layers, embeddings and unembeddings that hold nothing but zeros, and heads whose part of a projection does.
//!
//! ## Why it matters
//! A zero matrix passes nothing on and, between two zero matrices, no gradient either. Zeros come from weights that were
//! allocated and never loaded, from pruning, and from 16-bit numbers that were too small.
//!
//! ## How it is measured
//! Every value of a stored matrix is 0; or all values that one head has in W_Q, W_K, W_V or W_O are.
//!
//! ## False alarms
//! Biases, gains, single rows of embeddings (padding) and tables of positions may be 0. Heads that were pruned are 0 on purpose.
//! Layers that begin as an identity have one zero matrix each until they are trained.
//!
//! ## Example
//! `torch.empty` on a fresh page of memory: `layers.3.mlp.down_proj.weight` is 0.

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::weights_seen::ZeroWeights;
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "zero-weights",
    severity: Severity::Warning,
    needs: Needs::Weights,
    source: include_str!("zero_weights.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let weights = match evidence.weights() {
        Ok(weights) => weights,
        Err(verdict) => return verdict,
    };
    let finding = |zero: &ZeroWeights| Finding {
        check: CHECK.id,
        severity: Severity::Warning,
        place: zero.place,
        value: 1.0,
        threshold: 0.0,
        unit: "",
        evidence: match zero.part.as_str() {
            "" => format!("{} is 0 throughout", zero.tensor),
            part => format!("{}: {part} are 0 throughout", zero.tensor),
        },
        advice: "see whether the weights were loaded, or pruned on purpose".to_owned(),
    };
    let findings = weights.zeros.iter().map(finding).collect();
    Verdict::of(findings, "no matrix and no head is 0 throughout")
}
