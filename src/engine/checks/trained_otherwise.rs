//! The checkpoint was trained with another attention than its configuration declares.
//!
//! ## What it does
//! Asks which attention the weights were trained with: the loss on the prompts under every hypothesis of softmax axis (keys,
//! queries) × scale (1/√d, none, 1/d) × causal mask (on, off) × QK-norm (on, off, where weights exist), in all layers at once
//! and in one layer at a time.
//!
//! ## Why it matters
//! A checkpoint does not record a bug of the code that trained it: run with the declared attention it is simply bad. A model
//! trained with a softmax over queries may reach a loss below the entropy of its text and write gibberish.
//!
//! ## How it is measured
//! Next-token losses position by position. The best hypothesis is accused when it beats the declared one by a margin in the
//! mean and a 99 % bootstrap interval over positions excludes zero; a factor is named only when the best hypothesis beats, in
//! the same way, the best one that has the declared value of that factor. Value: nats per token gained.
//!
//! ## False alarms
//! On a single sentence the smallest loss alone accuses healthy models; the interval does not. Without a mask a position sees
//! its own label, and a healthy copying or induction model gains by it: that hypothesis counts only where the declared loss
//! is no better than the text's own unigram loss, on the text and on its second copy when it is said twice, and the other is a
//! small share of it: a model that was trained to see its labels reads them off, and has not learned to copy. Where nothing
//! explains the text better than its own word frequencies the check is undecidable: the model does not know such text. With too few positions the check is undecidable and says how many it wants.
//!
//! ## Example
//! A checkpoint with a plain config.json, loss 13.6 as declared and 0.4 with a softmax over queries.

use super::bootstrap::{interval_of_mean, positions_wanted};
use super::evidence::{Evidence, Factors, Hypothesis, Probed, TrainingProbe};
use super::verdict::{Finding, Severity, Status, Verdict};
use super::{Check, Needs, Thresholds};
use crate::attention::{Scale, SoftmaxAxis};
use crate::model::Stack;
use crate::place::Place;

pub static CHECK: Check = Check {
    id: "trained-otherwise",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("trained_otherwise.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let probe = match &evidence.probes.training {
        Probed::Not(why) => return Verdict::not_applicable(why.clone()),
        Probed::Ran(probe) => probe,
    };
    let margin = thresholds.of("trained-otherwise.margin");
    let fewest = thresholds.of("trained-otherwise.fewest_positions") as usize;
    let reads_off = thresholds.of("trained-otherwise.label_share");
    let Some(declared) = probe.hypotheses.first() else {
        return Verdict::not_applicable("no hypothesis was tried");
    };
    let n = declared.losses.len();
    if n < fewest {
        return Verdict::undecidable(format!(
            "{n} positions are too few to tell: give texts of at least {fewest}, better a few hundred"
        ));
    }
    if declared.losses.iter().any(|loss| !loss.is_finite()) {
        return Verdict::undecidable(
            "the loss as declared is no number: nan-or-inf tells where that begins",
        );
    }
    let candidates: Vec<&Hypothesis> = probe
        .hypotheses
        .iter()
        .filter(|hypothesis| may_be_believed(probe, declared, hypothesis, reads_off))
        .collect();
    let best = candidates
        .iter()
        .copied()
        .min_by(|a, b| mean(a).total_cmp(&mean(b)))
        .unwrap_or(declared);
    let loss = mean(declared);
    let said = format!("loss {loss:.3} as declared, over {n} positions");
    let unigram = probe.unigram_loss;
    if mean(best) >= unigram {
        // A smoother model is better than a lost one whatever it was trained with.
        return Verdict::undecidable(format!(
            "{said}, {:.3} at best, no better than the text's own word frequencies ({unigram:.3}): give text of the kind \
             that the model was trained on",
            mean(best)
        ));
    }
    if std::ptr::eq(best, declared) {
        return Verdict::passed(format!(
            "{said}: no other attention explains the text better"
        ));
    }
    let gains = gains(declared, best);
    let gain = gains.iter().sum::<f64>() / n as f64;
    if gain < margin {
        return Verdict::passed(format!(
            "{said}; the best other attention gains {gain:.3}, within the margin of {margin}"
        ));
    }
    let (low, high) = interval_of_mean(&gains);
    let wants = || positions_wanted(&gains).max(n + 1) - n;
    if low <= 0.0 {
        return undecided(&said, best, gain, (low, high), wants());
    }
    let factors = decided_factors(&candidates, declared, best, margin);
    if factors.is_empty() {
        return Verdict::undecidable(format!(
            "{said}; {} gains {gain:.3} (99 % interval {low:.3}…{high:.3}), but no factor of it is decided alone: give more text",
            describe(best)
        ));
    }
    let place = match best.layer_idx {
        Some(layer_idx) => Place::layer(Stack::Only, layer_idx),
        None => Place::MODEL,
    };
    let where_ = best
        .layer_idx
        .map_or("in every layer".to_owned(), |layer_idx| {
            format!("in layer {layer_idx}")
        });
    let finding = Finding {
        check: CHECK.id,
        severity: Severity::Error,
        place,
        value: gain,
        threshold: margin,
        unit: "nats per token",
        evidence: format!(
            "{said}, {:.3} with {} {where_}: {gain:.3} better, 99 % interval {low:.3}…{high:.3}",
            mean(best),
            factors.join(" and ")
        ),
        advice: format!(
            "the weights were trained with {}: correct the training code and train again, or run this checkpoint as trained with {}",
            factors.join(" and "),
            settings(declared, best)
        ),
    };
    Verdict::of(vec![finding], "")
}

fn undecided(
    said: &str,
    best: &Hypothesis,
    gain: f64,
    (low, high): (f64, f64),
    n_more: usize,
) -> Verdict {
    let verdict = Verdict::undecidable(format!(
        "{said}; {} gains {gain:.3} (99 % interval {low:.3}…{high:.3}), which does not decide: about {n_more} more positions would",
        describe(best)
    ));
    debug_assert_eq!(verdict.status, Status::Undecidable);
    verdict
}

/// Without a mask a model sees its labels: only a model that is no good as declared is suspected of it, and only if it
/// reads them off, as one that was trained so does.
fn may_be_believed(
    probe: &TrainingProbe,
    declared: &Hypothesis,
    hypothesis: &Hypothesis,
    reads_off: f64,
) -> bool {
    if hypothesis.losses.iter().any(|loss| !loss.is_finite()) {
        return false;
    }
    let drops_mask = declared.factors.causal && !hypothesis.factors.causal;
    let unigram = probe.unigram_loss;
    // On text that it does not know a healthy copying model is no good, and would gain most by seeing the label it looks for.
    let can_copy = probe.copy_loss < unigram;
    !drops_mask
        || (!can_copy && mean(declared) >= unigram && mean(hypothesis) <= reads_off * unigram)
}

/// Whether two hypotheses agree in one factor.
type SameFactor = fn(&Factors, &Factors) -> bool;

/// The factors in which the best hypothesis is not what is declared, and beats everything that has them as declared.
fn decided_factors(
    candidates: &[&Hypothesis],
    declared: &Hypothesis,
    best: &Hypothesis,
    margin: f64,
) -> Vec<String> {
    let differs: [(bool, SameFactor, String); 4] = [
        (
            best.factors.axis != declared.factors.axis,
            |a, b| a.axis == b.axis,
            format!("a softmax over {}", best.factors.axis),
        ),
        (
            best.factors.scale != declared.factors.scale,
            |a, b| a.scale == b.scale,
            match best.factors.scale {
                Scale::One => "no scale".to_owned(),
                other => format!("a scale of {other}"),
            },
        ),
        (
            best.factors.causal != declared.factors.causal,
            |a, b| a.causal == b.causal,
            if best.factors.causal {
                "a causal mask".to_owned()
            } else {
                "no causal mask".to_owned()
            },
        ),
        (
            best.factors.qk_norm != declared.factors.qk_norm,
            |a, b| a.qk_norm == b.qk_norm,
            "no QK-norm".to_owned(),
        ),
    ];
    let is_decided = |same: SameFactor| {
        let rivals = candidates
            .iter()
            .filter(|rival| same(&rival.factors, &declared.factors));
        let rival = rivals.min_by(|a, b| mean(a).total_cmp(&mean(b)));
        rival.is_none_or(|rival| {
            let gains = gains(rival, best);
            let gain = gains.iter().sum::<f64>() / gains.len() as f64;
            gain >= margin && interval_of_mean(&gains).0 > 0.0
        })
    };
    let named = differs
        .into_iter()
        .filter(|(differs, same, _)| *differs && is_decided(*same));
    named.map(|(_, _, name)| name).collect()
}

/// The flags that run the checkpoint so.
fn settings(declared: &Hypothesis, best: &Hypothesis) -> String {
    let (now, then) = (&declared.factors, &best.factors);
    let mut flags = Vec::new();
    if now.axis != then.axis {
        flags.push(format!("--set softmax_axis={}", then.axis));
    }
    if now.scale != then.scale {
        let scale = match then.scale {
            Scale::InvSqrtD => "inv_sqrt_d".to_owned(),
            Scale::InvD => "inv_d".to_owned(),
            Scale::One => "none".to_owned(),
            other => other.to_string(),
        };
        flags.push(format!("--set scale={scale}"));
    }
    if now.causal && !then.causal {
        flags.push("--set mask=bidirectional".to_owned());
    }
    match (best.layer_idx, flags.is_empty()) {
        (None, false) => flags.join(" "),
        _ => "the same change in that layer".to_owned(),
    }
}

fn describe(hypothesis: &Hypothesis) -> String {
    let Factors {
        axis,
        scale,
        causal,
        qk_norm,
    } = hypothesis.factors;
    let mask = if causal { "a causal mask" } else { "no mask" };
    let norm = match qk_norm {
        Some(false) => ", without QK-norm",
        _ => "",
    };
    let layer = hypothesis
        .layer_idx
        .map_or(String::new(), |layer_idx| format!(" in layer {layer_idx}"));
    let axis = match axis {
        SoftmaxAxis::Keys => "keys",
        SoftmaxAxis::Queries => "queries",
    };
    format!("softmax over {axis}, scale {scale}, {mask}{norm}{layer}")
}

fn mean(hypothesis: &Hypothesis) -> f64 {
    let sum: f64 = hypothesis.losses.iter().map(|loss| f64::from(*loss)).sum();
    sum / hypothesis.losses.len() as f64
}

/// What one loses more than the other, position by position.
fn gains(from: &Hypothesis, to: &Hypothesis) -> Vec<f64> {
    let pairs = from.losses.iter().zip(&to.losses);
    pairs
        .map(|(from, to)| f64::from(*from) - f64::from(*to))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Probes;

    const DECLARED: Factors = Factors {
        axis: SoftmaxAxis::Keys,
        scale: Scale::InvSqrtD,
        causal: true,
        qk_norm: None,
    };

    fn hypothesis(factors: Factors, n: usize, mean: f32, spread: f32) -> Hypothesis {
        let loss = |i: usize| mean + spread * (((i * 7919) % 101) as f32 / 50.0 - 1.0);
        Hypothesis {
            layer_idx: None,
            factors,
            losses: (0..n).map(loss).collect(),
        }
    }

    fn verdict(hypotheses: Vec<Hypothesis>, unigram_loss: f64) -> Verdict {
        let probes = Probes {
            training: Probed::Ran(TrainingProbe {
                hypotheses,
                unigram_loss,
                copy_loss: 9.0,
            }),
            ..Probes::none("not run")
        };
        let evidence = Evidence {
            subject: super::super::Subject::Checkpoint,
            layers: &[],
            row_tolerance: 1e-5,
            first_nonfinite: None,
            narrow_dtype: None,
            lacks: None,
            probes: &probes,
            n_ctx: None,
            loss: None,
            baseline: None,
        };
        judge(&evidence, &Thresholds::default())
    }

    fn queries() -> Factors {
        Factors {
            axis: SoftmaxAxis::Queries,
            ..DECLARED
        }
    }

    #[test]
    fn a_clear_gain_is_accused_and_a_noisy_or_small_one_is_not() {
        let of = |n, gain: f32, spread| {
            verdict(
                vec![
                    hypothesis(DECLARED, n, 2.0, 0.1),
                    hypothesis(queries(), n, 2.0 - gain, spread),
                ],
                3.0,
            )
        };
        let accused = of(400, 0.5, 0.3);
        assert_eq!(accused.status, Status::Fired, "{accused:?}");
        assert!(
            accused.findings[0]
                .evidence
                .contains("softmax over queries"),
            "{accused:?}"
        );
        assert!(
            accused.findings[0]
                .advice
                .contains("--set softmax_axis=queries")
        );
        assert_eq!(of(400, 0.04, 0.1).status, Status::Passed);
        // The same gain, drowned in noise: more positions are asked for.
        let noisy = of(40, 0.1, 3.0);
        assert_eq!(noisy.status, Status::Undecidable);
        assert!(noisy.why.contains("more positions"), "{}", noisy.why);
        assert_eq!(of(10, 0.5, 0.1).status, Status::Undecidable);
    }

    #[test]
    fn a_dropped_mask_counts_only_against_a_model_that_is_no_good_as_declared() {
        let unmasked = Factors {
            causal: false,
            ..DECLARED
        };
        let of = |unigram_loss, loss| {
            verdict(
                vec![
                    hypothesis(DECLARED, 400, 2.0, 0.1),
                    hypothesis(unmasked, 400, loss, 0.01),
                ],
                unigram_loss,
            )
        };
        assert_eq!(
            of(3.0, 0.1).status,
            Status::Passed,
            "a copying model sees its label"
        );
        assert_eq!(of(1.9, 0.1).status, Status::Fired);
        // On text that it does not know, a copying model gains as well, but does not read its labels off.
        assert_eq!(of(1.9, 0.5).status, Status::Undecidable);
    }

    #[test]
    fn only_decided_factors_are_named() {
        let unscaled = Factors {
            scale: Scale::One,
            ..DECLARED
        };
        let both = Factors {
            scale: Scale::One,
            ..queries()
        };
        let accused = verdict(
            vec![
                hypothesis(DECLARED, 400, 2.0, 0.1),
                hypothesis(queries(), 400, 1.01, 0.1),
                hypothesis(unscaled, 400, 2.1, 0.1),
                hypothesis(both, 400, 1.0, 0.1),
            ],
            3.0,
        );
        let evidence = &accused.findings[0].evidence;
        assert!(
            evidence.contains("softmax over queries") && !evidence.contains("scale"),
            "{evidence}"
        );
    }
}
