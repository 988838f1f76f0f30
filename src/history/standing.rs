//! Faults that nothing begins: a log has them from its first record on, so that no statistic ever crosses a line.
//!
//! Whether a model predicts the next token is told by its labels, or by its loss: the monitor measures what the logits say of the
//! next token and of a position's own, at places that the loss was not asked about.

use attnscope_checks::{Severity, Thresholds};
use attnscope_report::digits;
use attnscope_spec::{Place, Stack};

use super::batch_moved::is_near;
use super::judge::Finding;
use super::lines::{LINES, Leak, Line, NO_MASS};
use super::log::{BatchFacts, Labels, Reads};
use super::robust::median;
use super::value::{History, Origin};

pub(super) const WRONG_AXIS: &str = "wrong-axis";

/// Records looked at: so many of the first, and of the last.
const FIRST: usize = 8;
const LAST: usize = 16;
/// Fewest records that show a fault.
const FEWEST: usize = 2;
/// Fewest records whose losses tell what a model predicts, and the share of them that must agree.
const FEWEST_LOSSES: usize = 3;
const AGREE: f64 = 0.75;
/// Losses of the next and of the own token tell nothing where they are as near to each other as this share of the larger.
const APART: f64 = 0.3;
/// Share of a layer's rows that see later keys in a model without a causal mask. A prefix that is read both ways has fewer.
const MOST_ROWS: f64 = 0.9;

/// What the logits of a model are trained to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Predicts {
    Next,
    Own,
    Unknown,
}

/// Returns the faults that every record of a log has.
pub(super) fn standing(history: &History, thresholds: &Thresholds) -> Vec<Finding> {
    if history.origin != Origin::Log {
        return Vec::new();
    }
    let records = sampled(history);
    if records.len() < FEWEST {
        return Vec::new();
    }
    let mut findings = wrong_axes(history, &records);
    let predicts = predicts(history, &records);
    for line in LINES {
        if let Some(leak) = &line.leak
            && (!leak.needs_next || predicts == Predicts::Next)
        {
            findings.extend(leaks(history, &records, (line, leak), thresholds));
        }
    }
    findings.extend(own_labels(history, &records, predicts));
    findings
}

/// The first and the last records that have values.
fn sampled(history: &History) -> Vec<usize> {
    let has_values = |idx: &usize| history.records()[*idx].numbers.is_some();
    let n = history.records().len();
    let mut records: Vec<usize> = (0..n).filter(has_values).take(FIRST).collect();
    let next = records.last().map_or(0, |last| last + 1);
    let mut last: Vec<usize> = (next..n).rev().filter(has_values).take(LAST).collect();
    last.reverse();
    records.extend(last);
    records
}

/// What every finding says: an error that has not ended. It has no value where no statistic measures it.
fn lasting(check: &'static str, statistic: &'static str, begin: usize) -> Finding {
    Finding {
        check,
        severity: Severity::Error,
        place: Place::MODEL,
        cell: 0,
        statistic,
        threshold: 0.0,
        begin,
        to: f64::NAN,
        end: None,
        from: None,
        changed: None,
        warned: None,
        why: String::new(),
        advice: "",
    }
}

/// Layers whose softmax does not run over keys, in the latest record and all before it back to the one where that began.
fn wrong_axes(history: &History, records: &[usize]) -> Vec<Finding> {
    let grid = history.grid();
    let axis_at = |idx: usize, layer: usize| {
        let over = &history.records()[idx].batch()?.over;
        over.get(layer)?.as_deref()
    };
    let mut findings = Vec::new();
    for (layer, shape) in grid.layers().iter().enumerate() {
        let has_it = |idx: &usize| axis_at(*idx, layer).is_some();
        let n = records.iter().rev().take_while(|idx| has_it(idx)).count();
        let Some(axis) = axis_at(records[records.len() - 1], layer).filter(|_| n >= FEWEST) else {
            continue;
        };
        let last = records[records.len() - n];
        let begin = (0..last).rev().take_while(has_it).last().unwrap_or(last);
        findings.push(Finding {
            place: shape.place(),
            cell: grid.n_heads() + layer,
            why: format!(
                "the softmax runs over {axis}, so that the weights of a query do not sum to 1 and depend on other {axis}"
            ),
            advice: "normalise over keys, the last axis of [batch, head, query, key] (dim=-1)",
            ..lasting(WRONG_AXIS, "max_probability", begin)
        });
    }
    findings
}

/// Heads that give forbidden keys something in every record.
fn leaks(
    history: &History,
    records: &[usize],
    (line, leak): (&Line, &Leak),
    thresholds: &Thresholds,
) -> Vec<Finding> {
    let at = line.at(thresholds);
    let grid = history.grid();
    let mut findings = Vec::new();
    for unit in 0..line.n_units(history) {
        let cell = line.cell(history, unit);
        let layer = grid.layer_of(cell);
        let stack = grid.layers()[layer].stack;
        if stack == Stack::Cross || leak.needs_next && !sees_later(history, records, layer) {
            continue;
        }
        let values = records
            .iter()
            .map(|idx| (*idx, line.value(history, *idx, unit)));
        let known: Vec<(usize, f64)> = values.filter(|(_, value)| !value.is_nan()).collect();
        if known.len() < FEWEST || known.iter().any(|(_, value)| *value <= at) {
            continue;
        }
        let (begin, to) = known[0];
        let worst = known.iter().map(|(_, value)| *value).fold(to, f64::max);
        let too_good = if leak.needs_next {
            ", and the model is trained to predict them: its loss is too good to be true"
        } else {
            ""
        };
        findings.push(Finding {
            severity: leak.standing.0,
            place: grid.place(cell),
            cell,
            threshold: at,
            to,
            why: format!(
                "{} get up to {} of a head's attention in every record{too_good}",
                leak.what,
                digits(worst)
            ),
            advice: leak.standing.1,
            ..lasting(line.check, line.statistic, begin)
        });
    }
    findings
}

/// Whether nearly all rows of a layer that may not see later keys give them something, in every record that tells.
fn sees_later(history: &History, records: &[usize], layer: usize) -> bool {
    if history.grid().layers()[layer].stack == Stack::Encoder {
        return false;
    }
    let shares = records.iter().filter_map(|idx| {
        let facts = history.records()[*idx].batch()?;
        facts.later_rows.get(layer).copied().flatten()
    });
    let shares: Vec<f64> = shares.collect();
    shares.len() >= FEWEST && shares.iter().all(|share| *share >= MOST_ROWS)
}

/// A causal model whose loss is that of each position's own token.
fn own_labels(history: &History, records: &[usize], predicts: Predicts) -> Option<Finding> {
    let column = history.column("later_mass")?;
    let heads = 0..history.grid().n_heads();
    let mut values = heads.flat_map(|cell| {
        let at = move |idx: &usize| history.value(*idx, column, cell);
        records.iter().map(at)
    });
    let is_causal = values.all(|mass| mass.is_nan() || mass <= NO_MASS);
    let reads_own = records.iter().all(|idx| {
        let facts = history.records()[*idx].batch();
        facts.is_some_and(|facts| facts.reads == Some(Reads::Own))
    });
    if predicts != Predicts::Own || !is_causal || !reads_own {
        return None;
    }
    let losses = records.iter().filter_map(|idx| {
        let facts = history.records()[*idx].batch()?;
        Some((*idx, facts.own_loss?, facts.next_loss?))
    });
    let losses: Vec<(usize, f64, f64)> = losses.collect();
    let (begin, ..) = *losses.first()?;
    let (_, own, next) = *losses.last()?;
    Some(Finding {
        to: history.records()[begin].loss().unwrap_or(f64::NAN),
        why: format!(
            "the loss is that of each position's own token ({}), not of the next one ({}): labels were not shifted, and the model \
             learns to copy",
            digits(own),
            digits(next)
        ),
        advice: "shift labels by one: logits[:, :-1] against ids[:, 1:]",
        ..lasting("label-shift", "loss", begin)
    })
}

/// What the model is trained to predict, by its labels, or by its losses where both tell it apart.
fn predicts(history: &History, records: &[usize]) -> Predicts {
    let facts: Vec<(&BatchFacts, Option<f64>)> = records
        .iter()
        .filter_map(|idx| {
            let record = &history.records()[*idx];
            Some((record.batch()?, record.loss()))
        })
        .collect();
    let kinds: Vec<Labels> = facts.iter().filter_map(|(facts, _)| facts.labels).collect();
    if kinds.len() >= FEWEST && kinds.iter().all(|kind| *kind == Labels::Next) {
        return Predicts::Next;
    }
    if kinds
        .iter()
        .any(|kind| matches!(kind, Labels::Part | Labels::Other))
    {
        return Predicts::Unknown;
    }
    let told = facts.iter().filter_map(|(facts, loss)| {
        let (loss, mut next, mut own) = ((*loss)?, facts.next_loss?, facts.own_loss?);
        if facts.reads == Some(Reads::Previous) {
            // What stands at a position is what comes after all that it reads.
            (next, own) = (own, f64::INFINITY);
        }
        let is_told = own.is_infinite() || (next - own).abs() > APART * next.max(own);
        is_told.then_some((loss, next, own))
    });
    let told: Vec<(f64, f64, f64)> = told.collect();
    if told.len() < FEWEST_LOSSES {
        return Predicts::Unknown;
    }
    let share = |of: fn(&(f64, f64, f64)) -> f64| {
        let near = told.iter().filter(|all| is_near(of(all), all.0));
        near.count() as f64 / told.len() as f64
    };
    let size = median(told.iter().map(|(loss, ..)| *loss));
    match (share(|all| all.1), share(|all| all.2)) {
        _ if !size.is_finite() => Predicts::Unknown,
        (next, own) if next >= AGREE && own < 1.0 - AGREE => Predicts::Next,
        (next, own) if own >= AGREE && next < 1.0 - AGREE => Predicts::Own,
        _ => Predicts::Unknown,
    }
}
