//! Which readings are credible where tokens may see their own labels.

use super::Thresholds;
use super::evidence::{SeesLabels, TestedHypothesis, TrainingProbe};
use super::gain::mean_loss;

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
