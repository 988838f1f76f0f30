//! A loss over the steps of a training.

/// The losses of a training, each from one logger.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Losses {
    pub training: Option<Curve>,
    pub evaluation: Option<Curve>,
}

impl Losses {
    /// Returns the losses that there are, each with its name in documents.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Curve)> {
        let training = self.training.as_ref().map(|curve| ("training", curve));
        let evaluation = self.evaluation.as_ref().map(|curve| ("evaluation", curve));
        training.into_iter().chain(evaluation)
    }
}

/// A loss over the steps, as it was logged.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Name under which it was logged: `train/loss`.
    pub name: String,
    /// The logger that wrote it: `TensorBoard`.
    pub logger: &'static str,
    /// Steps, which rise, and values.
    points: Vec<(u64, f64)>,
    /// Median distance between two logged steps; 0 for fewer than two.
    interval: u64,
}

impl Curve {
    /// Makes a curve from values in the order in which they were logged. A value replaces those of its step and of later steps, which a
    /// training wrote before it was started again.
    pub fn new(
        name: String,
        logger: &'static str,
        logged: impl IntoIterator<Item = (u64, f64)>,
    ) -> Self {
        let mut points: Vec<(u64, f64)> = Vec::new();
        for (step, value) in logged {
            if points.last().is_some_and(|(last, _)| *last >= step) {
                points.truncate(points.partition_point(|(known, _)| *known < step));
            }
            points.push((step, value));
        }
        let mut gaps: Vec<u64> = points
            .windows(2)
            .map(|pair| pair[1].0 - pair[0].0)
            .collect();
        let middle = gaps.len() / 2;
        let interval = if gaps.is_empty() {
            0
        } else {
            *gaps.select_nth_unstable(middle).1
        };
        Self {
            name,
            logger,
            points,
            interval,
        }
    }

    /// Returns the last value logged at or before a step; `None` if that is more than one interval of logging earlier.
    pub fn at(&self, step: u64) -> Option<f64> {
        let n = self.points.partition_point(|(known, _)| *known <= step);
        let (known, value) = *self.points.get(n.checked_sub(1)?)?;
        (step - known <= self.interval).then_some(value)
    }

    /// Returns at most `most` values, the last of those logged at or before a step.
    pub fn before(&self, step: u64, most: usize) -> Vec<f64> {
        let n = self.points.partition_point(|(known, _)| *known <= step);
        let values = self.points[n.saturating_sub(most)..n].iter();
        values.map(|(_, value)| *value).collect()
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(logged: &[(u64, f64)]) -> Curve {
        Curve::new("loss".to_owned(), "TensorBoard", logged.iter().copied())
    }

    #[test]
    fn a_step_has_the_last_value_within_one_interval_before_it() {
        let curve = curve(&[(10, 3.0), (20, 2.0), (30, 1.0)]);
        let at = [9, 10, 19, 20, 30, 40, 41].map(|step| curve.at(step));
        let expected = [
            None,
            Some(3.0),
            Some(3.0),
            Some(2.0),
            Some(1.0),
            Some(1.0),
            None,
        ];
        assert_eq!(at, expected);
        assert_eq!(curve.before(25, 8), [3.0, 2.0]);
        assert_eq!(curve.before(25, 1), [2.0]);
    }

    #[test]
    fn one_value_belongs_to_its_own_step_alone() {
        let curve = curve(&[(10, 3.0)]);
        assert_eq!((curve.at(10), curve.at(11)), (Some(3.0), None));
        assert_eq!(self::curve(&[]).at(5), None);
    }

    #[test]
    fn what_was_logged_before_a_restart_is_replaced() {
        let curve = curve(&[(10, 3.0), (20, 2.0), (30, 9.0), (20, 1.5), (30, 1.2)]);
        assert_eq!(curve.len(), 3);
        assert_eq!((curve.at(20), curve.at(30)), (Some(1.5), Some(1.2)));
    }

    #[test]
    fn steps_up_to_the_largest_number_are_no_problem() {
        let curve = curve(&[(0, 1.0), (u64::MAX, 2.0)]);
        assert_eq!(curve.at(u64::MAX), Some(2.0));
        assert_eq!(curve.at(u64::MAX - 1), Some(1.0));
    }
}
