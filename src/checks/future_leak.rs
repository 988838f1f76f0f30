//! Outputs depend on later tokens.
//!
//! ## What it does
//! Changes tokens after a position and looks whether anything at or before it moves, layer by layer; names the first layer and
//! head whose pattern moves, and the first residual.
//!
//! ## Why it matters
//! It is the only complete test of causality: it finds a softmax over the wrong axis, whose forbidden cells are exactly 0, and
//! leaks through norms or token mixing that no pattern shows.
//!
//! ## How it is measured
//! At some cut positions all later tokens are replaced, and at others a single token is; the prompt and its changed copies run
//! side by side. On the CPU a dense causal model is bit-identical before the change; with experts 1e-5 relative is allowed,
//! since other tokens change the shapes of their products. The influence map shows each changed position against each that
//! moved.
//!
//! The first prompt is probed, on its first 256 positions with 4 cuts and 16 single changes. Models that need 20 million
//! multiplications a token or more are probed on 64 positions with 2 cuts and 4 single changes.
//!
//! ## False alarms
//! Bidirectional and prefix-LM families see later tokens by design and are exempt by their spec.
//!
//! ## Example
//! A model read with `--set softmax_axis=queries`: position 5 moves when token 31 is changed, from the first layer on.

use super::evidence::{Evidence, FutureProbe};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds, figure};

pub static CHECK: Check = Check {
    id: "future-leak",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("future_leak.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let probe = match evidence.probes.future.seen() {
        Ok(probe) => probe,
        Err(verdict) => return verdict,
    };
    let findings = leak(probe).into_iter().collect();
    Verdict::of_our_run(evidence, findings, "nothing before a changed token moves")
}

fn leak(probe: &FutureProbe) -> Option<Finding> {
    let first = probe
        .first_pattern
        .as_ref()
        .or(probe.first_residual.as_ref())?;
    let name = |movement: &super::Movement| {
        movement
            .name
            .clone()
            .unwrap_or_else(|| movement.place.to_string())
    };
    let amount = probe
        .worst
        .map_or(first.amount, |worst| worst.amount.max(first.amount));
    let seen = match probe.worst {
        Some(worst) => format!(
            "position {} moved by {} of the largest value when token {} changed",
            worst.moved,
            figure(worst.amount),
            worst.changed
        ),
        None => format!(
            "{} moved by {} of its largest value",
            name(first),
            figure(first.amount)
        ),
    };
    let pattern = probe
        .first_pattern
        .as_ref()
        .map(|first| format!("first pattern: {}", name(first)));
    let residual = probe
        .first_residual
        .as_ref()
        .map(|first| format!("first residual: {}", name(first)));
    let firsts: Vec<String> = [pattern, residual].into_iter().flatten().collect();
    Some(Finding {
        check: CHECK.id,
        severity: Severity::Error,
        place: probe.worst.map_or(first.place, |worst| {
            first.place.query(worst.moved).key(worst.changed)
        }),
        value: amount,
        threshold: probe.tolerance,
        unit: "",
        evidence: format!("{seen}; {}", firsts.join(", ")),
        advice: format!(
            "look at {}: the mask, and the axis of its softmax; where only the residual moves, at norms and token mixing before it",
            name(first)
        ),
    })
}
