//! Outputs of the first tokens depend on how long the prompt is.
//!
//! ## What it does
//! Runs the first tokens of the prompt alone, and compares what they give with what they give in the whole prompt.
//!
//! ## Why it matters
//! A causal model must give a position the same output whatever comes later, even when nothing comes. A mean or a norm over
//! positions, a scale taken from the length of the prompt, and positions counted from its end all break this; generation
//! then sees other values than training did.
//!
//! ## How it is measured
//! From a probe of the model itself (`attnscope capture-script`): one token less, and half of the tokens. Per module, largest
//! |difference| divided by the largest |value|; movements up to 1e-4 are rounding, since other shapes add in another order
//! (5e-3 in float16, 4e-2 in bfloat16; ours). It fires when the output moves, and names the first module that does.
//!
//! ## False alarms
//! Rotary frequencies that are scaled by the length of the prompt (dynamic NTK) move beyond the trained length by design:
//! probe with a prompt within it. The capacity of experts (GShard, Switch) follows the number of tokens by design. Where later tokens themselves are seen, `future-leak` tells it and this check is silent.
//!
//! ## Example
//! Scores divided by the square root of the number of tokens: every position moves from the first attention on.

use super::evidence::{Evidence, Probed};
use super::invariance::{judge_invariance, moves};
use super::verdict::{Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "length-leak",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("length_leak.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let probes = evidence.probes;
    if let (Probed::Ran(future), true) = (&probes.future, moves(&probes.length))
        && (future.first_pattern.is_some() || future.first_residual.is_some())
    {
        return Verdict::not_applicable(
            "the model sees later tokens, so that it misses those cut off: future-leak tells where",
        );
    }
    judge_invariance(
        evidence,
        CHECK.id,
        &probes.length,
        "look at the first module that moves for means and norms over positions, scales taken from the number of tokens, \
         positions counted from the end, and experts whose capacity follows the number of tokens",
        "positions do not depend on how many follow",
    )
}
