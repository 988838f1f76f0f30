//! Detects a change of level in a series, at a stated false-alarm rate.
//!
//! The self-normalised CUSUM of Shao and Zhang 2010 (JASA 105, 1228), on ranks. It needs no estimate of the autocorrelation, and
//! ranks make it indifferent to heavy tails. docs/history.md has the formula and where the limits come from.

/// With fewer values, the test could not distinguish a clean step from noise.
pub const FEWEST: usize = 20;
/// With more values, callers pass only the nearest ones: the cost grows with the square.
pub const MOST: usize = 64;

/// False-alarm rates, and the statistic that noise without a change exceeds at that rate: for 12 to 64 values with a
/// correlation between neighbours of up to 0.8.
const LIMITS: [(f64, f64); 2] = [(0.01, 230.0), (0.001, 400.0)];

/// A change of level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// Index of the first value of the new level.
    pub at: usize,
    /// Share of noise series, at most, in which a change this clear appears.
    pub false_alarms: f64,
}

/// Finds the clearest change of level. `None` if more than 1 % of noise series show one as clear, or if there are too few or too
/// many values.
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

/// Returns the rank of each value; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|other| **other < value).count() as f64;
    let alike = |value: f64| values.iter().filter(|other| **other == value).count() as f64;
    let rank = |value: &f64| below(*value) + (alike(*value) - 1.0) / 2.0;
    values.iter().map(rank).collect()
}

/// Returns the split with the largest statistic, and that statistic.
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
        // If all values on each side are equal, any difference is as clear as can be.
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
    fn a_step_is_located_and_ties_are_not_a_change() {
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
