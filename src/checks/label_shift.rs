//! The outputs predict another token than the next one.
//!
//! ## What it does
//! Computes the losses of a model's outputs against the token that each stands on, the next one, and the one after, and looks
//! which of them the model was trained on.
//!
//! ## Why it matters
//! A loss without the shift teaches the model to copy its input: the loss falls to almost 0 within minutes, and generated text
//! repeats one token. A loss that shifts twice (once in the data, once in the model) teaches it to skip a token.
//!
//! ## How it is measured
//! From a probe of the model itself (`attnscope capture-script`): mean losses in nats over the positions that have all three
//! tokens. It fires where another offset loses less than the next token by more than the margin with a 99 % interval
//! (percentile bootstrap over positions) above it, and less than the text's own word frequencies.
//!
//! ## False alarms
//! Models that are not trained, with the embedding tied to the output, favour the token that they stand on: the probe leaves
//! this test out while the gains of all norms are alike, or, without any, while all biases are 0 or all matrices random numbers.
//! Models that predict several tokens at once have an output for each.
//!
//! ## Example
//! A loss of 6.1 nats against the next token and of 0.02 against the token itself.

use attnscope_compute::bootstrap::interval_of_mean;
use attnscope_spec::Place;

use super::evidence::{Evidence, LabelsProbe};
use super::gain::mean_loss;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "label-shift",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("label_shift.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let probe = match evidence.probes.labels.seen() {
        Ok(probe) => probe,
        Err(verdict) => return verdict,
    };
    let margin = thresholds.label_shift.margin;
    let fewest = thresholds.label_shift.fewest_positions as usize;
    let n = probe.losses[1].len();
    if n < fewest {
        return Verdict::not_applicable(format!(
            "{n} positions are too few to tell: probe with at least {}",
            fewest + 2
        ));
    }
    let means: Vec<f64> = probe
        .losses
        .iter()
        .map(|losses| mean_loss(losses))
        .collect();
    if means.iter().any(|mean| !mean.is_finite()) {
        return Verdict::undecidable("a loss is not a number");
    }
    let said = format!(
        "losses over {n} positions: {:.3} against the next token, {:.3} against the token itself, {:.3} against the one after",
        means[1], means[0], means[2]
    );
    let best = if means[0] <= means[2] { 0 } else { 2 };
    let gain = means[1] - means[best];
    if gain <= margin {
        return Verdict::passed(said);
    }
    if means[best] > probe.unigram_loss - margin {
        return Verdict::passed(format!(
            "{said}; none is better than the text's own word frequencies ({:.3})",
            probe.unigram_loss
        ));
    }
    let (low, high) = interval_of_mean(&gains(probe, best));
    if low <= margin {
        return Verdict::undecidable(format!(
            "{said}; the difference has a 99 % interval of {low:.3}…{high:.3}: probe with more text"
        ));
    }
    let (predicts, advice) = if best == 0 {
        (
            "the token that it stands on",
            "shift the labels: the loss compares the output at i with token i + 1; check that neither the data nor the model \
             leaves it to the other",
        )
    } else {
        (
            "the token after the next",
            "shift the labels once: the data and the model both do",
        )
    };
    let finding = Finding {
        check: CHECK.id,
        severity: Severity::Error,
        place: Place::MODEL,
        value: gain,
        threshold: margin,
        unit: "nats per token",
        evidence: format!(
            "each output predicts {predicts}: {said}; 99 % interval of the difference {low:.3}…{high:.3}"
        ),
        advice: advice.to_owned(),
    };
    Verdict::of(vec![finding], "")
}

/// The gain of another offset over the next token, at each position.
fn gains(probe: &LabelsProbe, best: usize) -> Vec<f64> {
    let pairs = probe.losses[1].iter().zip(&probe.losses[best]);
    pairs
        .map(|(next, other)| f64::from(*next) - f64::from(*other))
        .collect()
}
