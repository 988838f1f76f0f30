//! Finds where a statistic's move towards a line began: the record before a jump, or the beginning of a slope.

use attnscope_checks::Thresholds;

use super::lines::Line;
use super::robust::median;
use super::value::History;

/// Most records to look back for the beginning of a move.
const MOVED_WITHIN: usize = 512;
/// Share of the whole move by which a record must be further from the line to be part of it. The search ends after `MOVED_GAP`
/// records that are not.
const MOVED_SHARE: f64 = 0.05;
const MOVED_GAP: usize = 3;
/// A move is a jump if one step is this share of it.
const JUMP: f64 = 0.85;

/// Returns the record where a series began to move to the line it crosses, and the value there: searches back from the crossing
/// for as long as values get further from the line.
pub(super) fn moved_from(
    history: &History,
    line: &Line,
    unit: usize,
    begin: usize,
    thresholds: &Thresholds,
) -> Option<(usize, f64)> {
    let to = line.value(history, begin, unit);
    let mut furthest: Option<(usize, f64)> = None;
    let mut gap = 0;
    for idx in (begin.saturating_sub(MOVED_WITHIN)..begin).rev() {
        let value = line.value(history, idx, unit);
        if value.is_nan() {
            continue;
        }
        let gained = match furthest {
            None => line.is_worse(to, value),
            Some((_, known)) => {
                line.is_worse(known, value)
                    && (known - value).abs() > MOVED_SHARE * (value - to).abs()
            }
        };
        if gained {
            furthest = Some((idx, value));
            gap = 0;
        } else {
            gap += 1;
            if gap >= MOVED_GAP {
                break;
            }
        }
    }
    let threshold = line.at(thresholds);
    if furthest.is_some_and(|(_, value)| !line.is_ordinary(value, threshold))
        && let Some(slow) = moved_slowly_from(history, line, unit, begin)
        && line.is_ordinary(slow.1, threshold)
    {
        return Some(slow);
    }
    // For a jump, return the record just before it.
    let last = (0..begin)
        .rev()
        .map(|idx| (idx, line.value(history, idx, unit)));
    let last = last.take(MOVED_GAP).find(|(_, value)| !value.is_nan());
    match (last, furthest) {
        (Some((idx, value)), Some((_, far))) if (value - to).abs() >= JUMP * (far - to).abs() => {
            Some((idx, value))
        }
        _ => furthest,
    }
}

/// Returns the beginning of a noisy move, where no single record is the furthest: searches back over medians of a
/// few records each, for as long as they get further from the line.
fn moved_slowly_from(
    history: &History,
    line: &Line,
    unit: usize,
    begin: usize,
) -> Option<(usize, f64)> {
    const TOGETHER: usize = 5;
    let values = (begin.saturating_sub(MOVED_WITHIN)..begin).rev();
    let values = values.map(|idx| (idx, line.value(history, idx, unit)));
    let values: Vec<(usize, f64)> = values.filter(|(_, value)| !value.is_nan()).collect();
    let scaled = |value: f64| {
        if line.is_ratio {
            value.max(f64::MIN_POSITIVE).ln()
        } else {
            value
        }
    };
    let to = scaled(line.value(history, begin, unit));
    let mut furthest: Option<(usize, f64)> = None;
    for part in values.chunks_exact(TOGETHER) {
        let value = median(part.iter().map(|(_, value)| *value));
        let gained = furthest.is_none_or(|(_, known)| {
            let gain = (scaled(known) - scaled(value)).abs();
            line.is_worse(known, value) && gain > MOVED_SHARE * (scaled(value) - to).abs()
        });
        if !gained {
            break;
        }
        furthest = Some((part[TOGETHER / 2].0, value));
    }
    furthest
}
