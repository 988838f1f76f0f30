//! How bad a crossing is: what came before it, whether the head does so by design, and what the loss did.

use super::crossing::Crossing;
use super::lines::{Line, Scope};
use super::robust::{median, noise};
use super::value::{History, Origin};
use attnscope_engine::checks::{Severity, Thresholds};

/// Losses before a crossing that it is compared with, and losses after it.
const BEFORE: usize = 8;
const AFTER: usize = 16;
/// Losses before it that tell how fast the loss was falling.
const FALL: usize = 24;
/// The last losses after it that are taken.
const LATEST: usize = 5;
/// A loss is worse when it is so many times its noise higher, and by this share of itself; with few losses, by the larger share.
const WORSE: (f64, f64, f64) = (4.0, 0.02, 0.05);
/// A loss is better when it is so many times its noise lower, and by this share of itself.
const BETTER: (f64, f64) = (3.0, 0.05);
/// A head whose rows are less often saturated than this, and whose scores stay below this, is sharp without having collapsed.
const SHARP_ROWS: f64 = 0.5;
const SHARP_SCORES: f64 = 50.0;
/// Scores alone are an error when they have run away to so many times the threshold.
const RUNAWAY: f64 = 4.0;
/// A move must be so many times the noise before it.
const MOVE: f64 = 6.0;

/// What the loss did across a crossing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    Unknown,
    Better(f64, f64),
    Alike,
    Worse(f64, f64),
}

/// A crossing's severity, and why in a few words.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    pub severity: Severity,
    pub why: String,
}

/// What the losses before `since` and after `begin` say.
pub fn loss_across(history: &History, since: usize, begin: usize) -> Loss {
    let records = history.records();
    let losses = |range: std::ops::Range<usize>| {
        let of = records[range]
            .iter()
            .filter_map(super::record::Record::loss);
        of.collect::<Vec<f64>>()
    };
    let mut before = losses(0..(since + 1).min(begin));
    before.drain(..before.len().saturating_sub(FALL));
    let fall = fall_per_record(&before);
    before.drain(..before.len().saturating_sub(BEFORE));
    let after = losses(begin..(begin + AFTER).min(records.len()));
    let after = &after[after.len().saturating_sub(LATEST)..];
    let n_enough = match history.origin {
        Origin::Checkpoints => 1,
        Origin::Log => 2,
    };
    if before.is_empty() || after.len() < n_enough {
        return Loss::Unknown;
    }
    let (was, is) = (
        median(before.iter().copied()),
        median(after.iter().copied()),
    );
    if !was.is_finite() {
        return Loss::Unknown;
    }
    if !is.is_finite() {
        return Loss::Worse(was, is);
    }
    let spread = Some(noise(&before)).filter(|spread| spread.is_finite() && before.len() >= 4);
    let size = was.abs();
    let limit = match spread {
        Some(spread) => (WORSE.0 * spread).max(WORSE.1 * size),
        None => WORSE.2 * size,
    };
    // A loss that was falling anyway owes nothing to the head.
    let ahead = (BEFORE / 2 + AFTER.min(records.len() - begin)) as f64;
    let gain = (BETTER.0 * spread.unwrap_or(0.0))
        .max(BETTER.1 * size)
        .max(fall * ahead);
    match is - was {
        change if change > limit => Loss::Worse(was, is),
        change if change < -gain => Loss::Better(was, is),
        _ => Loss::Alike,
    }
}

/// How far losses fall from one to the next, by the medians of their halves; 0 where they do not, or where there are few.
fn fall_per_record(losses: &[f64]) -> f64 {
    let n = losses.len();
    if n < 4 {
        return 0.0;
    }
    let (early, late) = losses.split_at(n / 2);
    let [early, late] = [early, late].map(|half| median(half.iter().copied()));
    ((early - late) / (n as f64 / 2.0)).max(0.0)
}

/// Weighs a crossing; `None` where it is nothing to tell of. `n_layer` is how many heads of the layer are beyond the line, and of
/// how many.
pub fn weigh(
    history: &History,
    line: &Line,
    crossing: &Crossing,
    n_layer: (usize, usize),
    thresholds: &Thresholds,
) -> Option<Weight> {
    let at = line.at(thresholds);
    let from = crossing.from.map(|(_, value)| value);
    let came_from_afar = from.is_some_and(|from| line.is_ordinary(from, at))
        && is_beyond_noise(history, line, crossing);
    let since = crossing.from.map_or(crossing.begin, |(since, _)| since);
    let loss = loss_across(history, since, crossing.begin);
    let last = crossing.end.map_or(history.records().len(), |end| end);
    let looked_at = (crossing.begin..last)
        .rev()
        .find(|idx| !line.value(history, *idx, crossing.unit).is_nan());
    let looked_at = looked_at.unwrap_or(crossing.begin);
    let design = line.design(history, looked_at, crossing.cell, thresholds);
    let hurts = matches!(loss, Loss::Worse(..));
    if let Some(design) = design
        && !hurts
    {
        let place = history.grid().place(crossing.cell);
        ::log::debug!("{place} is sharp by design: {design}");
        return None;
    }
    // From the beginning on, and evenly: an untrained head.
    if line.check == "entropy-uniform" && !came_from_afar {
        return None;
    }
    let weight = |severity, why: String| Some(Weight { severity, why });
    let told = match loss {
        Loss::Worse(was, is) => format!("the loss went from {was:.3} to {is:.3}"),
        Loss::Better(was, is) => format!("the loss fell from {was:.3} to {is:.3} meanwhile"),
        Loss::Alike => "the loss gained nothing by it".to_owned(),
        Loss::Unknown => "the loss is not known".to_owned(),
    };
    if !crossing.is_confirmed {
        return weight(Severity::Warning, "one record so far".to_owned());
    }
    if !came_from_afar {
        let why = match from {
            None => "it is so from the first record on".to_owned(),
            Some(_) => "it was near the line before".to_owned(),
        };
        let severity = if line.is_fault && !matches!(loss, Loss::Better(..)) {
            Severity::Warning
        } else {
            Severity::Info
        };
        return weight(severity, why);
    }
    let (n_beyond, n_heads) = n_layer;
    let is_most = n_beyond >= 2 && 2 * n_beyond > n_heads;
    let told = if is_most {
        format!("{n_beyond} of {n_heads} heads of the layer; {told}")
    } else {
        told
    };
    match loss {
        Loss::Worse(..) => weight(Severity::Error, told),
        // Some heads learn to look at one place; hardly ever do most heads of a layer.
        Loss::Better(..) if is_most && line.excuses_design => weight(Severity::Error, told),
        Loss::Better(..) if line.is_fault => weight(Severity::Warning, told),
        Loss::Better(..) => weight(Severity::Info, told),
        Loss::Alike | Loss::Unknown if !line.is_fault => weight(Severity::Warning, told),
        Loss::Alike | Loss::Unknown if line.scope != Scope::Heads => weight(Severity::Error, told),
        Loss::Alike | Loss::Unknown if !line.excuses_design => {
            // Large models live with large scores; what has no end does not end well.
            let worst = worst(history, line, crossing);
            if worst >= RUNAWAY * at {
                weight(
                    Severity::Error,
                    format!("it has reached {worst:.0}; {told}"),
                )
            } else {
                weight(Severity::Warning, told)
            }
        }
        Loss::Alike | Loss::Unknown => {
            let is_hard = is_most || is_saturated(history, looked_at, crossing.cell);
            if is_hard {
                weight(Severity::Error, told)
            } else {
                weight(
                    Severity::Warning,
                    format!("{told}; its rows still pass a gradient"),
                )
            }
        }
    }
}

/// The value furthest beyond the line.
fn worst(history: &History, line: &Line, crossing: &Crossing) -> f64 {
    let end = crossing.end.unwrap_or(history.records().len());
    let values = (crossing.begin..end).map(|idx| line.value(history, idx, crossing.unit));
    let values = values.filter(|value| !value.is_nan());
    values.fold(crossing.to, |worst, value| {
        if line.is_worse(value, worst) {
            value
        } else {
            worst
        }
    })
}

/// Whether the softmax of a head is past learning, as far as the history knows: many saturated rows, or large scores. Where neither
/// is known, it may be.
fn is_saturated(history: &History, record_idx: usize, cell: usize) -> bool {
    let rows = history.at(record_idx, "saturated_rows", cell);
    let scores = history.at(record_idx, "max_abs_score", cell);
    (rows.is_nan() && scores.is_nan()) || rows >= SHARP_ROWS || scores >= SHARP_SCORES
}

/// Whether a statistic moved much further than it strayed before.
fn is_beyond_noise(history: &History, line: &Line, crossing: &Crossing) -> bool {
    let Some((since, from)) = crossing.from else {
        return false;
    };
    let scaled = |value: f64| {
        if line.is_ratio {
            value.max(1e-12).ln()
        } else {
            value
        }
    };
    let first = (since + 1).saturating_sub(32);
    let before = (first..=since).map(|idx| line.value(history, idx, crossing.unit));
    let before: Vec<f64> = before.filter(|value| !value.is_nan()).map(scaled).collect();
    let spread = noise(&before);
    if before.len() < 5 || !spread.is_finite() {
        return true;
    }
    (scaled(crossing.to) - scaled(from)).abs() > MOVE * spread
}
