//! Finds the cause of a collapsed softmax by asking in order: is it the norms, is it the angles, is it the scores?
//!
//! Each answer is computed from the rows of one head. Whether the head has collapsed, and why, is decided in `checks`, which
//! also make the findings. The rule of thumb for scores (row norm below 5, variance about 1) comes from a write-up about
//! translation models with unscaled dot products. It depends on the number of keys, and the answer says so.

use std::sync::LazyLock;

use attnscope_checks::Thresholds;
use attnscope_checks::collapse::{Cause, Sharpness};
use attnscope_checks::stats::{HeadReport, LayerReport};
use attnscope_compute::attention::RowSummary;

/// Norm of a row of scores up to which the rule of thumb sees no problem.
const SCORE_NORM: f64 = 5.0;

/// Variance of a row of scores up to which the scores are not the cause.
const SCORE_VARIANCE: f64 = 2.0;

/// Norms that differ by less than this factor count as alike.
const ALIKE: f64 = 2.0;

/// Explanation shown for a sharp alignment.
const ALIGNED: &str = ": each query looks at words of its own, and scores are in range";

/// The screen judges by the default thresholds.
static THRESHOLDS: LazyLock<Thresholds> = LazyLock::new(Thresholds::default);

/// Meaning of an answer for the next question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearing {
    Yes,
    /// True, but intended by the architecture.
    ByDesign,
    No,
    Innocent,
    /// Consistent with a collapse, but does not explain it.
    NotConclusive,
    Cause,
    /// Cannot be determined here.
    Unknown,
}

impl Bearing {
    pub fn label(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::ByDesign => "by design",
            Self::No => "no",
            Self::Innocent => "not the cause",
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

/// Minimum, mean and maximum of some numbers; NaN if there are none.
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
        let [low, high, mean] = [self.low, self.high, self.mean].map(|value| {
            // Thousands need no decimals.
            let n_decimals = if value.abs() < 1000.0 { 2 } else { 0 };
            format!("{value:.n_decimals$}")
        });
        format!("{low} … {high}, mean {mean}")
    }
}

/// Answers the questions about one head of a layer, in order. `is_delimiter` is true for keys that are separator tokens.
pub fn questions(
    layer: &LayerReport,
    head: &HeadReport,
    is_delimiter: &dyn Fn(usize) -> bool,
) -> Vec<Question> {
    let summary = &head.summary;
    let rows = || {
        let rows = summary.rows.iter();
        rows.filter(|row| row.is_real && row.n_visible > 1)
    };
    let entropy = attnscope_checks::collapse::relative_entropy(layer, head);
    let sharpness = attnscope_checks::collapse::sharpness(layer, head, entropy, &THRESHOLDS);
    let is_low = sharpness != Sharpness::Ordinary;
    let is_alignment = sharpness == Sharpness::Alignment;
    let design = attnscope_checks::collapse::by_design(layer, head, is_delimiter, &THRESHOLDS);
    let design = design.filter(|_| sharpness == Sharpness::Collapsed);
    let has_collapsed = is_low && !is_alignment && design.is_none();
    let cause = has_collapsed.then(|| attnscope_checks::collapse::cause(&layer.spec, &head.stats));
    let real_key = |idx: usize| summary.real_keys.as_ref().is_none_or(|real| real[idx]);
    let keys = summary.k_norms.iter().enumerate();
    let keys = keys.filter(|(idx, _)| real_key(*idx));
    let (queries, keys) = (
        Range::of(rows().map(|row| row.q_norm)),
        Range::of(keys.map(|(_, norm)| *norm)),
    );
    let cosines = Range::of(rows().map(|row| row.cosine));
    let norms = Range::of(rows().map(|row| row.score_norm));
    let variances = Range::of(rows().map(|row| row.score_var));
    let is_alike = |range: Range| range.high <= ALIKE * range.low;
    let answer = match design {
        _ if entropy.is_nan() => {
            "rows do not sum to 1: they are not weights over keys, and have no entropy".to_owned()
        }
        Some(design) => format!(
            "entropy is {:.0} % of log n; {:.2} goes to {}",
            100.0 * entropy,
            design.share,
            design.what
        ),
        None => {
            let relative = |row: &RowSummary| row.entropy / (row.n_visible as f32).ln();
            let each = Range::of(rows().map(relative));
            format!(
                "entropy is {:.0} % of log n on average ({:.0} … {:.0} %)",
                100.0 * entropy,
                100.0 * each.low,
                100.0 * each.high
            ) + if is_alignment { ALIGNED } else { "" }
        }
    };
    vec![
        Question {
            asks: "has it collapsed?",
            answer,
            bearing: match () {
                () if entropy.is_nan() => Bearing::Unknown,
                () if has_collapsed => Bearing::Yes,
                () if is_low => Bearing::ByDesign,
                () => Bearing::No,
            },
        },
        Question {
            asks: "is it the norms?",
            answer: format!("queries {}; keys {}", queries.words(), keys.words()),
            bearing: match attnscope_checks::collapse::are_too_long(&layer.spec, &head.stats) {
                None => Bearing::Unknown,
                Some(true) if cause == Some(Cause::Norms) => Bearing::Cause,
                Some(false) if is_alike(queries) && is_alike(keys) => Bearing::Innocent,
                Some(_) => Bearing::NotConclusive,
            },
        },
        Question {
            asks: "is it the angles?",
            answer: format!("mean cosine of a query with its keys {}", cosines.words()),
            bearing: match cause {
                _ if cosines.mean.is_nan() => Bearing::Unknown,
                Some(Cause::Angles) => Bearing::Cause,
                _ => Bearing::NotConclusive,
            },
        },
        Question {
            asks: "is it the scores?",
            answer: format!(
                "norm of a row {}; variance {} (rule of thumb: below {SCORE_NORM}, about 1; it depends on the number of keys)",
                norms.words(),
                variances.words()
            ),
            bearing: match cause {
                _ if norms.mean.is_nan() => Bearing::Unknown,
                _ if variances.mean <= SCORE_VARIANCE => Bearing::Innocent,
                // The scores are wide because of the cause named above.
                Some(Cause::Norms | Cause::Angles) => Bearing::Yes,
                Some(_) => Bearing::Cause,
                None => Bearing::NotConclusive,
            },
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::head_report;
    use attnscope_checks::stats::LayerEvidence;
    use attnscope_compute::attention::{
        AttentionSpec, HeadMath, HeadSummary, Scale, Tally, Visibility, finish_row,
    };
    use attnscope_spec::Stack;

    const N_KEYS: usize = 8;

    /// A layer with one head of the given scores, whose queries and keys all have this norm.
    fn layer(rows: &[[f32; N_KEYS]], norm: f32, scale: Scale) -> LayerReport {
        let spec = AttentionSpec {
            scale,
            ..AttentionSpec::plain(1, 1, 64, false)
        };
        let visibility = Visibility::of_cross(spec.mask, (rows.len(), None), (N_KEYS, None));
        let k_norms = [norm; N_KEYS];
        let math = HeadMath::plain(&spec, &visibility, &k_norms);
        let mut tally = Tally::new(&visibility, None);
        let factor = spec.scale.factor(spec.d_head);
        for (query_idx, row) in rows.iter().enumerate() {
            let (mut row, mut pattern) = (row.map(|score| score / factor), [0.0; N_KEYS]);
            let summary = finish_row(&math, query_idx, norm, &mut row, &mut pattern);
            tally.add(summary, &pattern);
        }
        let summary: HeadSummary = tally.finish(k_norms.to_vec(), &visibility);
        let head = head_report(&spec, summary, (&[], &[]), false, None);
        let evidence = LayerEvidence::default();
        LayerReport {
            stack: Stack::Cross,
            layer_idx: 0,
            name: None,
            has_sinks: false,
            stats: attnscope_checks::stats::of_layer(std::slice::from_ref(&head.stats), &evidence),
            spec,
            heads: vec![head],
            alike: Vec::new(),
            peak: None,
        }
    }

    /// Scores in which every query prefers a different key, by this much.
    fn rows(by: f32) -> Vec<[f32; N_KEYS]> {
        let row = |query: usize| {
            std::array::from_fn(|key| {
                let wave = ((query * 5 + key * 3) % N_KEYS) as f32 / N_KEYS as f32;
                by * wave
            })
        };
        (0..16).map(row).collect()
    }

    fn bearings(layer: &LayerReport) -> Vec<Bearing> {
        let head = &layer.heads[0];
        let asked = questions(layer, head, &|_| false);
        asked.iter().map(|question| question.bearing).collect()
    }

    use Bearing::{Cause as TheCause, Innocent, No, NotConclusive, Unknown, Yes};

    #[test]
    fn narrow_scores_are_not_the_cause() {
        let calm = bearings(&layer(&rows(1.0), 8.0, Scale::InvSqrtD));
        assert_eq!(calm[0], No);
        assert_eq!(calm[3], Innocent);
    }

    #[test]
    fn a_missing_scale_is_distinguished_from_large_norms_and_aligned_angles() {
        // Norms of 8 in 64 dimensions predict a standard deviation of 1 with a scale, and of 8 without.
        let unscaled = bearings(&layer(&rows(160.0), 8.0, Scale::One));
        assert_eq!(unscaled, [Yes, Innocent, NotConclusive, TheCause]);
        let long = bearings(&layer(&rows(160.0), 60.0, Scale::InvSqrtD));
        assert_eq!(long, [Yes, TheCause, NotConclusive, Yes]);
        let aligned = bearings(&layer(&rows(160.0), 8.0, Scale::InvSqrtD));
        assert_eq!(aligned, [Yes, Innocent, TheCause, Yes]);
    }

    #[test]
    fn an_entropy_between_the_old_thresholds_is_not_a_collapse() {
        let layer = layer(&rows(24.0), 60.0, Scale::InvSqrtD);
        let entropy = attnscope_checks::collapse::relative_entropy(&layer, &layer.heads[0]);
        assert!((0.06..0.12).contains(&entropy), "{entropy}");
        assert_eq!(bearings(&layer)[0], No);
        // Large norms, but no collapse to cause.
        assert_eq!(bearings(&layer)[1], NotConclusive);
        // In cross-attention, each query may attend to one or a few words, and that is sharp.
        let mut alignment = layer;
        alignment.spec.is_cross = true;
        assert_eq!(bearings(&alignment)[0], Yes, "by its wide scores alone");
        // With ordinary norms, the sharpness comes from words that belong together.
        let mut calm = self::layer(&rows(24.0), 8.0, Scale::InvSqrtD);
        calm.spec.is_cross = true;
        assert_eq!(bearings(&calm)[0], Bearing::ByDesign);
    }

    #[test]
    fn values_that_were_not_measured_give_unknown() {
        let mut layer = layer(&rows(160.0), 8.0, Scale::One);
        let mut summary = layer.heads[0].summary.clone();
        for row in &mut summary.rows {
            (row.q_norm, row.cosine, row.k_norm_sq_sum) = (f32::NAN, f32::NAN, f32::NAN);
        }
        layer.heads[0] = head_report(&layer.spec, summary, (&[], &[]), false, None);
        assert_eq!(bearings(&layer), [Yes, Unknown, Unknown, TheCause]);
        let cause = attnscope_checks::collapse::cause(&layer.spec, &layer.heads[0].stats);
        assert_eq!(cause, Cause::NotMeasured);
        assert!(!cause.advice().contains("ordinary"));
    }
}
