//! The model does not notice the order of its tokens.
//!
//! ## What it does
//! Shuffles the tokens before the last one, and looks whether the last position moves: in the model's output, and where tokens
//! meet for the first time, which is the first attention as a rule.
//!
//! ## Why it matters
//! Positions that are added to nothing, a rotation over the wrong axis (heads in place of positions), or positions that are
//! all 0 leave a bag of words. A causal mask hides it: from the second layer on, a position knows how many came before.
//!
//! ## How it is measured
//! Largest |difference| of the last position divided by the largest |value|, over some orders, beside the same for other tokens
//! in place of other orders. A movement of up to 1e-5, and less than a thousandth of what other tokens move, is rounding
//! (ours). When the output does not move, it is an error; when the first attention alone does not, a warning. A checkpoint is
//! run on the first 64 positions of its first prompt, or on 32 where it needs 20 million multiplications a token or more.
//!
//! ## False alarms
//! Models made without positions (NoPE), and models whose first layer has none by design: declare them with
//! `probe(…, positions="none")`, and it is for information. It cannot see positions that are wrong but different from each
//! other. A model in half precision may be too coarse to tell. Models whose positions are a convolution over the sound (wav2vec 2.0 and
//! its kin) are not tested: the frames that would be shuffled have them already. So are models without positions of their own
//! that are given rows in place of tokens: rows may hold positions.
//!
//! ## Example
//! A rotation by the head's number: the first attention gives the last token the same, whatever the order before it.

use super::evidence::{Evidence, OrderProbe, Reordered};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "order-blind",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("order_blind.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let probe = match evidence.probes.order.seen() {
        Ok(probe) => probe,
        Err(verdict) => return verdict,
    };
    if probe.output.by_content <= probe.resolution.max(probe.tolerance) {
        return Verdict::undecidable(format!(
            "the last position of {} does not move when the tokens before it are others either",
            name(&probe.output)
        ));
    }
    let share = thresholds.order_blind.share;
    let all = is_blind(probe, &probe.output, share);
    let first = is_blind(probe, &probe.first, share);
    let coarse = |part: &Reordered| part.by_order > 0.0 && part.by_order <= probe.resolution;
    if !all && !first && (coarse(&probe.output) || coarse(&probe.first)) {
        return Verdict::undecidable(
            "the movements are as small as the rounding of the model's dtype: probe the model in float32",
        );
    }
    let (part, severity) = match (all, first) {
        (true, _) => (&probe.output, Severity::Error),
        (false, true) => (&probe.first, Severity::Warning),
        (false, false) => {
            return Verdict::passed(format!(
                "the last position moves by {:.1e} when earlier tokens stand in another order, by {:.1e} at {}",
                probe.output.by_order,
                probe.first.by_order,
                name(&probe.first)
            ));
        }
    };
    let severity = if probe.declares_none {
        Severity::Info
    } else {
        severity
    };
    Verdict::of(vec![finding(probe, part, severity, all)], "")
}

fn is_blind(probe: &OrderProbe, part: &Reordered, share: f64) -> bool {
    part.by_content > probe.resolution
        && part.by_order <= probe.tolerance
        && part.by_order <= share * part.by_content
}

fn name(part: &Reordered) -> String {
    part.name.clone().unwrap_or_else(|| part.place.to_string())
}

fn finding(probe: &OrderProbe, part: &Reordered, severity: Severity, all: bool) -> Finding {
    let rest = if all {
        format!("first where tokens meet: {}", name(&probe.first))
    } else {
        format!(
            "the output moves by {:.1e}: later layers see how many tokens came before, or have positions of their own",
            probe.output.by_order
        )
    };
    Finding {
        check: CHECK.id,
        severity,
        place: part.place,
        value: part.by_order,
        threshold: probe.tolerance,
        unit: "",
        evidence: format!(
            "{}: the last position moves by {:.1e} of the largest value when the tokens before it are shuffled, by {:.1e} when \
             they are others; {rest}",
            name(part),
            part.by_order,
            part.by_content
        ),
        advice: if probe.declares_none {
            "nothing, as the model is meant to have no positions".to_owned()
        } else {
            "look where positions enter: that they are added or rotated at all, over the axis of positions and not of heads, and \
             that they are not all alike"
                .to_owned()
        },
    }
}
