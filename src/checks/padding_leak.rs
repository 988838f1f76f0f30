//! Outputs of real tokens depend on padding.
//!
//! ## What it does
//! Runs the prompt without padding, with pads on the left and with pads on the right, positions counted over real tokens, and
//! compares what real tokens give. A probe of somebody else's model also pads rows of unequal length together, and compares each
//! with the row alone.
//!
//! ## Why it matters
//! One sentence gives different answers in different batches. Seen in the wild: TransformerLens #1609, transformers #29419.
//!
//! ## How it is measured
//! Residuals of real tokens after every layer, largest |difference| divided by the largest |value|; movements up to 1e-4 are
//! rounding, since other shapes add in another order (ours).
//!
//! A checkpoint is run on the first 256 positions of its first prompt, or on 64 where it needs 20 million multiplications a
//! token or more.
//!
//! ## False alarms
//! Families whose learned positions cannot be shifted are told positions explicitly; one that takes none is not tried. Pads on the
//! left are not tried where layers without attention read padding by design: recurrent ones, and those with a bias before a convolution;
//! nor where the first token sees all others, which a pad in its place does not. A probed model that takes no `position_ids` and
//! counts positions from the first pad on is not compared with pads on the left.
//!
//! ## Example
//! An encoder that is given no attention mask: every layer moves from the first on.

use super::evidence::{Evidence, Probed};
use super::invariance::{judge_invariance, moves};
use super::verdict::{Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "padding-leak",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("padding_leak.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let probes = evidence.probes;
    let sees_later =
        matches!(&probes.future, Probed::Ran(future) if future.first_residual.is_some());
    if moves(&probes.length) && moves(&probes.padding) && !sees_later {
        return Verdict::not_applicable(
            "outputs depend on the number of tokens, padding or not: length-leak tells where",
        );
    }
    judge_invariance(
        evidence,
        CHECK.id,
        &evidence.probes.padding,
        "pass the attention mask, and positions counted over real tokens, to every layer",
        "real tokens do not depend on padding",
    )
}
