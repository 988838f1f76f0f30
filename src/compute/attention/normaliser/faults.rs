//! Known faults between scores and pattern, each compared with a head's scores.

use super::by_design::softmax;
use super::rows::{Head, HeadRow, log_sum};
use super::{Explained, Fault};

const FEWEST_CELLS: usize = 6;
/// Cells expected to be at least this large determine the factor of their row.
const LARGE: f64 = 1e-3;

pub fn explain(head: &Head<'_>, tolerance: f64) -> Option<Explained<Fault>> {
    let n_cells = head.n_cells();
    if n_cells < FEWEST_CELLS {
        return None;
    }
    let holds = |by: Fault, expected: &dyn Fn(&HeadRow) -> Vec<f64>| {
        let off = head.off(expected);
        (off <= tolerance).then_some(Explained { by, off, n_cells })
    };
    let twice = |row: &HeadRow| {
        let once = softmax(row);
        let log_sum = log_sum(&once);
        once.iter().map(|p| (p - log_sum).exp()).collect()
    };
    // The second softmax runs over hidden keys too, to which the first one gave 0.
    let twice_of_all = |row: &HeadRow| {
        let once = softmax(row);
        let n_hidden = head.n_keys - row.keys.len();
        let sum = once.iter().map(|p| p.exp()).sum::<f64>() + n_hidden as f64;
        once.iter().map(|p| p.exp() / sum).collect()
    };
    let masked_after = |row: &HeadRow| -> Vec<f64> {
        let cells = row.scores.iter();
        cells.map(|s| (s - row.log_sum_of_all).exp()).collect()
    };
    let exponential = |row: &HeadRow| -> Vec<f64> { row.scores.iter().map(|s| s.exp()).collect() };
    let scores = |row: &HeadRow| row.scores.clone();
    holds(Fault::Twice, &twice)
        .or_else(|| holds(Fault::Twice, &twice_of_all))
        .or_else(|| holds(Fault::MaskedAfter, &masked_after))
        .or_else(|| holds(Fault::NoSoftmax, &scores))
        .or_else(|| holds(Fault::NoSum, &exponential))
        .or_else(|| temperature(head, &holds))
        .or_else(|| factors(head, &holds))
}

type Holds<'a> = dyn Fn(Fault, &dyn Fn(&HeadRow) -> Vec<f64>) -> Option<Explained<Fault>> + 'a;

/// The slope of log p against the scores within rows.
fn temperature(head: &Head<'_>, holds: &Holds<'_>) -> Option<Explained<Fault>> {
    let (mut with, mut of) = (0.0, 0.0);
    for row in &head.rows {
        let cells: Vec<(f64, f64)> = row
            .scores
            .iter()
            .zip(&row.found)
            .filter(|(_, p)| **p > 1e-6)
            .map(|(s, p)| (*s, p.ln()))
            .collect();
        let n = cells.len() as f64;
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| cells.iter().map(of).sum::<f64>() / n;
        let (score, log_p) = (mean(&|c| c.0), mean(&|c| c.1));
        for (s, l) in &cells {
            with += (s - score) * (l - log_p);
            of += (s - score) * (s - score);
        }
    }
    let factor = with / of;
    if !factor.is_finite() {
        return None;
    }
    let scaled = |row: &HeadRow| -> Vec<f64> {
        let scores: Vec<f64> = row.scores.iter().map(|s| factor * s).collect();
        let log_sum = log_sum(&scores);
        scores.iter().map(|s| (s - log_sum).exp()).collect()
    };
    holds(Fault::Temperature(factor), &scaled)
}

/// One factor per row, or one for all rows.
fn factors(head: &Head<'_>, holds: &Holds<'_>) -> Option<Explained<Fault>> {
    let factor = |row: &HeadRow| -> f64 {
        let expected = softmax(row);
        let cells = row.found.iter().zip(&expected);
        // The largest cell has the most digits.
        let largest = cells.max_by(|a, b| a.1.total_cmp(b.1));
        largest.map_or(f64::NAN, |(p, e)| if *e > LARGE { p / e } else { f64::NAN })
    };
    let all: Vec<f64> = head.rows.iter().map(factor).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !(least > 0.0 && most.is_finite()) {
        return None;
    }
    let times = |row: &HeadRow, by: f64| softmax(row).iter().map(|p| by * p).collect::<Vec<_>>();
    let middle = 0.5 * (least + most);
    holds(Fault::Scaled(middle), &|row| times(row, middle)).or_else(|| {
        // A row of one key fits any factor.
        let n_telling = head.rows.iter().filter(|row| row.keys.len() >= 3).count();
        let found = holds(Fault::RowFactors(least, most), &|row| {
            times(row, factor(row))
        });
        found.filter(|_| n_telling >= 2)
    })
}
