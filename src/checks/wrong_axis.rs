//! The softmax ran over queries, heads or another axis that is not the keys.
//!
//! ## What it does
//! Looks for patterns whose rows do not sum to 1 while their columns do (softmax over queries), or while the same cell summed
//! over heads or over the batch does, or all cells of a head together; and for attention that runs across the batch, because
//! batch and positions changed places.
//!
//! ## Why it matters
//! A softmax over queries divides each key's column by scores of later queries: the future leaks into every earlier output
//! although each forbidden cell is exactly 0, so that no mask check sees it. Training loss falls far below what the text
//! allows, and generated text is gibberish. Seen in the wild: PyTorch-NLP #2, annotated_deep_learning_paper_implementations
//! #146, llms-from-scratch-rs PR #30.
//!
//! ## How it is measured
//! Per head, the row sum farthest from 1, over real queries; then every column's sum over the queries that see it, and in
//! traces every visible cell's sum over heads and over the batch. Where rows do not sum to 1, the axis that the capture file
//! recorded decides. Value: how far the worst row sum lies from 1. Attention across the batch has as many queries and keys as
//! the batch has rows, and a matrix for each position. In a batch of one row of several tokens, that is one query and one key, in
//! every attention of the trace.
//!
//! ## False alarms
//! A doubly stochastic pattern (Sinkhorn attention) has columns that sum to 1 as well as rows: it stays silent, since its
//! rows hold. A single token has one row and one column. A recorded axis that the sums contradict is not believed: an array of
//! [query, key, batch, head] has its keys in the second place. A decoding step has one query, but more keys, and a model that pools
//! its tokens to one has no matrix for each position.
//!
//! ## Example
//! `scores.softmax(dim=-2)` on [batch, head, query, key]: in the last row of a causal head the last cell is 1 and the rest
//! small, and the first rows sum to less than 1, the last to more.

use attnscope_compute::attention::{Normaliser, SoftmaxAxis};
use attnscope_spec::Place;

use super::evidence::{Evidence, worst_row};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};
use crate::stats::{HeadReport, LayerReport};

pub static CHECK: Check = Check {
    id: "wrong-axis",
    severity: Severity::Error,
    needs: Needs::Pattern,
    source: include_str!("wrong_axis.rs"),
    judge,
};

/// The axis that explains why rows do not sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    Queries,
    Heads,
    Batch,
    /// Queries and keys together: all cells of a head sum to 1.
    Cells,
}

const ADVICE_ACROSS: &str = "pass batch_first=True, or swap the first two axes: the module takes the first axis for positions";

fn of_one_row(n_tokens: usize) -> Finding {
    Finding {
        check: CHECK.id,
        severity: Severity::Error,
        place: Place::MODEL,
        value: 1.0,
        threshold: n_tokens as f64,
        unit: "keys",
        evidence: format!(
            "{n_tokens} tokens went in as one row, and every attention saw 1 query and 1 key: it attends along the batch"
        ),
        advice: ADVICE_ACROSS.to_owned(),
    }
}

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let mut findings = Vec::new();
    for layer in evidence.layers {
        let across_batch = layer.audit().and_then(|audit| audit.across_batch);
        if let Some((1, n_tokens)) = across_batch {
            // Every attention of the trace is like this one.
            return Verdict::of(vec![of_one_row(n_tokens)], "");
        }
        if let Some((n_batch, n_tokens)) = across_batch {
            findings.push(Finding {
                check: CHECK.id,
                severity: Severity::Error,
                place: layer.place(),
                value: n_batch as f64,
                threshold: n_tokens as f64,
                unit: "keys",
                evidence: format!(
                    "queries and keys are the {n_batch} rows of the batch, with one matrix for each of the {n_tokens} positions: \
                     attention runs across the batch"
                ),
                advice: ADVICE_ACROSS.to_owned(),
            });
            continue;
        }
        let wrong: Vec<(usize, &HeadReport, Axis)> = layer
            .heads
            .iter()
            .enumerate()
            .filter_map(|(head_idx, head)| {
                explains(evidence, thresholds, layer, head).map(|axis| (head_idx, head, axis))
            })
            .collect();
        let off = |head: &HeadReport| worst_row(head).map_or((0, 1.0), |worst| worst);
        let worst = wrong.iter().max_by(|a, b| {
            let size = |head| (off(head).1 - 1.0).abs();
            size(a.1).total_cmp(&size(b.1))
        });
        let Some((head_idx, head, axis)) = worst else {
            continue;
        };
        let place = layer.place();
        let n_wrong = wrong.len();
        let (place, who) = match n_wrong {
            1 => (place.head(*head_idx), format!("head {head_idx}")),
            n if n == layer.heads.len() => (place, format!("all {n} heads")),
            n => (place, format!("{n} heads")),
        };
        let masses = head
            .summary
            .rows
            .iter()
            .filter(|row| row.is_real && row.n_visible > 0);
        let masses: Vec<f32> = masses.map(|row| row.mass).collect();
        let least = masses.iter().copied().fold(f32::INFINITY, f32::min);
        let most = masses.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let what = match axis {
            Axis::Queries => "columns sum to 1",
            Axis::Heads => "cells sum to 1 over the heads",
            Axis::Batch => "cells sum to 1 over the batch, or were recorded so",
            Axis::Cells => "all cells together sum to 1",
        };
        let over = match axis {
            Axis::Queries => "queries",
            Axis::Heads => "heads",
            Axis::Batch => "the batch",
            Axis::Cells => "queries and keys together",
        };
        findings.push(Finding {
            check: CHECK.id,
            severity: Severity::Error,
            place,
            value: (off(head).1 - 1.0).abs(),
            threshold: evidence.row_tolerance,
            unit: "",
            evidence: format!("{who}: {what}, rows to {least:.3}…{most:.3}: the softmax ran over {over}"),
            advice: "normalise over keys, the last axis of [batch, head, query, key] (dim=-1), and train again: weights learned this way \
                     rely on the leak"
                .to_owned(),
        });
    }
    Verdict::of_our_run(
        evidence,
        findings,
        "rows sum to 1: the softmax runs over keys",
    )
}

/// Whether an axis other than the keys explains a head whose rows do not sum to 1.
pub(super) fn explains(
    evidence: &Evidence<'_>,
    thresholds: &Thresholds,
    layer: &LayerReport,
    head: &HeadReport,
) -> Option<Axis> {
    let tolerance = evidence.row_tolerance;
    let (_, mass) = worst_row(head)?;
    let n_queries = head.summary.rows.len();
    if n_queries < 2 || !mass.is_finite() || (mass - 1.0).abs() <= tolerance {
        return None;
    }
    let near = thresholds.wrong_axis.column_tolerance.max(tolerance);
    let first_audit = layer.heads.first().and_then(|first| first.audit.as_ref());
    let of_heads = first_audit.and_then(|audit| audit.head_axis_deviation);
    if layer.heads.len() > 1 && of_heads.is_some_and(|deviation| deviation <= near) {
        return Some(Axis::Heads);
    }
    let of_layer = layer.audit();
    let of_batch = of_layer.and_then(|audit| audit.batch_axis_deviation);
    if of_batch.is_some_and(|deviation| deviation <= near) {
        return Some(Axis::Batch);
    }
    let is_by_design = head.audit.as_ref().is_some_and(|audit| {
        let named = audit.normaliser.map(|found| found.by);
        named.is_some_and(|by| by != Normaliser::Softmax) || audit.dropout.is_some()
    });
    match of_layer.and_then(|audit| audit.recorded.axis.as_deref()) {
        _ if is_by_design => {}
        Some("batch") => return Some(Axis::Batch),
        Some("heads") => return Some(Axis::Heads),
        Some("queries") => return Some(Axis::Queries),
        _ => {}
    }
    // If another softmax is declared, its cells sum to 1 by construction, including those of padded queries.
    match layer.spec.softmax_axis {
        SoftmaxAxis::Keys => {}
        SoftmaxAxis::Queries => return Some(Axis::Queries),
        SoftmaxAxis::Heads => return Some(Axis::Heads),
    }
    let audit = head.audit.as_ref();
    let of_queries = audit.and_then(|audit| audit.query_axis_deviation);
    if of_queries.is_some_and(|deviation| deviation <= near) {
        return Some(Axis::Queries);
    }
    let total: f64 = head
        .summary
        .column_sums
        .iter()
        .map(|sum| f64::from(*sum))
        .sum();
    if n_queries > 2 && (total - 1.0).abs() <= near {
        return Some(Axis::Cells);
    }
    let is_real = |key_idx: usize| {
        let real = head.summary.real_keys.as_ref();
        real.is_none_or(|real| real[key_idx])
    };
    let mask = layer.spec.mask;
    let columns = head.summary.column_sums.iter().enumerate();
    let mut columns = columns.filter(|(key_idx, _)| {
        is_real(*key_idx)
            && (layer.spec.is_cross || head.summary.n_queries_seeing(mask, *key_idx) > 0)
    });
    columns
        .all(|(_, sum)| (f64::from(*sum) - 1.0).abs() <= near)
        .then_some(Axis::Queries)
}
