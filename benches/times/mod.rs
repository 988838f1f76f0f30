//! Times in order: the median, the slowest of a hundred.

use std::time::Duration;

/// Times of repeated calls, the shortest first.
pub struct Times(Vec<Duration>);

impl Times {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time that a share of the calls does not exceed, in ms. NaN where nothing was measured.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (self.0.len() as f64 * share).ceil() as usize;
        let at = rank.clamp(1, self.0.len().max(1)) - 1;
        self.0
            .get(at)
            .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}
