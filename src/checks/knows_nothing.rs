//! No reading of the weights predicts the text better than counting what follows what in it.
//!
//! ## What it does
//! Compares the loss, as declared and under every other reading, with that of a guesser who counts which tokens followed which.
//!
//! ## Why it matters
//! A model that predicts nothing is untrained, reads other tokens than it was trained on, or has weights that do not belong to
//! its configuration or to one another, such as the mean of two trainings. Its other statistics then mean nothing.
//!
//! ## How it is measured
//! The guesser knows nothing about the texts in advance: it starts with a uniform guess and learns pairs of tokens from what it
//! has read so far of them (a bigram model with Witten and Bell's smoothing, 1991). Value: the best loss of any reading;
//! threshold: the guesser's, in nats.
//!
//! ## False alarms
//! Text of a kind that the model never saw, such as another language or code. On noise (a few tokens over and over, tokens as even
//! as by chance) it is information. Readings that leave parts out or show a token its own label do not count. The check is undecidable on fewer than a few dozen
//! positions, on a text of which the tokenizer does not know a quarter, and on given ids that `foreign-ids` reports, such as
//! random ones.
//!
//! ## Example
//! A checkpoint saved before its first step, or a model loaded with the tokenizer of another.

use attnscope_spec::Place;

use super::evidence::{Evidence, SILENCE, SeesLabels, TrainingProbe};
use super::gain::{loss_words, mean_loss};
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "knows-nothing",
    severity: Severity::Warning,
    needs: Needs::Probes,
    source: include_str!("knows_nothing.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let probe = match evidence.probes.training.seen() {
        Ok(probe) => probe,
        Err(verdict) => return verdict,
    };
    let fewest = thresholds.knows_nothing.fewest_positions as usize;
    let n = probe.declared.last().map_or(0, Vec::len);
    if n == 0 {
        return Verdict::undecidable(format!("0 positions: at least {fewest} are needed"));
    }
    let Some(best) = best(probe) else {
        return Verdict::undecidable(
            "the loss as declared is not a number: see nan-or-inf for where that begins",
        );
    };
    let counted = probe.pair_loss;
    let said = format!(
        "{}, at best, {counted:.3} by counting pairs of tokens",
        loss_words(best, &probe.positions())
    );
    if best < counted {
        return Verdict::passed(said);
    }
    if evidence.lost.ids.foreign_share() >= thresholds.foreign_ids.share {
        return Verdict::undecidable(format!(
            "{said}, on ids that the tokenizer would not give (foreign-ids): give text of the kind that the model was trained on"
        ));
    }
    if let Some(unknown) = evidence.lost.much() {
        return Verdict::undecidable(format!(
            "{said}, on a text of another kind than the model's ({unknown}): give text of the kind that it was trained on"
        ));
    }
    if n < fewest {
        return Verdict::undecidable(format!("{said}: at least {fewest} positions are needed"));
    }
    let finding = Finding {
        check: CHECK.id,
        severity: Severity::Warning,
        place: Place::MODEL,
        value: best,
        threshold: counted,
        unit: "nats per token",
        evidence: format!("{said}: no reading of the weights predicts the text better than counting what follows what in it"),
        advice: "look whether the checkpoint was saved after training, whether the tokenizer is the model's own (attnscope tokens), \
                 whether the weights belong to this config.json, and give text of the kind that it was trained on"
            .to_owned(),
    };
    Verdict::of(vec![finding], "")
}

/// The lowest mean loss, as declared or under any reading that stayed to the last round.
fn best(probe: &TrainingProbe) -> Option<f64> {
    let declared = probe
        .declared
        .last()
        .map(|losses| mean_loss(losses))
        .filter(|loss| loss.is_finite())?;
    let others = probe
        .readings
        .iter()
        .filter(|reading| reading.round + 1 == probe.declared.len())
        // Without its attention, any untrained model comes nearer to counting; and to say a token that it sees is no prediction.
        .filter(|reading| reading.hypothesis.family != SILENCE)
        .filter(|reading| reading.hypothesis.sees_labels == SeesLabels::Not)
        .map(|reading| mean_loss(&reading.losses));
    Some(
        others
            .filter(|loss| loss.is_finite())
            .fold(declared, f64::min),
    )
}
