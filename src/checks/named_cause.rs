//! The finding that names the reading that the weights were trained with.

use attnscope_spec::{Place, Stack};

use super::evidence::TestedHypothesis;
use super::gain::{Gain, mean_loss};
use super::trained_otherwise::{Against, is_same, named};
use super::verdict::{Explained, Finding};

impl Against<'_> {
    /// Other readings of the family, in the same place, that explain the text as well.
    fn as_near<'t>(
        &self,
        best: &TestedHypothesis,
        candidates: &[&'t TestedHypothesis],
    ) -> Vec<&'t str> {
        const MOST: usize = 4;
        let is_near = |other: &&TestedHypothesis| {
            other.hypothesis.family == best.hypothesis.family
                && other.hypothesis.name != best.hypothesis.name
                && (other.hypothesis.layer_idx, other.hypothesis.head_idx)
                    == (best.hypothesis.layer_idx, best.hypothesis.head_idx)
                && !is_same(best, other)
                && !self.is_better(best, other)
        };
        let near = candidates.iter().copied().filter(is_near).take(MOST);
        near.map(|other| other.hypothesis.name.as_str()).collect()
    }

    pub(super) fn finding(
        &self,
        said: &str,
        best: &TestedHypothesis,
        gain: &Gain,
        candidates: &[&TestedHypothesis],
        rivals: &[&TestedHypothesis],
    ) -> Finding {
        let twins = candidates
            .iter()
            .filter(|other| is_same(best, other) && other.hypothesis.name != best.hypothesis.name);
        let mut twins: Vec<&str> = twins.map(|other| other.hypothesis.name.as_str()).collect();
        twins.dedup();
        // If another layer or head explains the text as well, the place is undecided.
        let is_elsewhere = |other: &&&TestedHypothesis| {
            other.hypothesis.name == best.hypothesis.name
                && (other.hypothesis.layer_idx, other.hypothesis.head_idx)
                    != (best.hypothesis.layer_idx, best.hypothesis.head_idx)
                && other.hypothesis.layer_idx.is_some()
                && !self.is_better(best, other)
        };
        let is_place_open = best.hypothesis.layer_idx.is_some()
            && candidates.iter().any(|other| is_elsewhere(&other));
        let place = match (best.hypothesis.layer_idx, best.hypothesis.head_idx) {
            (Some(layer_idx), Some(head_idx)) if !is_place_open => {
                Place::layer(Stack::Only, layer_idx).head(head_idx)
            }
            (Some(layer_idx), None) if !is_place_open => Place::layer(Stack::Only, layer_idx),
            _ => Place::MODEL,
        };
        let (low, high) = gain.interval();
        let mut evidence = format!(
            "{said}, {:.3} with {}: {:.3} better, 99 % interval {:.3}…{:.3}",
            mean_loss(&best.losses),
            named(best),
            gain.mean,
            low,
            high
        );
        if let Some(silenced) = best.silenced {
            evidence.push_str(&format!(
                "; {silenced:.3} without attention or feed-forward layers there"
            ));
        }
        if !twins.is_empty() {
            evidence.push_str(&format!("; here the same as {}", twins.join(" and ")));
        }
        if is_place_open {
            evidence.push_str("; in which place is not decided");
        }
        let near = self.as_near(best, candidates);
        if !near.is_empty() {
            evidence.push_str(&format!("; as near: {}", near.join(", ")));
        }
        let advice = match rivals.first() {
            Some(rival) => {
                evidence.push_str(&format!(
                    "; {} gains {:.3}",
                    named(rival),
                    self.gain_of(rival)
                ));
                format!(
                    "the weights were trained or loaded with another attention; it is not decided between {} and {}: look for both \
                     in the training code and in how the checkpoint was saved, or give more text",
                    named(best),
                    named(rival)
                )
            }
            None => {
                let explained = self.explained(gain.mean);
                let is_enough = explained.share() >= Explained::ENOUGH;
                if !is_enough {
                    evidence.push_str(&format!(
                        "; at least {:.2} nats are missing of a trained model",
                        explained.of
                    ));
                }
                let run = match best.hypothesis.advice.as_str() {
                    "" => String::new(),
                    _ if !is_enough => {
                        ", and look for what else is wrong: this is not all of it".to_owned()
                    }
                    flags if flags.starts_with("--") && best.hypothesis.layer_idx.is_none() => {
                        format!(", or run this checkpoint as trained with {flags}")
                    }
                    flags if flags.starts_with("--") => {
                        ", or run this checkpoint as trained with the same change there".to_owned()
                    }
                    what => format!(" ({what})"),
                };
                format!(
                    "the weights were trained or loaded with {}: correct the code that trained or saved them{run}",
                    named(best)
                )
            }
        };
        self.found(place, gain, evidence, advice)
    }
}
