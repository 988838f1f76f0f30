//! Checkpoints that lie far from the one before and the one after, which lie near each other: they are of another training, or of none.

use attnscope_checks::Severity;
use attnscope_checks::stats::{STATISTICS, Statistic};
use attnscope_spec::Place;

use super::judge::Finding;
use super::value::History;

const CHECK: &str = "foreign-step";

/// A value is off beyond so many times the distance of its neighbours, and beyond this share of their size. Ours.
const TIMES: f64 = 4.0;
const SHARE: f64 = 0.2;
/// A step is foreign where this share of its values is off, and so many. Ours.
const MOST: f64 = 0.5;
const FEWEST: usize = 12;

/// Findings of steps that do not belong between their neighbours.
pub(super) fn strays(history: &History) -> Vec<Finding> {
    let records = history.records();
    let read: Vec<usize> = (0..records.len())
        .filter(|idx| records[*idx].numbers.is_some())
        .collect();
    let of_three = |three: &[usize]| stray(history, [three[0], three[1], three[2]]);
    read.windows(3).filter_map(of_three).collect()
}

fn stray(history: &History, [before, at, after]: [usize; 3]) -> Option<Finding> {
    let n_heads = history.grid().n_heads();
    let (mut n, mut n_off) = (0usize, 0usize);
    let mut furthest: Option<(f64, &Statistic)> = None;
    for (column, idx) in history.statistics().iter().enumerate() {
        for cell in 0..n_heads {
            let of = |record_idx| history.value(record_idx, column, cell);
            let values = [of(before), of(at), of(after)];
            if values.iter().any(|value| !value.is_finite()) {
                continue;
            }
            n += 1;
            let times = how_far(values);
            if times > 1.0 {
                n_off += 1;
                if furthest.is_none_or(|(most, ..)| times > most) {
                    furthest = Some((times, STATISTICS[*idx]));
                }
            }
        }
    }
    let share = n_off as f64 / n as f64;
    let (_, furthest) = furthest.filter(|_| n_off >= FEWEST && share > MOST)?;
    let label = |idx: usize| history.records()[idx].label();
    let why = format!(
        "{:.0} % of {n} values lie far from {} and {}, which are near each other; furthest is {}",
        100.0 * share,
        label(before),
        label(after),
        furthest.title
    );
    Some(Finding {
        check: CHECK,
        severity: Severity::Warning,
        place: Place::MODEL,
        cell: 0,
        statistic: furthest.id,
        threshold: MOST,
        begin: at,
        to: share,
        end: Some(after),
        from: None,
        changed: None,
        warned: None,
        why,
        advice: "look at where this checkpoint comes from: another run, weights that were not loaded, or a save that failed",
    })
}

/// How far the middle value is from both others, in times of what counts as far.
fn how_far([before, at, after]: [f64; 3]) -> f64 {
    let off = (at - before).abs().min((at - after).abs());
    let size = before.abs().max(after.abs());
    let near = (TIMES * (after - before).abs()).max(SHARE * size);
    if near > 0.0 {
        off / near
    } else {
        f64::from(u8::from(off > 0.0)) * 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_off_if_it_is_far_from_both_and_they_are_near() {
        assert!(how_far([0.5, 0.9, 0.52]) > 1.0);
        assert!(how_far([0.5, 0.9, 1.3]) <= 1.0, "on its way");
        assert!(how_far([0.5, 0.55, 0.5]) <= 1.0, "noise");
        assert!(how_far([0.0, 0.1, 0.0]) > 1.0);
        assert!(how_far([0.0, 0.0, 0.0]) <= 1.0);
    }
}
