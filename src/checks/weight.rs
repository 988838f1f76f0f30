//! The severity of a head's statistic beyond its threshold: one decision for single checkpoints, histories and screens.
//!
//! A history also knows where the statistic was before, and how the loss changed. Missing knowledge never raises the severity.
//! What a layer shows by itself always counts: if most of its heads are past learning, that is an error, however it came about.

use super::evidence::Evidence;
use super::thresholds::Thresholds;
use super::verdict::Severity;
use crate::stats::{HeadReport, LayerReport, Stat};

/// A head with fewer saturated rows, or with smaller scores, is sharp but has not collapsed.
const SHARP_ROWS: f64 = 0.5;
const SHARP_SCORES: f64 = 50.0;
/// Scores alone are an error at this many times the threshold.
const RUNAWAY: f64 = 4.0;
/// Scores that no healthy head was seen to reach, where most rows are saturated: an error in a single head too. Wortsman et al. 2023
/// (arXiv 2309.14322) take 10⁴ as the mark of an unstable training.
const UNSTABLE: f64 = 1e4;

/// How the loss changed while the statistic crossed its threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    Unknown,
    /// The losses before and after.
    Better(f64, f64),
    Alike,
    Worse(f64, f64),
}

/// Where a statistic was before it crossed its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviousState {
    /// Unknown: a checkpoint alone, or the first record of a history.
    Unknown,
    /// Near the threshold.
    Near,
    /// So far on the healthy side that crossing the threshold is a collapse.
    Afar,
}

/// The nature of a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Crossing it is a fault by itself; otherwise it is information, unless the loss gets worse.
    pub is_fault: bool,
    /// Heads may cross it by design if they look at one kind of place.
    pub excuses_design: bool,
    /// It applies to single heads, not to whole layers.
    pub is_of_heads: bool,
}

/// Facts about a head or a layer beyond a threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThresholdCrossing {
    pub line: Line,
    pub before: PreviousState,
    pub loss: Loss,
    /// Whether a second record confirms it, since a single record may be an outlier.
    pub is_confirmed: bool,
    /// Number of heads of the layer beyond the threshold, and of all its heads.
    pub n_beyond: (usize, usize),
    /// Number of heads of the layer that are past learning.
    pub n_past: usize,
    /// Of the head; NaN if unknown.
    pub saturated_rows: f64,
    pub max_abs_score: f64,
    /// The value furthest beyond the threshold, and the threshold.
    pub worst: f64,
    pub threshold: f64,
}

/// A severity, with a short reason.
#[derive(Debug, Clone, PartialEq)]
pub struct SeverityDecision {
    pub severity: Severity,
    pub why: String,
}

/// Whether a head is past learning: most of its rows pass no gradient, and its scores have run away.
pub fn is_past_learning(saturated_rows: f64, max_abs_score: f64, thresholds: &Thresholds) -> bool {
    saturated_rows >= SHARP_ROWS
        && max_abs_score >= RUNAWAY * thresholds.score_explosion.max_abs_score
}

/// Number of heads of a layer that are past learning, except those that look at one kind of place by design.
pub(super) fn n_past_learning(
    evidence: &Evidence<'_>,
    layer: &LayerReport,
    thresholds: &Thresholds,
) -> usize {
    let is_past = |head: &&HeadReport| {
        let [rows, scores] =
            [Stat::SaturatedRows, Stat::MaxAbsScore].map(|stat| head.stats.of(stat));
        is_past_learning(rows, scores, thresholds)
            && evidence.has_distributions(layer, head)
            && evidence.by_design(layer, head, thresholds).is_none()
    };
    layer.heads.iter().filter(is_past).count()
}

/// The severity for a head without a history, with `n_past` heads of its layer past learning. If it is worse than a warning, the
/// reason is appended to the evidence.
pub(super) fn alone(
    evidence: &mut String,
    head: &HeadReport,
    (n_past, n_heads): (usize, usize),
    (worst, threshold): (f64, f64),
) -> Severity {
    let weight = ThresholdCrossing {
        line: Line {
            is_fault: true,
            excuses_design: true,
            is_of_heads: true,
        },
        before: PreviousState::Unknown,
        loss: Loss::Unknown,
        is_confirmed: true,
        n_beyond: (n_past, n_heads),
        n_past,
        saturated_rows: head.stats.of(Stat::SaturatedRows),
        max_abs_score: head.stats.of(Stat::MaxAbsScore),
        worst,
        threshold,
    }
    .weigh();
    if weight.severity == Severity::Error {
        evidence.push_str("; ");
        evidence.push_str(&weight.why);
    }
    weight.severity
}

impl ThresholdCrossing {
    /// Decides the severity, with a reason.
    pub fn weigh(&self) -> SeverityDecision {
        let weight = |severity, why: String| SeverityDecision { severity, why };
        if !self.is_confirmed {
            return weight(Severity::Warning, "only one record so far".to_owned());
        }
        let told = self.told();
        let (n_beyond, n_heads) = self.n_beyond;
        if self.is_lost() {
            let n = self.n_past;
            return weight(
                Severity::Error,
                format!(
                    "{n} of {n_heads} heads of the layer are past learning: most rows pass no gradient, and scores have run away{}",
                    told.map_or(String::new(), |told| format!("; {told}"))
                ),
            );
        }
        if self.is_unstable() {
            let told = told.map_or(String::new(), |told| format!("; {told}"));
            let why = format!(
                "scores reach {:.1e} and most rows pass no gradient{told}",
                self.max_abs_score
            );
            return weight(Severity::Error, why);
        }
        if self.before != PreviousState::Afar {
            let why = match self.before {
                PreviousState::Unknown => "present since the first record",
                PreviousState::Near | PreviousState::Afar => "it was already near the threshold",
            };
            let is_warning = self.line.is_fault && !matches!(self.loss, Loss::Better(..));
            let severity = if is_warning {
                Severity::Warning
            } else {
                Severity::Info
            };
            return weight(severity, why.to_owned());
        }
        let is_most = n_beyond >= 2 && 2 * n_beyond > n_heads;
        let told = told.unwrap_or_else(|| "the loss is not known".to_owned());
        let told = if is_most {
            format!("{n_beyond} of {n_heads} heads of the layer; {told}")
        } else {
            told
        };
        let line = self.line;
        match self.loss {
            Loss::Worse(..) => weight(Severity::Error, told),
            // Some heads learn to look at one place, but hardly ever most heads of a layer.
            Loss::Better(..) if is_most && line.excuses_design => weight(Severity::Error, told),
            Loss::Better(..) if line.is_fault => weight(Severity::Warning, told),
            Loss::Better(..) => weight(Severity::Info, told),
            Loss::Alike | Loss::Unknown if !line.is_fault => weight(Severity::Warning, told),
            Loss::Alike | Loss::Unknown if !line.is_of_heads => weight(Severity::Error, told),
            // Large models work with large scores; scores without any limit are an error.
            Loss::Alike | Loss::Unknown if !line.excuses_design => {
                if self.worst >= RUNAWAY * self.threshold {
                    let why = format!("it has reached {:.0}; {told}", self.worst);
                    weight(Severity::Error, why)
                } else {
                    weight(Severity::Warning, told)
                }
            }
            Loss::Alike | Loss::Unknown if is_most || self.is_saturated() => {
                weight(Severity::Error, told)
            }
            Loss::Alike | Loss::Unknown => {
                let why = format!("{told}; its rows still pass a gradient");
                weight(Severity::Warning, why)
            }
        }
    }

    /// Whether so many heads of the layer are past learning that it is lost, whatever happened before.
    fn is_lost(&self) -> bool {
        let (_, n_heads) = self.n_beyond;
        self.line.is_fault
            && self.line.is_of_heads
            && self.n_past >= 2
            && 2 * self.n_past >= n_heads
    }

    /// Whether the head's scores are beyond what any healthy one reaches, and its rows saturated.
    fn is_unstable(&self) -> bool {
        self.line.is_fault
            && self.line.is_of_heads
            && self.max_abs_score >= UNSTABLE
            && self.saturated_rows >= SHARP_ROWS
    }

    /// Whether the softmax of the head is past learning, by many saturated rows or large scores. True if neither is known.
    fn is_saturated(&self) -> bool {
        let (rows, scores) = (self.saturated_rows, self.max_abs_score);
        (rows.is_nan() && scores.is_nan()) || rows >= SHARP_ROWS || scores >= SHARP_SCORES
    }

    /// Describes how the loss changed, if known.
    fn told(&self) -> Option<String> {
        match self.loss {
            Loss::Worse(was, is) => Some(format!("the loss went from {was:.3} to {is:.3}")),
            Loss::Better(was, is) => {
                Some(format!("the loss fell from {was:.3} to {is:.3} meanwhile"))
            }
            Loss::Alike => Some("the loss did not improve".to_owned()),
            Loss::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: ThresholdCrossing = ThresholdCrossing {
        line: Line {
            is_fault: true,
            excuses_design: true,
            is_of_heads: true,
        },
        before: PreviousState::Unknown,
        loss: Loss::Unknown,
        is_confirmed: true,
        n_beyond: (1, 4),
        n_past: 0,
        saturated_rows: 0.9,
        max_abs_score: 900.0,
        worst: 0.01,
        threshold: 0.05,
    };

    fn severity(crossed: ThresholdCrossing) -> Severity {
        crossed.weigh().severity
    }

    #[test]
    fn a_layer_past_learning_is_an_error_with_or_without_a_history() {
        for before in [
            PreviousState::Unknown,
            PreviousState::Near,
            PreviousState::Afar,
        ] {
            for loss in [Loss::Unknown, Loss::Alike, Loss::Worse(2.0, 3.0)] {
                let lost = ThresholdCrossing {
                    before,
                    loss,
                    n_past: 2,
                    ..HEAD
                };
                assert_eq!(severity(lost), Severity::Error, "{lost:?}");
            }
        }
        // One of four heads, or the only head of a layer, does not count.
        for (n_past, n_heads) in [(1, 4), (1, 1), (3, 8), (0, 0)] {
            let alone = ThresholdCrossing {
                n_past,
                n_beyond: (n_past, n_heads),
                ..HEAD
            };
            assert_eq!(severity(alone), Severity::Warning, "{n_past} of {n_heads}");
        }
    }

    #[test]
    fn a_single_head_with_scores_of_a_million_is_an_error_with_or_without_a_history() {
        for before in [PreviousState::Unknown, PreviousState::Near] {
            let head = ThresholdCrossing {
                before,
                max_abs_score: 1e6,
                ..HEAD
            };
            assert_eq!(severity(head), Severity::Error);
            let with_gradient = ThresholdCrossing {
                saturated_rows: 0.1,
                ..head
            };
            assert_eq!(severity(with_gradient), Severity::Warning);
        }
    }

    #[test]
    fn only_large_scores_with_saturated_rows_are_past_learning() {
        let thresholds = Thresholds::default();
        let is_past = |rows, scores| is_past_learning(rows, scores, &thresholds);
        assert!(is_past(0.5, 400.0));
        for (rows, scores) in [
            (1.0, 399.0),
            (0.4, 6000.0),
            (f64::NAN, 6000.0),
            (1.0, f64::NAN),
        ] {
            assert!(!is_past(rows, scores), "{rows} {scores}");
        }
    }

    #[test]
    fn a_single_record_decides_nothing() {
        let unconfirmed = ThresholdCrossing {
            is_confirmed: false,
            n_past: 4,
            ..HEAD
        };
        assert_eq!(severity(unconfirmed), Severity::Warning);
    }
}
