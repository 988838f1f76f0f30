//! Detects when a statistic crosses a line and when it comes back, one value at a time.

use super::lines::Line;

/// A range of records on the unhealthy side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The first record.
    pub begin: usize,
    /// The first record after it; `None` if it has not ended.
    pub end: Option<usize>,
    /// Whether a second record has confirmed it.
    pub is_confirmed: bool,
}

/// Follows one series relative to one line.
#[derive(Debug, Clone, Default)]
pub struct Follower {
    closed: Vec<Stretch>,
    begin: Option<usize>,
    is_confirmed: bool,
    /// The first record back on the healthy side.
    back: Option<usize>,
}

impl Follower {
    /// Takes the next value; NaN is ignored. With `needs_two`, a single record decides nothing, since values sampled from
    /// a batch may be outliers.
    pub fn take(&mut self, record_idx: usize, value: f64, line: &Line, at: f64, needs_two: bool) {
        if value.is_nan() {
            return;
        }
        let is_crossed = line.is_crossed(value, at);
        let Some(begin) = self.begin else {
            if is_crossed {
                self.begin = Some(record_idx);
                self.is_confirmed = !needs_two;
            }
            return;
        };
        if !self.is_confirmed {
            if is_crossed {
                self.is_confirmed = true
            } else {
                self.begin = None
            }
            return;
        }
        if !line.is_released(value, at) {
            self.back = None;
            return;
        }
        let back = *self.back.get_or_insert(record_idx);
        if !needs_two || back != record_idx {
            self.closed.push(Stretch {
                begin,
                end: Some(back),
                is_confirmed: true,
            });
            *self = Self {
                closed: std::mem::take(&mut self.closed),
                ..Self::default()
            };
        }
    }

    /// Returns all stretches, an unfinished one last.
    pub fn stretches(&self) -> impl Iterator<Item = Stretch> + '_ {
        let lasting = self.begin.map(|begin| Stretch {
            begin,
            end: None,
            is_confirmed: self.is_confirmed,
        });
        self.closed.iter().copied().chain(lasting)
    }

    /// Whether the series is on the unhealthy side now.
    pub fn lasts(&self) -> bool {
        self.begin.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::LINES;

    fn followed(values: &[f64], needs_two: bool) -> Vec<(usize, Option<usize>, bool)> {
        let line = &LINES[0];
        assert_eq!(line.check, "entropy-collapse");
        let mut follower = Follower::default();
        for (idx, value) in values.iter().enumerate() {
            follower.take(idx, *value, line, 0.05, needs_two);
        }
        let stretches = follower.stretches();
        stretches
            .map(|stretch| (stretch.begin, stretch.end, stretch.is_confirmed))
            .collect()
    }

    #[test]
    fn a_stretch_begins_at_its_first_record_and_a_single_outlier_is_none() {
        let (high, low) = (0.8, 0.03);
        assert_eq!(
            followed(&[high, low, low, low], true),
            [(1, None, true)],
            "it lasts"
        );
        assert_eq!(followed(&[high, low, high, high], true), [], "it strays");
        assert_eq!(
            followed(&[high, high, low], true),
            [(2, None, false)],
            "nothing confirms it yet"
        );
        assert_eq!(followed(&[high, low], false), [(1, None, true)]);
        assert_eq!(
            followed(&[low, low, high, low, high, high, low, low], true),
            [(0, Some(4), true), (6, None, true)],
            "one record back does not end it"
        );
        assert_eq!(
            followed(&[high, f64::NAN, low, f64::NAN, low], true),
            [(2, None, true)]
        );
    }

    #[test]
    fn noise_around_the_line_is_one_finding() {
        let values: Vec<f64> = (0..100)
            .map(|n| if n % 3 == 0 { 0.052 } else { 0.048 })
            .collect();
        assert_eq!(followed(&values, true), [(1, None, true)]);
    }
}
