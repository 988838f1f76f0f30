//! Whether a reading also helps with near tokens, or only in texts longer than those of the training.
//!
//! A model trained on short texts gets worse beyond their length. There, any reading that keeps attention to near tokens helps
//! it: a window, another rotary base, a smaller scale. The reading that the weights were trained with helps in short texts too.

use std::collections::BTreeMap;

use attnscope_compute::bootstrap::is_surely_positive;
use attnscope_spec::Place;

use super::evidence::{TestedHypothesis, TrainingProbe};
use super::gain::{Gain, mean_loss};
use super::trained_otherwise::{CHECK, named};
use super::verdict::{Finding, Severity, Status, Verdict};

/// Where a reading lowers the loss.
#[derive(Debug, Clone)]
enum Reach {
    /// Also in the beginnings of the texts, or all texts are short.
    Everywhere,
    /// Only in long texts.
    OnlyFar(Gain),
    /// The beginnings have too few positions to decide.
    Open(Gain),
}

/// Rules for judging readings by the beginnings of the texts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginnings {
    /// Minimum gain of interest, in nats.
    pub margin: f64,
    /// The share of its gain on whole texts that a reading must reach on beginnings.
    pub share: f64,
    pub n_tokens: usize,
    /// Whether a reading counts as undecided unless the beginnings decide.
    pub is_strict: bool,
}

impl Beginnings {
    fn reach(self, probe: &TrainingProbe, reading: &TestedHypothesis) -> Reach {
        let Some(declared) = probe.declared.last() else {
            return Reach::Everywhere;
        };
        if probe.of_beginnings.is_empty() || reading.of_beginnings.is_empty() {
            return Reach::Everywhere;
        }
        let on_beginnings = Gain::of(&probe.of_beginnings, &reading.of_beginnings);
        let wanted = self.share * (mean_loss(declared) - mean_loss(&reading.losses));
        if wanted <= 0.0
            || (on_beginnings.mean >= wanted && is_surely_positive(&on_beginnings.gains))
        {
            Reach::Everywhere
        } else if on_beginnings.interval().1 < wanted {
            Reach::OnlyFar(on_beginnings)
        } else {
            Reach::Open(on_beginnings)
        }
    }

    /// Whether a reading also lowers the loss in beginnings, or no text is longer.
    pub fn gains_everywhere(self, probe: &TrainingProbe, reading: &TestedHypothesis) -> bool {
        matches!(self.reach(probe, reading), Reach::Everywhere)
    }

    /// Whether a reading lowers the loss only in long texts.
    pub fn gains_only_far(self, probe: &TrainingProbe, reading: &TestedHypothesis) -> bool {
        matches!(self.reach(probe, reading), Reach::OnlyFar(_))
    }

    /// An informational finding on a reading with a clear gain in long texts only.
    pub fn finding(
        self,
        probe: &TrainingProbe,
        reading: &TestedHypothesis,
        n_ctx: Option<usize>,
    ) -> Option<Finding> {
        let declared = probe.declared.last()?;
        let gain = Gain::of(declared, &reading.losses);
        let Reach::OnlyFar(on_beginnings) = self.reach(probe, reading) else {
            return None;
        };
        if !gain.is_clear(self.margin) {
            return None;
        }
        let onset = onset(probe, &gain, self.margin);
        let worse = match onset {
            Some(Onset {
                n_tokens,
                before,
                after,
            }) => format!(
                "attention gets worse beyond about {n_tokens} tokens: loss {before:.3} before and {after:.3} after"
            ),
            None => format!(
                "attention gets worse in texts of more than {} tokens: loss {:.3}",
                self.n_tokens,
                mean_loss(declared)
            ),
        };
        let evidence = format!(
            "{worse}; {} gains {:.3} in whole texts and {:.3} in the first {} tokens",
            named(reading),
            gain.mean,
            on_beginnings.mean,
            self.n_tokens
        );
        let length = match onset {
            Some(onset) => format!("of about {} tokens", onset.n_tokens),
            None => "that were shorter".to_owned(),
        };
        let allowed = match (onset, n_ctx) {
            (Some(onset), Some(n_ctx)) if onset.n_tokens < n_ctx => {
                format!(", fewer than the {n_ctx} positions of its configuration")
            }
            _ => String::new(),
        };
        let advice = format!(
            "a model that was trained on texts {length}{allowed} does so: judge it on texts of that length; if it was trained on \
             longer ones, it may have been trained with {}",
            named(reading)
        );
        Some(Finding {
            check: CHECK.id,
            severity: Severity::Info,
            place: Place::MODEL,
            value: gain.mean,
            threshold: self.margin,
            unit: "nats per token",
            evidence,
            advice,
        })
    }

    /// The undecidable verdict, if the beginnings have too few positions to show whether a reading gains there too.
    pub fn undecided(
        self,
        probe: &TrainingProbe,
        said: &str,
        reading: &TestedHypothesis,
    ) -> Option<Verdict> {
        let Reach::Open(on_beginnings) = self.reach(probe, reading) else {
            return None;
        };
        if !self.is_strict {
            return None;
        }
        let gain = mean_loss(probe.declared.last()?) - mean_loss(&reading.losses);
        let (low, high) = on_beginnings.interval();
        Some(Verdict::undecidable(format!(
            "{said}; {} gains {gain:.3}, but {:.3} in the first {} tokens (99 % interval {low:.3}…{high:.3}), which does not tell \
             another training from one on shorter texts: give more texts",
            named(reading),
            on_beginnings.mean,
            self.n_tokens
        )))
    }
}

/// Adds the finding on long texts to a verdict without findings: as a finding if this verdict or that on beginnings has passed,
/// otherwise as part of the reason.
pub(super) fn with_long_texts(
    mut verdict: Verdict,
    of_beginnings: Status,
    of_long_texts: Finding,
) -> Verdict {
    if verdict.status == Status::Passed || of_beginnings == Status::Passed {
        return Verdict::of(vec![of_long_texts], "");
    }
    verdict.why.push_str("; ");
    verdict.why.push_str(&of_long_texts.evidence);
    verdict
}

/// The token of a text from which attention gets worse, with the mean loss before and after.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Onset {
    n_tokens: usize,
    before: f64,
    after: f64,
}

/// Finds where a gain begins: the position up to which the accumulated shortfall from the mean gain is largest (a single change
/// point by cumulative sums, Page 1954). `None` if the declared loss does not rise by `margin` there.
fn onset(probe: &TrainingProbe, gain: &Gain, margin: f64) -> Option<Onset> {
    let declared = probe.declared.last()?;
    let mut of_places = BTreeMap::<usize, f64>::new();
    for (place, gained) in probe.places.iter().zip(&gain.gains) {
        *of_places.entry(*place).or_default() += gained - gain.mean;
    }
    let (mut sum, mut lowest, mut n_tokens) = (0.0, 0.0, 0);
    for (place, off) in of_places {
        sum += off;
        if sum < lowest {
            (lowest, n_tokens) = (sum, place + 1);
        }
    }
    let of = |is_after: bool| {
        let all = probe.places.iter().zip(declared);
        let side = all.filter(|(place, _)| (**place >= n_tokens) == is_after);
        side.map(|(_, loss)| *loss).collect::<Vec<f32>>()
    };
    let (before, after) = (mean_loss(&of(false)), mean_loss(&of(true)));
    (after - before >= margin).then_some(Onset {
        n_tokens,
        before,
        after,
    })
}
