//! A reshape mixes heads with positions.
//!
//! ## What it does
//! Compares what attention takes and gives, head by head, with the layers before and after it. The output of a layer is [position,
//! head · d_head], attention takes [head, position, d_head]. Code that reshapes one to the other and does not move the axis of heads
//! (`view(B, H, T, D)` in place of `view(B, T, H, D).transpose(1, 2)`) is found, and so is code that puts heads side by side
//! again and does not move it back.
//!
//! ## Why it matters
//! Queries, keys and values of such a head come from a stretch of the text, and outputs of one position are written to others. Shapes fit,
//! nothing fails, the loss falls, and masks hide the wrong cells: in a causal model the future leaks, although each forbidden cell
//! is exactly 0. An encoder merely stays worse, and nothing else shows it. Seen in the wild: jsbaan/transformer-from-scratch, whose heads are
//! concatenated by `values.reshape(batch, sequence, hidden)`.
//!
//! ## How it is measured
//! While the code runs, the recorder compares the numbers of queries, keys, values and outputs with the outputs and inputs of the layers
//! around them, in both layouts: equal to the bit in the wrong one, and not in the right one, is a finding. Value: how many of
//! these parts are mixed, over all layers. Where a rotation, a norm or a gate comes between, a part is equal to neither, and
//! nothing is said of it.
//!
//! ## False alarms
//! None known: two layouts of different numbers are equal to the bit by design alone. A single head or a single position has one layout.
//!
//! ## Example
//! `z = pattern @ v; self.out(z.reshape(B, T, H * D))` with `z` of [B, H, T, D].

use std::collections::BTreeMap;

use attnscope_spec::Place;

use super::evidence::{Evidence, Subject};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::stats::LayerReport;

pub static CHECK: Check = Check {
    id: "head-reshape",
    severity: Severity::Error,
    needs: Needs::Pattern,
    source: include_str!("head_reshape.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    if evidence.subject == Subject::Checkpoint {
        return Verdict::not_applicable("attnscope splits and merges heads itself");
    }
    // Parts that are mixed, and the layers in which they are.
    let mut mixed: BTreeMap<Vec<&str>, Vec<&LayerReport>> = BTreeMap::new();
    let mut n_known = 0;
    for layer in evidence.layers {
        let Some(audit) = layer.audit() else {
            continue;
        };
        let parts = &audit.recorded.heads_moved;
        n_known += parts.len();
        let wrong: Vec<&str> = parts
            .iter()
            .filter(|(_, is_moved)| !**is_moved)
            .map(|(part, _)| part.as_str())
            .collect();
        if !wrong.is_empty() {
            mixed.entry(wrong).or_default().push(layer);
        }
    }
    if n_known == 0 {
        return Verdict::not_applicable(
            "nothing tells how heads were split and merged: that takes a recording of running code, with values",
        );
    }
    let n_layers = evidence.layers.len();
    let findings = mixed
        .iter()
        .map(|(parts, layers)| finding(parts, layers, n_layers));
    Verdict::of(
        findings.collect(),
        "heads are moved to and from their own axis",
    )
}

fn finding(parts: &[&str], layers: &[&LayerReport], n_layers: usize) -> Finding {
    let split: Vec<&str> = parts
        .iter()
        .filter_map(|part| match *part {
            "rot_q" => Some("queries"),
            "rot_k" => Some("keys"),
            "v" => Some("values"),
            _ => None,
        })
        .collect();
    let merges = parts.contains(&"z");
    let who = match layers {
        all if all.len() == n_layers => format!("all {n_layers} layers"),
        some => some
            .iter()
            .map(|layer| (layer.name.clone()).unwrap_or_else(|| layer.place().to_string()))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let mut seen = Vec::new();
    let mut advice = Vec::new();
    if !split.is_empty() {
        seen.push(format!(
            "{} are reshaped to [head, position, d_head] without a transpose",
            split.join(", ")
        ));
        advice.push("split heads with view(B, T, H, D).transpose(1, 2)");
    }
    if merges {
        seen.push(
            "outputs of heads are reshaped to [position, head · d_head] without a transpose"
                .to_owned(),
        );
        advice.push("merge heads with transpose(1, 2).reshape(B, T, H * D)");
    }
    Finding {
        check: CHECK.id,
        severity: Severity::Error,
        place: match layers {
            [layer] => layer.place(),
            _ => Place::MODEL,
        },
        value: (parts.len() * layers.len()) as f64,
        threshold: 0.0,
        unit: "parts",
        evidence: format!(
            "{who}: {}: heads and positions are mixed",
            seen.join(", and ")
        ),
        advice: advice.join(", and "),
    }
}
