//! Evidence about a crossing: the values before it, whether the head does it by design, and the effect on the loss.

use attnscope_checks::weight::{
    Loss, PreviousState, SeverityDecision, ThresholdCrossing, is_past_learning,
};
use attnscope_checks::{Severity, Thresholds};
use attnscope_report::digits;

use super::crossing::Crossing;
use super::lines::{Leak, Line, NO_MASS, design_of};
use super::robust::{median, noise};
use super::value::{History, Origin};

/// Number of losses before a crossing to compare with, and of losses after it.
const BEFORE: usize = 8;
const AFTER: usize = 16;
/// Number of losses before it that show how fast the loss was falling.
const FALL: usize = 24;
/// Number of the latest losses after it that are used.
const LATEST: usize = 5;
/// A loss is worse if it is higher by this many times its noise and by this share of itself; with few losses, by the last share.
const WORSE: (f64, f64, f64) = (4.0, 0.02, 0.05);
/// A loss is better if it is lower by this many times its noise and by this share of itself.
const BETTER: (f64, f64) = (3.0, 0.05);
/// A move must be this many times the noise before it.
const MOVE: f64 = 6.0;

/// Compares the losses before `since` with those after `begin`: those that the training logged, and otherwise those of the records.
pub fn loss_across(history: &History, since: usize, begin: usize) -> Loss {
    let noise = logged_noise(history, since);
    match across(history, since, begin, noise, &|idx| {
        history.training_loss(idx)
    }) {
        Loss::Unknown => across(history, since, begin, None, &|idx| {
            history.records()[idx].loss()
        }),
        known => known,
    }
}

/// Number of logged losses that show their noise.
const LOGGED: usize = 64;

/// Returns the noise of the losses that a training logged up to a record; `None` if they are too few.
fn logged_noise(history: &History, record_idx: usize) -> Option<f64> {
    let step = history.records()[record_idx].step?;
    let curve = history.losses().training.as_ref()?;
    let values = curve.before(step, LOGGED);
    Some(noise(&values)).filter(|noise| noise.is_finite() && values.len() >= 4)
}

/// Compares the losses of records by one of the losses that they have; `logged_noise` is that of all of them, also between records.
fn across(
    history: &History,
    since: usize,
    begin: usize,
    logged_noise: Option<f64>,
    loss: &dyn Fn(usize) -> Option<f64>,
) -> Loss {
    let records = history.records();
    let losses = |range: std::ops::Range<usize>| range.filter_map(loss).collect::<Vec<f64>>();
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
    let spread = spread.into_iter().chain(logged_noise).reduce(f64::max);
    let size = was.abs();
    let limit = match spread {
        Some(spread) => (WORSE.0 * spread).max(WORSE.1 * size),
        None => WORSE.2 * size,
    };
    // A loss that was already falling owes nothing to the head.
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

/// Returns how much losses fall per record, by the medians of their halves; 0 if they do not fall or are too few.
fn fall_per_record(losses: &[f64]) -> f64 {
    let n = losses.len();
    if n < 4 {
        return 0.0;
    }
    let (early, late) = losses.split_at(n / 2);
    let [early, late] = [early, late].map(|half| median(half.iter().copied()));
    ((early - late) / (n as f64 / 2.0)).max(0.0)
}

/// Weighs a crossing; `None` if it is not worth reporting. `n_layer` is the number of the layer's heads beyond the line, and of
/// all its heads.
pub fn weigh(
    history: &History,
    line: &Line,
    crossing: &Crossing,
    n_layer: (usize, usize),
    thresholds: &Thresholds,
) -> Option<SeverityDecision> {
    if let Some(leak) = &line.leak {
        return weigh_leak(history, (line, leak), crossing, n_layer);
    }
    let threshold = line.at(thresholds);
    let before = match crossing.from {
        None => PreviousState::Unknown,
        Some((_, from))
            if line.is_ordinary(from, threshold) && is_beyond_noise(history, line, crossing) =>
        {
            PreviousState::Afar
        }
        Some(_) => PreviousState::Near,
    };
    let since = crossing.from.map_or(crossing.begin, |(since, _)| since);
    let loss = loss_across(history, since, crossing.begin);
    let last = crossing.end.map_or(history.records().len(), |end| end);
    let looked_at = (crossing.begin..last)
        .rev()
        .find(|idx| !line.value(history, *idx, crossing.unit).is_nan());
    let looked_at = looked_at.unwrap_or(crossing.begin);
    let design = line.design(history, looked_at, crossing.cell, thresholds);
    if let Some(design) = design
        && !matches!(loss, Loss::Worse(..))
    {
        let place = history.grid().place(crossing.cell);
        ::log::debug!("{place} is sharp by design: {design}");
        return None;
    }
    // Uniform from the beginning: an untrained head.
    if line.check == "entropy-uniform" && before != PreviousState::Afar {
        return None;
    }
    let crossed = ThresholdCrossing {
        line: line.kind(),
        before,
        loss,
        is_confirmed: crossing.is_confirmed,
        n_beyond: n_layer,
        n_past: n_past_learning(history, looked_at, crossing.cell, thresholds),
        saturated_rows: history.at(looked_at, "saturated_rows", crossing.cell),
        max_abs_score: history.at(looked_at, "max_abs_score", crossing.cell),
        worst: worst(history, line, crossing),
        threshold,
    };
    Some(crossed.weigh())
}

/// Weighs what a mask let through. `None` where nothing shows that there was a mask: in every record before, some head of the stack
/// gave such keys something. One record suffices, so that a leak that spreads is found in each head.
fn weigh_leak(
    history: &History,
    (line, leak): (&Line, &Leak),
    crossing: &Crossing,
    (n_beyond, n_heads): (usize, usize),
) -> Option<SeverityDecision> {
    let layer_of = |cell: usize| history.grid().layers()[history.grid().layer_of(cell)].stack;
    let stack = layer_of(crossing.cell);
    let of_stack = |unit: &usize| layer_of(line.cell(history, *unit)) == stack;
    let largest_at = |record_idx: usize| {
        let units = (0..line.n_units(history)).filter(of_stack);
        let values = units.map(|unit| line.value(history, record_idx, unit));
        values.filter(|value| !value.is_nan()).reduce(f64::max)
    };
    let mut before = (0..crossing.begin).filter_map(largest_at);
    if !before.any(|largest| largest <= NO_MASS) {
        return None;
    }
    let heads = match n_beyond {
        n if n == n_heads && n > 1 => format!("all {n} heads of the layer"),
        n => format!("{n} of {n_heads} heads of the layer"),
    };
    let mass = digits(worst(history, line, crossing));
    let before = crossing.begin.saturating_sub(1);
    let loss = match loss_across(history, before, crossing.begin) {
        Loss::Better(was, is) => format!("the loss fell from {} to {}", digits(was), digits(is)),
        Loss::Worse(was, is) => format!("the loss rose from {} to {}", digits(was), digits(is)),
        Loss::Alike => "the loss did not jump".to_owned(),
        Loss::Unknown => "the loss is not known yet".to_owned(),
    };
    let why = format!(
        "{} get up to {mass} of a head's attention, and got none before; {heads}; {loss}",
        leak.what
    );
    let severity = if crossing.is_confirmed {
        Severity::Error
    } else {
        Severity::Warning
    };
    Some(SeverityDecision { severity, why })
}

/// Counts the heads in a cell's layer that are past learning at a record, without those of a type by design.
fn n_past_learning(
    history: &History,
    record_idx: usize,
    cell: usize,
    thresholds: &Thresholds,
) -> usize {
    let layer = history.grid().layer_of(cell);
    let is_past = |cell: &usize| {
        let [rows, scores] =
            ["saturated_rows", "max_abs_score"].map(|id| history.at(record_idx, id, *cell));
        is_past_learning(rows, scores, thresholds)
            && design_of(history, record_idx, *cell, thresholds).is_none()
    };
    history.grid().heads_of(layer).filter(is_past).count()
}

/// Returns the value furthest beyond the line.
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

/// Whether a statistic moved much further than its earlier noise.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::record::Numbers;
    use crate::{Curve, Grid, LayerShape, Losses, Reading, Update};

    /// Checkpoints of every 100 steps, with a loss of 2 on the prompt.
    fn checkpoints(n: u64) -> History {
        let mut history = History::new("run".to_owned(), Origin::Checkpoints);
        let path = |nth: u64| std::path::PathBuf::from(format!("step-{}", 100 * nth));
        let found = |nth| (path(nth), "step".to_owned(), Some(100 * nth));
        history.apply(Update::Found((0..n).map(found).collect()));
        let grid = Grid::new(vec![LayerShape {
            stack: attnscope_spec::Stack::Only,
            layer_idx: 0,
            n_heads: 1,
        }]);
        for nth in 0..n {
            let reading = Reading {
                numbers: Numbers {
                    batch: None,
                    loss: Some(2.0),
                    values: vec![0.0; grid.n_cells() * history.statistics().len()].into(),
                },
                ..Reading::of_rows(grid.clone(), Vec::new(), String::new())
            };
            history.apply(Update::Read(path(nth), Box::new(reading)));
        }
        history
    }

    fn with_logged(mut history: History, loss: impl Fn(u64) -> f64) -> History {
        let points = (0..100).map(|nth| (10 * nth, loss(10 * nth)));
        let training = Curve::new("train/loss".to_owned(), "TensorBoard", points);
        history.apply(Update::Losses(Arc::new(Losses {
            training: Some(training),
            evaluation: None,
        })));
        history
    }

    #[test]
    fn the_loss_that_the_training_logged_counts_before_that_on_the_prompt() {
        assert_eq!(loss_across(&checkpoints(8), 3, 4), Loss::Alike);
        let rises = with_logged(checkpoints(8), |step| if step < 400 { 3.0 } else { 4.0 });
        assert_eq!(loss_across(&rises, 3, 4), Loss::Worse(3.0, 4.0));
        // It was logged up to step 300 only.
        let mut ends = checkpoints(8);
        let points = (0..30).map(|nth| (10 * nth, 3.0));
        ends.apply(Update::Losses(Arc::new(Losses {
            training: Some(Curve::new("loss".to_owned(), "W&B", points)),
            evaluation: None,
        })));
        assert_eq!(loss_across(&ends, 3, 4), Loss::Alike);
    }

    #[test]
    fn the_noise_of_single_batches_makes_no_loss_worse() {
        // Batches differ by half; at the checkpoints they happen to be small before, and large after.
        let noisy = |step: u64| match step {
            200 | 300 => 2.8,
            400.. if step.is_multiple_of(100) => 3.2,
            _ if step.is_multiple_of(20) => 2.5,
            _ => 3.5,
        };
        let history = with_logged(checkpoints(6), noisy);
        assert_eq!(loss_across(&history, 3, 4), Loss::Alike);
    }
}
