//! Changes of level from one record to the next: of the loss, and of the heads of a layer.
//!
//! Two records in a row have to stand beyond the level before them, on the same side. A series that moves slowly never does, and a
//! single odd batch does not either.

use std::collections::VecDeque;

use super::robust::{median, noise};

/// How far beyond its earlier level a series has to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Times the noise of the level, if that is well known; of few values it is not, and more is asked.
    pub noise: f64,
    /// Share of the level's size.
    pub share: f64,
    /// The least change, in the series' own unit.
    pub least: f64,
    /// Number of records that make the level, at most and at least.
    pub window: usize,
    pub fewest: usize,
}

/// The loss.
pub(super) const OF_LOSS: Limits = Limits {
    noise: 7.0,
    share: 0.1,
    least: 0.0,
    window: 8,
    fewest: 5,
};

/// A statistic, in the mean of the heads of a layer.
pub(super) const OF_STATISTICS: Limits = Limits {
    noise: 8.0,
    share: 0.05,
    least: 0.0,
    window: 12,
    fewest: 8,
};

/// As [`OF_STATISTICS`], for shares: of what is nearly none, a trifle is many times as much.
pub(super) const OF_SHARES: Limits = Limits {
    least: 0.05,
    ..OF_STATISTICS
};

/// A change of level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Jump {
    /// The first record of the new level.
    pub begin: usize,
    /// The record before it.
    pub since: usize,
    pub from: f64,
    pub to: f64,
    /// The change, in times the noise.
    pub size: f64,
    /// The first record back at the old level; `None` if it has not come back.
    pub end: Option<usize>,
}

/// Follows one series.
#[derive(Debug, Clone, Default)]
pub(super) struct Jumps {
    /// Record and value, the latest last.
    recent: VecDeque<(usize, f64)>,
    pub found: Vec<Jump>,
}

impl Jumps {
    /// Takes the next value; NaN is ignored.
    pub fn take(&mut self, record_idx: usize, value: f64, limits: &Limits) {
        if !value.is_finite() {
            return;
        }
        self.look_for_end(record_idx, value);
        self.recent.push_back((record_idx, value));
        if let Some(jump) = self.jump(limits) {
            self.found.push(jump);
            // The level before says nothing of the next one.
            let n_old = self.recent.len() - 2;
            self.recent.drain(..n_old);
        }
        if self.recent.len() > limits.window + 2 {
            self.recent.pop_front();
        }
    }

    fn look_for_end(&mut self, record_idx: usize, value: f64) {
        let lasting = self.found.last_mut().filter(|jump| jump.end.is_none());
        if let Some(jump) = lasting
            && (value - jump.from).abs() < (value - jump.to).abs()
        {
            jump.end = Some(record_idx);
        }
    }

    /// Whether the last two values begin a new level.
    fn jump(&self, limits: &Limits) -> Option<Jump> {
        let n = self.recent.len();
        let n_before = n.checked_sub(2)?;
        if n_before < limits.fewest {
            return None;
        }
        let ((begin, to), (_, after)) = (self.recent[n - 2], self.recent[n - 1]);
        let (since, last) = self.recent[n - 3];
        let mut before = self.recent.range(..n_before).map(|(_, value)| *value);
        // Most records end here: the first value of a new level is far from the one before it.
        let step = to - last;
        if step.abs() < limits.share * last.abs() || step.signum() != (after - last).signum() {
            return None;
        }
        let before: Vec<f64> = before.by_ref().collect();
        let level = median(before.iter().copied());
        let spread = noise(&before).max(1e-3 * level.abs()).max(1e-6);
        // A series that moves on its own gets as far as it moved before, and a new level is left of none of that.
        let drift = (before[before.len() - 1] - before[0]).abs() / (before.len() - 1) as f64;
        let times = limits.noise * (1.0 + 4.0 / before.len() as f64);
        let least = (times * spread + 4.0 * drift)
            .max(limits.share * level.abs())
            .max(limits.least);
        let [near, far] = [to, after].map(|value| value - level);
        let is_beyond = near.signum() == far.signum() && near.abs().min(far.abs()) > least;
        // Beyond everything before, and by one step rather than by many.
        let is_step = step.signum() == near.signum()
            && step.abs() > least.min(0.7 * near.abs())
            && before
                .iter()
                .all(|value| (to - value).signum() == near.signum());
        (is_beyond && is_step).then_some(Jump {
            begin,
            since,
            from: level,
            to,
            size: near.abs().min(far.abs()) / spread,
            end: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[f64], limits: &Limits) -> Vec<(usize, Option<usize>)> {
        let mut jumps = Jumps::default();
        for (idx, value) in values.iter().enumerate() {
            jumps.take(idx, *value, limits);
        }
        let found = jumps.found.iter().map(|jump| (jump.begin, jump.end));
        found.collect()
    }

    /// Numbers that look random, between −1 and 1.
    fn random(seed: &mut u64) -> f64 {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    fn normal(seed: &mut u64) -> f64 {
        (0..6).map(|_| random(seed)).sum::<f64>() / std::f64::consts::SQRT_2
    }

    #[test]
    fn a_step_is_found_at_its_first_record_and_ends_where_it_goes_back() {
        let mut seed = 1;
        let mut values: Vec<f64> = (0..30).map(|_| 2.1 + 0.02 * normal(&mut seed)).collect();
        assert_eq!(found(&values, &OF_LOSS), []);
        values[20..26].iter_mut().for_each(|value| *value += 1.3);
        assert_eq!(found(&values, &OF_LOSS), [(20, Some(26)), (26, None)]);
        values[20..30].iter_mut().for_each(|value| *value = 3.4);
        assert_eq!(found(&values, &OF_LOSS), [(20, None)]);
        values[21..30].iter_mut().for_each(|value| *value = 2.1);
        assert_eq!(found(&values, &OF_LOSS), [], "one odd batch");
    }

    #[test]
    fn a_loss_that_falls_as_losses_do_never_jumps() {
        let mut seed = 2;
        for decay in [2.0, 10.0, 50.0] {
            let falls = (0..80).map(|n| 1.5 + 3.0 * (-f64::from(n) / decay).exp());
            let values: Vec<f64> = falls.map(|loss| loss + 0.02 * normal(&mut seed)).collect();
            assert_eq!(found(&values, &OF_LOSS), [], "{decay}");
        }
    }

    /// The rate of false alarms that the pages of both checks state.
    #[test]
    fn noise_without_a_change_jumps_in_less_than_one_record_of_five_thousand() {
        let (n_series, n_records) = (2000u32, 50u32);
        for (limits, level) in [(OF_LOSS, 2.0), (OF_STATISTICS, 0.5)] {
            for correlation in [0.0f64, 0.5, 0.8] {
                let mut n_found = 0;
                for series in 0..n_series {
                    let (mut seed, mut at) = (u64::from(series) + 7, 0.0);
                    let values: Vec<f64> = (0..n_records)
                        .map(|_| {
                            let new = (1.0 - correlation * correlation).sqrt() * normal(&mut seed);
                            at = correlation * at + new;
                            level + 0.1 * level * at
                        })
                        .collect();
                    n_found += found(&values, &limits).len();
                }
                let rate = n_found as f64 / f64::from(n_series * n_records);
                assert!(rate < 2e-4, "{correlation}: {rate}");
            }
        }
    }
}
