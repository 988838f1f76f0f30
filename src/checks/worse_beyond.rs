//! The loss rises where a prompt crosses a boundary that the configuration names.
//!
//! ## What it does
//! Names the boundaries of a model, such as the width of a window or the context before rotary positions were scaled, says which
//! of them the prompt crosses, and compares the loss before and after each.
//!
//! ## Why it matters
//! A window on the wrong layers, sinks that were dropped, or a factor of YaRN that got lost change nothing in a short text. Seen in
//! the wild: Megatron-Bridge #4875, sglang #30050, llama.cpp #12957.
//!
//! ## How it is measured
//! Mean loss of as many positions before the boundary as after it, at most 256 and at least 16 on each side. A warning where it
//! rises by the margin, and by more than 2.6 standard errors. A boundary that the prompt does not cross is not tested;
//! `attnscope check --cover` runs a prompt that crosses all that the budget allows. Value: nats per token.
//!
//! ## False alarms
//! A text that becomes harder right there: another language, or code. The prompts of `--cover` repeat their texts, so that they
//! become easier.
//!
//! ## Example
//! A Qwen2 of which the layers with a window were counted from the wrong end: loss 2.4 up to token 4096, and 6.1 after it.

use attnscope_spec::Place;

use super::evidence::{Boundary, Evidence};
use super::verdict::{Finding, Severity, Tester, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "worse-beyond",
    severity: Severity::Warning,
    needs: Needs::Residual,
    source: include_str!("worse_beyond.rs"),
    judge,
};

/// Most positions compared on each side of a boundary, and fewest.
const MOST: usize = 256;
const FEWEST: usize = 16;

/// Standard errors beyond which a rise is no chance: 99 %.
const STANDARD_ERRORS: f64 = 2.6;

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let Some(losses) = evidence.next_losses else {
        return Verdict::not_applicable("there is no next-token loss to compare");
    };
    if evidence.boundaries.is_empty() {
        return Verdict::not_applicable("the configuration names no boundary below its context");
    }
    let margin = thresholds.worse_beyond.margin;
    let (mut findings, mut crossed, mut open) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_unsure = false;
    for boundary in &evidence.boundaries {
        let at = boundary.n_tokens;
        if at < FEWEST && losses.len() >= at + FEWEST {
            crossed.push(format!(
                "{} is crossed, too near to the beginning to compare",
                boundary.what
            ));
            continue;
        }
        let Some((before, after)) = sides(losses, at) else {
            open.push(boundary);
            continue;
        };
        crossed.push(format!(
            "loss {:.3} before and {:.3} after {}",
            before.mean, after.mean, boundary.what
        ));
        let rise = after.mean - before.mean;
        let error = (before.error * before.error + after.error * after.error).sqrt();
        if rise >= margin && rise > STANDARD_ERRORS * error {
            findings.push(finding(boundary, &before, &after, margin));
        } else if rise >= margin {
            is_unsure = true;
        }
    }
    let untested = untested(&open, losses.len() + 1);
    match (crossed.is_empty(), untested) {
        (true, Some(untested)) => Verdict::not_tested(untested, Tester::LongPrompt),
        (_, untested) => {
            let untested = untested.map_or(String::new(), |what| format!("; not tested: {what}"));
            let why = format!("{}{untested}", crossed.join(", "));
            if is_unsure && findings.is_empty() {
                return Verdict::undecidable(format!(
                    "{why}: longer texts would tell whether that is chance"
                ));
            }
            Verdict::of(findings, why)
        }
    }
}

/// Says which boundaries a prompt does not cross.
fn untested(open: &[&Boundary], n_tokens: usize) -> Option<String> {
    let names: Vec<&str> = open.iter().map(|boundary| boundary.what.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: the prompt has {n_tokens} tokens (--cover runs one that is longer)",
            names.join(", ")
        )
    })
}

/// Losses on one side of a boundary.
struct Side {
    mean: f64,
    /// Standard error of the mean.
    error: f64,
    n: usize,
}

impl Side {
    fn of(losses: &[f32]) -> Self {
        let n = losses.len();
        let mean = super::gain::mean_loss(losses);
        let squares = losses.iter().map(|loss| (f64::from(*loss) - mean).powi(2));
        let variance = squares.sum::<f64>() / (n.max(2) - 1) as f64;
        Self {
            mean,
            error: (variance / n as f64).sqrt(),
            n,
        }
    }
}

/// The losses before and after the first token that lies beyond a boundary; `None` if either side is too short.
fn sides(losses: &[f32], n_tokens: usize) -> Option<(Side, Side)> {
    // The loss at a position is that of the token after it.
    let n = n_tokens.min(losses.len().checked_sub(n_tokens)?).min(MOST);
    (n >= FEWEST).then(|| {
        let before = Side::of(&losses[n_tokens - n..n_tokens]);
        (before, Side::of(&losses[n_tokens..n_tokens + n]))
    })
}

fn finding(boundary: &Boundary, before: &Side, after: &Side, margin: f64) -> Finding {
    Finding {
        check: CHECK.id,
        severity: Severity::Warning,
        place: Place::MODEL,
        value: after.mean - before.mean,
        threshold: margin,
        unit: "nats per token",
        evidence: format!(
            "loss {:.3} on the {} tokens before {}, {:.3} on as many after it",
            before.mean, before.n, boundary.what, after.mean
        ),
        advice: boundary.advice.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_of_one_length_and_neither_is_too_short() {
        let losses: Vec<f32> = (0..100)
            .map(|idx| if idx < 40 { 1.0 } else { 3.0 })
            .collect();
        let (before, after) = sides(&losses, 40).expect("two sides");
        assert_eq!((before.n, after.n), (40, 40));
        assert!((after.mean - before.mean - 2.0).abs() < 1e-9);
        assert!(sides(&losses, 90).is_none());
        assert!(sides(&losses, 12).is_none());
        assert!(sides(&losses, 101).is_none());
    }
}
