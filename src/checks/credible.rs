//! Which readings are credible where tokens may see their own labels.

use super::Thresholds;
use super::evidence::{SeesLabels, TestedHypothesis, TrainingProbe};
use super::gain::mean_loss;

/// The share of what the embedding alone loses on its own tokens below which layers were trained to say them. Layers of fresh
/// models only disturb it: 0.996 and more were seen; 0.7 and 0.84 on models trained so. Ours.
const LAYERS_ADD: f64 = 0.95;

/// Whether a reading is credible. A healthy model may gain if a token can see its own label. So such a reading only counts if the
/// model reads labels off far better than it copies, as a model trained this way does. If labels are only faintly visible, the
/// declared model must also be no good.
pub(super) fn may_be_believed(
    probe: &TrainingProbe,
    declared: f64,
    reading: &TestedHypothesis,
    thresholds: &Thresholds,
) -> bool {
    if reading.losses.iter().any(|loss| !loss.is_finite()) {
        return false;
    }
    // With tied tables the embedding alone says its own token, in a fresh model too; layers that learned to do so add to it.
    let adds = |embedding: f64| mean_loss(&reading.losses) < LAYERS_ADD * embedding;
    if reading
        .by_embedding
        .is_some_and(|embedding| !adds(embedding))
    {
        return false;
    }
    let share = match reading.hypothesis.sees_labels {
        SeesLabels::Not => return true,
        SeesLabels::Faintly => thresholds.trained_otherwise.faint_label_share,
        SeesLabels::Plainly => thresholds.trained_otherwise.label_share,
    };
    // A healthy model that copies also finds a visible label, but no better than it copies.
    let known = probe.unigram_loss.min(probe.copy_loss);
    let is_suspect =
        reading.hypothesis.sees_labels == SeesLabels::Plainly || declared >= probe.unigram_loss;
    is_suspect && mean_loss(&reading.losses) <= share * known
}
