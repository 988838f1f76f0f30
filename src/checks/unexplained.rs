//! A model that is broken in a way that no reading explains: what that is known by, and which part it is.
//!
//! A reading that gains no more than silence in the layers that it changes says only that these are broken. Where the model does
//! better without a part of a layer, that part is broken, whatever it was trained with.

use attnscope_spec::{Place, Stack};

use super::evidence::{SILENCE, TestedHypothesis};
use super::gain::{Gain, loss_words, mean_loss};
use super::trained_otherwise::{Against, named};
use super::verdict::{Finding, Severity};

/// Nats per token from which a part that does harm is an error, and no warning. Ours.
const HARM: f64 = 0.25;

impl Against<'_> {
    /// Whether a reading explains the text clearly worse than the best one, and does no more for a broken model than what helps
    /// any: smoother attention, or none at all in the layers that it changes.
    pub(super) fn is_stand_in(&self, best: &TestedHypothesis, other: &TestedHypothesis) -> bool {
        let only_smooths = other.hypothesis.smooths && !best.hypothesis.smooths;
        self.is_better(best, other) && (only_smooths || !self.does_more_than_silence(other))
    }

    /// Whether the model loses less under a reading, by the margin, than it does without attention, or without feed-forward layers,
    /// there.
    pub(super) fn does_more_than_silence(&self, reading: &TestedHypothesis) -> bool {
        let loss = mean_loss(&reading.losses);
        reading
            .silenced
            .is_none_or(|silenced| silenced - loss >= self.margin)
    }

    /// The finding that something is wrong that no reading explains.
    pub(super) fn unexplained(
        &self,
        said: &str,
        best: &TestedHypothesis,
        gain: &Gain,
        rival: Option<&TestedHypothesis>,
    ) -> Finding {
        if let Some(part) = self
            .broken_part(Some(best))
            .filter(|_| !self.does_more_than_silence(best))
        {
            return part;
        }
        let (low, high) = gain.interval();
        let n_tried = self.probe.readings.len();
        let explained = self.explained(gain.mean);
        let mut explains = format!("explains {:.2}", gain.mean);
        if explained.of > explained.nats {
            explains.push_str(&format!(" of at least {:.2}", explained.of));
        }
        explains.push_str(" nats");
        if let Some(rival) = rival {
            let near = format!(", and {} {:.2}", named(rival), self.gain_of(rival));
            explains.push_str(&near);
        }
        let evidence = format!(
            "{said}; the model is broken, and the best of {n_tried} readings ({}) {explains}; 99 % interval {low:.3}…{high:.3}",
            named(best)
        );
        let advice = "no reading brings back the loss of a trained model, so that the cause is not among them: compare it with a run \
                      of the code that trained it (attnscope capture-script)";
        self.found(Place::MODEL, gain, evidence, advice.to_owned())
    }

    /// Whether a reading loses less in most texts: one odd text among others, such as a word that is said over and over, is no
    /// evidence.
    pub(super) fn gains_in_most_texts(&self, reading: &TestedHypothesis) -> bool {
        let places = &self.probe.places;
        // Losses on beginnings have no places of their own.
        places.len() != reading.losses.len()
            || places.len() != self.declared.len()
            || gains_in_most(places, self.declared, &reading.losses)
    }

    /// The part of a layer without which the model does clearly better, unless it does better still under the best reading.
    pub(super) fn broken_part(&self, best: Option<&TestedHypothesis>) -> Option<Finding> {
        let (declared, probe) = (self.probe.declared.last()?, self.probe);
        if declared.len() != self.declared.len() {
            return None;
        }
        let parts = probe.readings.iter().filter(|reading| {
            reading.hypothesis.family == SILENCE
                && reading.hypothesis.layer_idx.is_some()
                && reading.round + 1 == probe.declared.len()
                && mean_loss(&reading.losses) < probe.unigram_loss
                && self.beginnings.gains_everywhere(probe, reading)
                && self.gains_in_most_texts(reading)
        });
        let loss = |reading: &TestedHypothesis| mean_loss(&reading.losses);
        let part = parts.min_by(|a, b| loss(a).total_cmp(&loss(b)))?;
        let gain = Gain::of(declared, &part.losses);
        let is_outdone =
            best.is_some_and(|best| loss(best) < loss(part) && self.does_more_than_silence(best));
        if is_outdone || !gain.exceeds(self.margin) {
            return None;
        }
        let (low, high) = gain.interval();
        let what = named(part);
        let evidence = format!(
            "{}, as declared, {:.3} with {what}: {:.3} better, 99 % interval {low:.3}…{high:.3}; no reading does clearly more",
            loss_words(mean_loss(declared), &self.positions()),
            loss(part),
            gain.mean,
        );
        let advice = "this part was loaded or computed otherwise than it was trained: compare it with a run of the code that trained it \
                      (attnscope capture-script, attnscope diff), and look at how its tensors were saved";
        let layer_idx = part.hypothesis.layer_idx?;
        let place = Place::layer(Stack::Only, layer_idx);
        let mut finding = self.found(place, &gain, evidence, advice.to_owned());
        if gain.mean < HARM {
            finding.severity = Severity::Warning;
        }
        Some(finding)
    }
}

/// Whether a reading loses less in two of three texts that it changes. // places: index of each position in its text
fn gains_in_most(places: &[usize], declared: &[f32], losses: &[f32]) -> bool {
    const LEAST_CHANGE: f64 = 1e-4;
    let (mut n_changed, mut n_gaining) = (0, 0);
    let mut from = 0;
    for to in 1..=places.len() {
        if to == places.len() || places[to] <= places[to - 1] {
            let gain = mean_loss(&declared[from..to]) - mean_loss(&losses[from..to]);
            n_changed += usize::from(gain.abs() > LEAST_CHANGE);
            n_gaining += usize::from(gain > LEAST_CHANGE);
            from = to;
        }
    }
    3 * n_gaining >= 2 * n_changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_in_one_text_of_four_is_none_in_most() {
        let places = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2];
        let declared = [1.0; 12];
        let gaining = |n_texts: usize| -> Vec<f32> {
            let loss = |idx| if idx < 3 * n_texts { 0.1 } else { 1.1 };
            (0..12).map(loss).collect()
        };
        for (n_texts, is_most) in [(1, false), (2, false), (3, true)] {
            assert_eq!(
                gains_in_most(&places, &declared, &gaining(n_texts)),
                is_most
            );
        }
        // What changes nothing in most texts, as a window in short ones, is judged by the others.
        let mut far = declared;
        far[11] = 0.1;
        assert!(gains_in_most(&places, &declared, &far));
    }
}
