//! The checkpoint was trained, or is loaded, with another attention than its configuration declares.
//!
//! ## What it does
//! Asks which reading of the weights explains the text best: another softmax axis, scale, mask, position, layout of queries,
//! keys and values, norms or labels. Most readings hold in all layers; some are also tried in one layer or in one head, as far
//! as the budget allows. docs/readings.md lists them, and says what is left out on large models.
//!
//! ## Why it matters
//! A checkpoint does not record a bug of the code that trained it: run with the declared attention it is simply bad. A model
//! trained with a softmax over queries may reach a loss below the entropy of its text and write gibberish.
//!
//! ## How it is measured
//! Losses position by position, of all prompts together: of next tokens, of a target's tokens, or of masked tokens. Readings
//! race: all of them on a few positions, those that may still win on more. The best one is accused when it beats what is
//! declared by a margin in the mean and a 99 % bootstrap interval over positions excludes zero. It is named when the best
//! reading of any other family gains less than three quarters of that; else the finding says between which it is not decided.
//! A smaller scale alone is believed only when nothing else is close. The model is also run without the attention, or the
//! feed-forward layers, that the best readings change: a reading that gains no more than that is no cause, and where a layer does
//! harm by itself it is named without a cause. A gain has to show in two of three texts that it changes. Of two mistakes at
//! once, the best readings are tried together with all others. To prompts of fewer than 384 tokens, prompts of a file
//! `prompts.jsonl` beside the checkpoint are added, or else built-in texts that the tokenizer knows. A reading is accused only if it also gains in the texts cut
//! to their first 32 tokens, at least a quarter of what it gains in whole texts, with a 99 % interval above zero. Beginnings
//! that hold two thirds of all positions are not asked apart, and a reading that mixes tokens by the length of the whole text has to
//! gain more than all that gain in long texts alone. Value: nats per token gained. Losses are
//! means over the positions whose next two tokens are known, since some readings predict the second one. A verdict says how many readings were left out
//! because they would have cost too much.
//!
//! ## False alarms
//! On a single sentence the smallest loss alone accuses healthy models; the interval does not. With a leaking mask a position
//! sees its own label, and a healthy copying or induction model gains by it: such readings count only where their loss is a
//! small share of what the text's own word frequencies lose, and of what the model loses on a text that is said twice, and,
//! where labels are seen only faintly, where the declared loss is no better than those frequencies. Where nothing explains the
//! text better than its own word frequencies the check is undecidable, as it is while the interval contains the margin: it then
//! says how many more positions would decide. A text of few tokens over and over, as a model writes it that is given no
//! target, decides nothing either. Beyond the lengths of its training a healthy model gains by whatever keeps it to near tokens,
//! such as a window or another rotary base. That is information, with the length at which attention gets worse. A window of more
//! than 32 keys cannot be told from a training on texts of as many tokens, so it is information too.
//!
//! ## Example
//! A checkpoint with a plain config.json, loss 13.6 as declared and 0.4 with a softmax over queries.

use attnscope_compute::bootstrap::positions_wanted;
use attnscope_spec::Place;

use super::credible::may_be_believed;
use super::evidence::{Evidence, SILENCE, TestedHypothesis, TrainingProbe};
use super::gain::{Gain, loss_words, may_reach, mean_loss};
use super::only_far::{Beginnings, with_long_texts};
use super::verdict::{Explained, Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "trained-otherwise",
    severity: Severity::Error,
    needs: Needs::Probes,
    source: include_str!("trained_otherwise.rs"),
    judge,
};

/// Range of a number of further positions that is worth telling.
const FEWEST_MORE: usize = 8;
const MOST_MORE: usize = 100_000;

/// The declared model and the readings, compared on the positions of the last round.
pub(super) struct Against<'a> {
    pub probe: &'a TrainingProbe,
    pub declared: &'a [f32],
    pub margin: f64,
    rival: f64,
    rival_gain: f64,
    /// The share of the text's unigram loss below which a model is reading off labels.
    reads_off: f64,
    pub restored: f64,
    restored_smoothly: f64,
    within_family: f64,
    pub beginnings: Beginnings,
}

fn judge(evidence: &Evidence<'_>, thresholds: &Thresholds) -> Verdict {
    let probe = match evidence.probes.training.seen() {
        Ok(probe) => probe,
        Err(verdict) => return verdict,
    };
    let fewest = thresholds.trained_otherwise.fewest_positions as usize;
    let Some(declared) = probe.declared.last() else {
        return Verdict::not_applicable("no reading was tried");
    };
    let against = Against {
        probe,
        declared,
        margin: thresholds.trained_otherwise.margin,
        rival: thresholds.trained_otherwise.rival_share,
        rival_gain: thresholds.trained_otherwise.rival_gain,
        reads_off: thresholds.trained_otherwise.label_share,
        restored: thresholds.trained_otherwise.restored_share,
        restored_smoothly: thresholds.trained_otherwise.restored_smoothly,
        within_family: thresholds.trained_otherwise.within_family,
        beginnings: Beginnings {
            margin: thresholds.trained_otherwise.margin,
            share: thresholds.trained_otherwise.near_share,
            n_tokens: thresholds.trained_otherwise.beginning as usize,
            is_strict: true,
        },
    };
    let n = declared.len();
    if n < fewest {
        return Verdict::undecidable(format!(
            "{} too few to tell: give texts of at least {fewest}, better a few hundred",
            if n == 1 {
                "1 position is".to_owned()
            } else {
                format!("{n} positions are")
            }
        ));
    }
    if declared.iter().any(|loss| !loss.is_finite()) {
        return Verdict::undecidable(
            "the loss as declared is not a number: see nan-or-inf for where that begins",
        );
    }
    // Also repetitive text that a model generated without a target: the same few tokens over and over.
    let least = thresholds.trained_otherwise.fewest_nats;
    if probe.unigram_loss < least {
        return Verdict::undecidable(format!(
            "the text repeats few tokens (its word frequencies alone lose {:.2} nats, at least {least} are needed): give a text, and \
             for a decoder with an encoder a target, of the kind that the model was trained on",
            probe.unigram_loss
        ));
    }
    let all: Vec<&TestedHypothesis> = probe
        .readings
        .iter()
        .filter(|reading| reading.round + 1 == probe.declared.len())
        .collect();
    // Beyond its training length, a healthy model gains from any reading that keeps attention to near tokens.
    let candidates = against.candidates(all.iter().copied(), thresholds);
    let (far, mut candidates): (Vec<&TestedHypothesis>, Vec<&TestedHypothesis>) = candidates
        .into_iter()
        .partition(|reading| against.beginnings.gains_only_far(probe, reading));
    // If a reading of long texts explains more, drop readings that beginnings cannot test: they are stand-ins.
    if let Some(best) = far.first() {
        candidates.retain(|reading| {
            !reading.of_beginnings.is_empty()
                || mean_loss(&reading.losses) < mean_loss(&best.losses)
        });
    }
    let of_long_texts = far
        .iter()
        .find_map(|reading| against.beginnings.finding(probe, reading, evidence.n_ctx));
    // Masked tokens see the whole text, so a beginning is a different task: it must contradict a reading, not only fail to
    // support it.
    let mut against = against;
    against.beginnings.is_strict = probe.tells_next || of_long_texts.is_some();
    let mut verdict = against.verdict(&candidates);
    if let (Some(of_long_texts), true) = (of_long_texts, verdict.findings.is_empty()) {
        // Whole texts are poor evidence then, but their beginnings may decide.
        let in_beginnings = Against {
            declared: &probe.of_beginnings,
            ..against
        };
        let all: Vec<TestedHypothesis> = all
            .into_iter()
            .filter_map(TestedHypothesis::in_beginnings)
            .collect();
        let near = in_beginnings.verdict(&in_beginnings.candidates(all.iter(), thresholds));
        verdict = with_long_texts(verdict, near.status, of_long_texts);
    }
    if probe.n_left_out > 0 && verdict.findings.is_empty() {
        verdict.why.push_str(&format!(
            "; {} more readings were left out, which would take about {} more (--budget)",
            probe.n_left_out,
            duration(probe.seconds_left_out)
        ));
    }
    verdict
}

impl Against<'_> {
    /// Credible readings, lowest loss first.
    fn candidates<'t>(
        &self,
        all: impl Iterator<Item = &'t TestedHypothesis>,
        thresholds: &Thresholds,
    ) -> Vec<&'t TestedHypothesis> {
        let declared = mean_loss(self.declared);
        let mut candidates: Vec<&TestedHypothesis> = all
            .filter(|reading| reading.hypothesis.family != SILENCE)
            .filter(|reading| may_be_believed(self.probe, declared, reading, thresholds))
            .filter(|reading| self.gains_in_most_texts(reading))
            .collect();
        candidates.sort_by(|a, b| mean_loss(&a.losses).total_cmp(&mean_loss(&b.losses)));
        candidates
    }

    /// What the readings tell, or else the parts without which the model does better.
    fn verdict(&self, candidates: &[&TestedHypothesis]) -> Verdict {
        let verdict = self.of_readings(candidates);
        if !verdict.findings.is_empty() {
            return verdict;
        }
        match self.broken_part(candidates.first().copied()) {
            Some(finding) => self.accusing(finding),
            None => verdict,
        }
    }

    /// A verdict with a finding, and how much of what is missing that explains.
    fn accusing(&self, finding: Finding) -> Verdict {
        Verdict {
            explains: Some(self.explained(finding.value)),
            ..Verdict::of(vec![finding], "")
        }
    }

    /// How much of what is missing a gain explains: all that was gained, or more where that does not lead to what a trained model
    /// would lose at most, as far as the text's own word frequencies tell.
    pub(super) fn explained(&self, gain: f64) -> Explained {
        let trained = self.restored * self.probe.unigram_loss;
        Explained {
            nats: gain,
            of: gain.max(mean_loss(self.declared) - trained),
        }
    }

    fn of_readings(&self, candidates: &[&TestedHypothesis]) -> Verdict {
        let loss = mean_loss(self.declared);
        let said = format!("{}, as declared", loss_words(loss, &self.positions()));
        let unigram = self.probe.unigram_loss;
        let lowest = candidates
            .first()
            .map_or(loss, |best| mean_loss(&best.losses).min(loss));
        if lowest >= unigram {
            // Smoother attention improves any broken model, whatever it was trained with.
            return Verdict::undecidable(format!(
                "{said}, {lowest:.3} at best, no better than the text's own word frequencies ({unigram:.3}): give text of the \
                 kind that the model was trained on"
            ));
        }
        let n_tried = self.probe.readings.len();
        let Some(best) = candidates.first().copied() else {
            return Verdict::passed(format!(
                "{said}: none of {n_tried} other readings explains the text better"
            ));
        };
        let gain = Gain::of(self.declared, &best.losses);
        if !gain.is_clear(self.margin) {
            let open = candidates
                .iter()
                .filter(|one| may_reach(self.declared, &one.losses, self.margin))
                .map(|one| (one, Gain::of(self.declared, &one.losses)))
                .find(|(_, gain)| gain.interval().1 >= self.margin);
            return match open {
                Some((reading, gain)) => self.undecided(&said, reading, &gain),
                None if gain.mean <= 0.0 => Verdict::passed(format!(
                    "{said}: none of {n_tried} other readings explains the text better"
                )),
                None => Verdict::passed(format!(
                    "{said}; the best of {n_tried} other readings gains {:.3}, within the margin of {}",
                    gain.mean, self.margin
                )),
            };
        }
        let best = self.simplest(best, candidates);
        let gain = Gain::of(self.declared, &best.losses);
        if let Some(open) = self.beginnings.undecided(self.probe, &said, best) {
            return open;
        }
        // Two changes at once fit a text by chance more easily than one.
        if !best.hypothesis.parts.is_empty() && !gain.exceeds(self.margin) {
            return self.undecided(&said, best, &gain);
        }
        let rivals: Vec<&TestedHypothesis> = candidates
            .iter()
            .copied()
            .filter(|other| !self.are_related(best, other) && !is_same(best, other))
            .filter(|other| !self.is_stand_in(best, other))
            .filter(|other| self.gain_of(other) >= self.rival * gain.mean)
            // Of hundreds of readings some gain by chance; and what is more special has to explain more.
            .filter(|other| Gain::of(self.declared, &other.losses).is_clear(0.0))
            .filter(|other| !is_more_special(other, best))
            .collect();
        // Smoother attention improves every broken model.
        let is_plausible = mean_loss(&best.losses) <= self.restored * unigram || loss < unigram;
        if best.hypothesis.smooths && !rivals.is_empty() && loss < unigram {
            return self.undecided(&said, best, &gain);
        }
        let is_restored = mean_loss(&best.losses) <= self.restored_smoothly * unigram;
        let is_stand_in =
            gain.mean < self.rival_gain * loss || (best.hypothesis.smooths && !is_restored);
        if !is_plausible
            || (is_stand_in && !rivals.is_empty())
            || !self.does_more_than_silence(best)
        {
            return self.accusing(self.unexplained(&said, best, &gain, rivals.first().copied()));
        }
        self.accusing(self.finding(&said, best, &gain, candidates, &rivals))
    }

    /// Number of positions compared, and what they are of: of whole texts, or of beginnings.
    pub(super) fn positions(&self) -> String {
        let n = self.declared.len();
        let is_whole = self.probe.declared.last().is_some_and(|all| all.len() == n);
        if is_whole {
            self.probe.positions()
        } else {
            format!("{n} positions")
        }
    }

    pub(super) fn gain_of(&self, reading: &TestedHypothesis) -> f64 {
        mean_loss(self.declared) - mean_loss(&reading.losses)
    }

    /// Whether two readings change the same thing, or one is part of the other. Readings that make attention smoother are
    /// stand-ins for one another: one that explains the text clearly worse is not a rival.
    fn are_related(&self, a: &TestedHypothesis, b: &TestedHypothesis) -> bool {
        if a.hypothesis.smooths && b.hypothesis.smooths && self.is_better(a, b) {
            return true;
        }
        let families = |one: &TestedHypothesis| {
            let is_part = |reading: &&TestedHypothesis| {
                one.hypothesis.parts.contains(&reading.hypothesis.name)
            };
            let parts = self.probe.readings.iter().filter(is_part);
            parts
                .map(|reading| reading.hypothesis.family)
                .chain([one.hypothesis.family])
                .collect::<Vec<_>>()
        };
        let (of_a, of_b) = (families(a), families(b));
        of_a.iter().any(|family| of_b.contains(family))
    }

    /// Whether a reading explains the text better than another: by the margin, or by half of its own loss if that is smaller.
    pub(super) fn is_better(&self, best: &TestedHypothesis, other: &TestedHypothesis) -> bool {
        let share = if best.hypothesis.family == other.hypothesis.family {
            self.within_family
        } else {
            1.0
        };
        let margin = (share * self.margin).min(0.5 * mean_loss(&best.losses));
        mean_loss(&other.losses) - mean_loss(&best.losses) >= margin
            && Gain::of(&other.losses, &best.losses).is_clear(margin)
    }

    fn undecided(&self, said: &str, reading: &TestedHypothesis, gain: &Gain) -> Verdict {
        let gains = &gain.gains;
        let off: Vec<f64> = gains.iter().map(|gain| gain - self.margin).collect();
        let wanted = if gain.mean >= self.margin && reading.hypothesis.parts.is_empty() {
            positions_wanted(gains)
        } else {
            positions_wanted(&off)
        };
        let (low, high) = gain.interval();
        // A gain at the margin, or one that is clear and yet not believed, is not decided by more of the same text.
        let n_more = wanted.saturating_sub(gains.len());
        let decides = if (FEWEST_MORE..=MOST_MORE).contains(&n_more) {
            format!("about {n_more} more positions would")
        } else {
            "give more and other texts".to_owned()
        };
        Verdict::undecidable(format!(
            "{said}; {} gains {:.3} (99 % interval {:.3}…{:.3}), which does not decide: {decides}",
            named(reading),
            gain.mean,
            low,
            high
        ))
    }

    /// The simplest of the readings that explain the text as well as the best one; in a tie, the most common of its family.
    fn simplest<'t>(
        &self,
        best: &'t TestedHypothesis,
        candidates: &[&'t TestedHypothesis],
    ) -> &'t TestedHypothesis {
        let is_as_good = |other: &&TestedHypothesis| {
            let is_part = best.hypothesis.parts.contains(&other.hypothesis.name)
                && other.hypothesis.layer_idx.is_none();
            let is_kin = other.hypothesis.family == best.hypothesis.family;
            let shows_more = best.hypothesis.shown_by == Some(other.hypothesis.name.as_str())
                && rank(other).1 <= rank(best).1
                && mean_loss(&other.losses) <= self.reads_off * self.probe.unigram_loss;
            (is_part || is_kin)
                && (shows_more || !self.is_better(best, other))
                && Gain::of(self.declared, &other.losses).is_clear(self.margin)
        };
        let as_good = candidates.iter().copied().filter(is_as_good);
        as_good.min_by_key(|other| rank(other)).unwrap_or(best)
    }

    pub(super) fn found(
        &self,
        place: Place,
        gain: &Gain,
        evidence: String,
        advice: String,
    ) -> Finding {
        Finding {
            check: CHECK.id,
            severity: Severity::Error,
            place,
            value: gain.mean,
            threshold: self.margin,
            unit: "nats per token",
            evidence,
            advice,
        }
    }
}

/// A duration in words: seconds, minutes or hours.
pub fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1.0 => "1 s".to_owned(),
        seconds if seconds < 90.0 => format!("{seconds:.0} s"),
        seconds if seconds < 5400.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.0} h", seconds / 3600.0),
    }
}

/// Whether two readings have the same loss at every position.
pub(super) fn is_same(a: &TestedHypothesis, b: &TestedHypothesis) -> bool {
    let pairs = a.losses.iter().zip(&b.losses);
    a.losses.len() == b.losses.len()
        && pairs
            .clone()
            .all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0))
}

/// Whether a reading has more parts than another one, or holds in fewer places.
fn is_more_special(one: &TestedHypothesis, other: &TestedHypothesis) -> bool {
    let ((parts, place, _), (of_parts, of_place, _)) = (rank(one), rank(other));
    parts > of_parts || place > of_place
}

/// Sort key for how special a reading is: number of parts, then limits to a layer or head, then rarity.
fn rank(reading: &TestedHypothesis) -> (usize, usize, usize) {
    let place = usize::from(reading.hypothesis.layer_idx.is_some())
        + usize::from(reading.hypothesis.head_idx.is_some());
    (reading.hypothesis.parts.len(), place, reading.order)
}

/// The name of a reading, with its place.
pub(super) fn named(reading: &TestedHypothesis) -> String {
    match (reading.hypothesis.layer_idx, reading.hypothesis.head_idx) {
        (Some(layer_idx), Some(head_idx)) => {
            format!(
                "{} in head {head_idx} of layer {layer_idx}",
                reading.hypothesis.name
            )
        }
        (Some(layer_idx), None) => format!("{} in layer {layer_idx}", reading.hypothesis.name),
        _ if reading.hypothesis.is_of_layers => {
            format!("{} in every layer", reading.hypothesis.name)
        }
        _ => reading.hypothesis.name.clone(),
    }
}
