//! Whether a series changed its level, at a stated rate of false alarms.
//!
//! The self-normalised CUSUM of Shao and Zhang 2010 (JASA 105, 1228), on ranks. It needs no estimate of the autocorrelation, and
//! ranks make it indifferent to heavy tails. docs/history.md has the formula and where the limits come from.

/// With fewer values the test could not tell a clean step from noise.
pub const FEWEST: usize = 20;
/// With more values the nearest ones are taken: the work grows with the square.
pub const MOST: usize = 64;

/// Values of the statistic that noise without a change exceeds in 1 % and in 0.1 % of series: of 12 to 64 values, with a correlation
/// of neighbours of up to 0.8.
const LIMITS: [(f64, f64); 2] = [(0.01, 230.0), (0.001, 400.0)];

/// A change of level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// The first value of the new level.
    pub at: usize,
    /// Noise shows a change as plain as this in at most that share of series.
    pub false_alarms: f64,
}

/// Looks for the plainest change of level among some values in order. `None` where noise would look so in more than 1 % of series,
/// or where there are too few values.
pub fn change_point(values: &[f64]) -> Option<ChangePoint> {
    if values.len() < FEWEST || values.len() > MOST {
        return None;
    }
    let (at, statistic) = plainest(&ranks(values))?;
    let passed = LIMITS.iter().rev().find(|(_, limit)| statistic > *limit)?;
    Some(ChangePoint {
        at,
        false_alarms: passed.0,
    })
}

/// The place of each value in the order of all; equal values share the mean of their places.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|other| **other < value).count() as f64;
    let alike = |value: f64| values.iter().filter(|other| **other == value).count() as f64;
    let rank = |value: &f64| below(*value) + (alike(*value) - 1.0) / 2.0;
    values.iter().map(rank).collect()
}

/// The split with the largest statistic, and that statistic.
fn plainest(ranks: &[f64]) -> Option<(usize, f64)> {
    let n = ranks.len();
    let mean = ranks.iter().sum::<f64>() / n as f64;
    let mut sums = vec![0.0];
    for rank in ranks {
        sums.push(sums[sums.len() - 1] + rank - mean);
    }
    let total = sums[n];
    let split = |at: usize| {
        let before: f64 = (1..=at)
            .map(|t| (sums[t] - t as f64 / at as f64 * sums[at]).powi(2))
            .sum();
        let n_after = (n - at) as f64;
        let after: f64 = (at..n)
            .map(|t| (total - sums[t] - (n - t) as f64 / n_after * (total - sums[at])).powi(2))
            .sum();
        // All values alike on each side: as plain as can be, where there is a difference at all.
        let scale = (before + after).max(1e-9);
        (at, n as f64 * sums[at].powi(2) / scale)
    };
    (2..n.saturating_sub(1))
        .map(split)
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_found_where_it_is_and_ties_are_no_change() {
        let step: Vec<f64> = (0..40u32)
            .map(|n| f64::from(n * 7919 % 13) / 13.0 + if n >= 22 { 3.0 } else { 0.0 })
            .collect();
        let found = change_point(&step).expect("a change");
        assert_eq!(found.at, 22);
        assert!(found.false_alarms <= 0.01);
        assert_eq!(change_point(&[1.0; 40]), None);
        assert_eq!(change_point(&step[15..30]), None, "too few");
    }
}
