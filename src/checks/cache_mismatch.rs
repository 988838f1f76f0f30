//! The model gives other outputs with a cache of keys and values than without.
//!
//! ## What it does
//! Runs the prompt in parts with a cache (some tokens at once, then one after the other; and in two parts), and compares what
//! every position gives with one run of the whole prompt.
//!
//! ## Why it matters
//! Training runs whole prompts, generation runs with a cache: where the two differ, a good model writes bad text. Usual causes:
//! positions that begin at 0 again in every step, keys cached before or after rotation and rotated twice, a causal mask
//! aligned at the top left when keys outnumber queries, an entry overwritten.
//!
//! ## How it is measured
//! From a probe of the model itself (`attnscope capture-script`): per module, largest |difference| divided by the largest
//! |value|; movements up to 1e-4 are rounding, since other shapes add in another order (5e-3 in float16, 4e-2 in bfloat16; ours).
//! It fires when the output moves, and names the first module that does.
//!
//! ## False alarms
//! Quantised caches are not exact by design. A model that sees later tokens cannot agree with its cache: `future-leak` or
//! `length-leak` tells it, and this check is silent.
//!
//! ## Example
//! Positions counted from 0 in each step: the embedding is the first module to move.

use super::evidence::{Evidence, Probed};
use super::invariance::{judge_invariance, moves};
use super::verdict::{Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "cache-mismatch",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("cache_mismatch.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let probes = evidence.probes;
    let sees_later = matches!(&probes.future, Probed::Ran(future)
        if future.first_pattern.is_some() || future.first_residual.is_some());
    if (sees_later || moves(&probes.length)) && moves(&probes.cache) {
        return Verdict::not_applicable(
            "the model depends on later tokens, which a cache does not hold: see the leak",
        );
    }
    judge_invariance(
        evidence,
        CHECK.id,
        &probes.cache,
        "look at the first module that moves: positions have to go on where the cache ends, keys are rotated once, and a causal \
         mask of fewer queries than keys is aligned at the bottom right",
        "outputs with a cache are those without",
    )
}
