//! Why does a softmax collapse? The order in which one asks: is it the norms, is it the angles, is it the scores?
//!
//! Each answer is computed from the rows of one head. The rule of thumb for scores (norm of a row below 5, variance about 1) is that of
//! a write-up about translators with unscaled dot products; it depends on the number of keys, and is told as what it is.

use crate::attention::HeadSummary;

/// Norm of a row of scores, and variance, up to which the rule of thumb sees no trouble.
const SCORE_NORM: f64 = 5.0;
const SCORE_VARIANCE: f64 = 2.0;
/// Relative entropy below which rows count as collapsed.
const COLLAPSED: f64 = 0.35;
/// A row of weights sums to 1, or to less where a sink takes some; beyond this it is none.
const MASS_TOLERANCE: f32 = 1e-3;
/// Norms of one side that differ by less than this factor are alike.
const ALIKE: f64 = 2.0;
/// Cosines beyond which directions alone would decide.
const ALIGNED: f64 = 0.7;

/// What an answer means for the next question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearing {
    Yes,
    No,
    Innocent,
    /// It fits, and explains nothing.
    NotConclusive,
    Cause,
    /// It cannot be told here.
    Unknown,
}

impl Bearing {
    pub fn label(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Innocent => "innocent",
            Self::NotConclusive => "not conclusive",
            Self::Cause => "the cause",
            Self::Unknown => "not known here",
        }
    }
}

/// One question and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub asks: &'static str,
    pub answer: String,
    pub bearing: Bearing,
}

/// Lowest, mean and highest of some numbers; NaN where there are none.
#[derive(Debug, Clone, Copy)]
struct Range {
    low: f64,
    mean: f64,
    high: f64,
}

impl Range {
    fn of(values: impl Iterator<Item = f32>) -> Self {
        let finite = values.map(f64::from).filter(|value| value.is_finite());
        let (mut low, mut high, mut sum, mut n) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0);
        for value in finite {
            (low, high) = (low.min(value), high.max(value));
            (sum, n) = (sum + value, n + 1.0);
        }
        if n > 0.0 {
            Self {
                low,
                mean: sum / n,
                high,
            }
        } else {
            Self {
                low: f64::NAN,
                mean: f64::NAN,
                high: f64::NAN,
            }
        }
    }

    fn words(self) -> String {
        if self.mean.is_nan() {
            return "not measured".to_owned();
        }
        format!("{:.2} … {:.2}, mean {:.2}", self.low, self.high, self.mean)
    }
}

/// The questions about one head, in order.
pub fn questions(head: &HeadSummary) -> Vec<Question> {
    let rows = || {
        head.rows
            .iter()
            .filter(|row| row.is_real && row.n_visible > 1)
    };
    let relative = |row: &crate::attention::RowSummary| row.entropy / (row.n_visible as f32).ln();
    let entropies = Range::of(rows().map(relative));
    // Where the softmax ran over queries, rows sum to anything, and have no entropy.
    let are_weights = rows().all(|row| row.mass <= 1.0 + MASS_TOLERANCE);
    let has_collapsed = are_weights && entropies.mean < COLLAPSED;
    let real_key = |idx: usize| head.real_keys.as_ref().is_none_or(|real| real[idx]);
    let keys = head
        .k_norms
        .iter()
        .enumerate()
        .filter(|(idx, _)| real_key(*idx));
    let (queries, keys) = (
        Range::of(rows().map(|row| row.q_norm)),
        Range::of(keys.map(|(_, norm)| *norm)),
    );
    let cosines = Range::of(rows().map(|row| row.cosine));
    let norms = Range::of(rows().map(|row| row.score_norm));
    let variances = Range::of(rows().map(|row| row.score_var));
    let is_alike = |range: Range| range.high <= ALIKE * range.low;
    vec![
        Question {
            asks: "has it collapsed?",
            answer: if are_weights {
                format!(
                    "entropy is {:.0} % of log n on average ({:.0} … {:.0} %)",
                    100.0 * entropies.mean,
                    100.0 * entropies.low,
                    100.0 * entropies.high
                )
            } else {
                "rows sum to more than 1: they are no weights over keys, and have no entropy"
                    .to_owned()
            },
            bearing: match has_collapsed {
                _ if entropies.mean.is_nan() || !are_weights => Bearing::Unknown,
                true => Bearing::Yes,
                false => Bearing::No,
            },
        },
        Question {
            asks: "is it the norms?",
            answer: format!("queries {}; keys {}", queries.words(), keys.words()),
            bearing: match () {
                () if queries.mean.is_nan() || keys.mean.is_nan() => Bearing::Unknown,
                () if is_alike(queries) && is_alike(keys) => Bearing::Innocent,
                () => Bearing::NotConclusive,
            },
        },
        Question {
            asks: "is it the angles?",
            answer: format!("mean cosine of a query with its keys {}", cosines.words()),
            bearing: match () {
                () if cosines.mean.is_nan() => Bearing::Unknown,
                () if cosines.mean.abs() > ALIGNED && has_collapsed => Bearing::Cause,
                () => Bearing::NotConclusive,
            },
        },
        Question {
            asks: "is it the scores?",
            answer: format!(
                "norm of a row {}; variance {} (rule of thumb: below {SCORE_NORM}, about 1; it depends on the number of keys)",
                norms.words(),
                variances.words()
            ),
            bearing: match () {
                () if norms.mean.is_nan() => Bearing::Unknown,
                () if variances.mean <= SCORE_VARIANCE => Bearing::Innocent,
                () if has_collapsed => Bearing::Cause,
                () => Bearing::NotConclusive,
            },
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{AttentionSpec, HeadMath, Scale, Tally, Visibility, finish_row};

    /// A head of given scores, whose queries and keys have these lengths.
    fn head(scores: &[[f32; 4]], norm: f32) -> HeadSummary {
        let spec = AttentionSpec {
            scale: Scale::One,
            is_cross: true,
            ..AttentionSpec::plain(1, 1, 8, false)
        };
        let visibility = Visibility::of_cross(spec.mask, (scores.len(), None), (4, None));
        let k_norms = [norm; 4];
        let math = HeadMath {
            spec: &spec,
            head_idx: 0,
            visibility: &visibility,
            sink: None,
            k_norms: &k_norms,
            column_log_sum_exp: None,
            positions: &[],
            bias_by_distance: &[],
        };
        let mut tally = Tally::new(scores.len(), 4, None);
        for (query_idx, row) in scores.iter().enumerate() {
            let (mut row, mut pattern) = (*row, [0.0; 4]);
            let summary = finish_row(&math, query_idx, norm, &mut row, &mut pattern);
            tally.add(summary, &pattern);
        }
        tally.finish(k_norms.to_vec(), &visibility)
    }

    fn bearings(head: &HeadSummary) -> Vec<Bearing> {
        questions(head)
            .iter()
            .map(|question| question.bearing)
            .collect()
    }

    #[test]
    fn wide_scores_are_the_cause_of_a_collapse_and_narrow_ones_are_not() {
        let rows = [[1.0, 0.8, 0.3, -0.2], [0.2, 1.1, -0.4, 0.1]];
        let calm = bearings(&head(&rows, 5.0));
        assert_eq!(calm[0], Bearing::No);
        assert_eq!(calm[3], Bearing::Innocent);
        let wide = head(&rows.map(|row| row.map(|s| 20.0 * s)), 14.0);
        let wide = bearings(&wide);
        use Bearing::{Cause, Innocent, NotConclusive, Yes};
        assert_eq!(wide, [Yes, Innocent, NotConclusive, Cause]);
    }

    #[test]
    fn what_was_not_measured_is_not_known() {
        let mut head = head(&[[1.0, 0.5, 0.0, 0.2]], 1.0);
        head.rows[0].q_norm = f32::NAN;
        head.rows[0].cosine = f32::NAN;
        let bearings = bearings(&head);
        assert_eq!(bearings[1..3], [Bearing::Unknown, Bearing::Unknown]);
    }
}
