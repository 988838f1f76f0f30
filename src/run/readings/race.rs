//! Readings race: all of them on a few positions, those that may still win on more.

use std::collections::BTreeMap;

use attnscope_checks::{
    Noise, Probed, SeesLabels, TestedHypothesis, Thresholds, TrainingProbe, mean_loss,
};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_spec::Model;

use super::super::budget::Budget;
use super::Reading;
use super::beginnings::{are_short_of, beginnings};
use super::budget::{Costs, FIRST_POSITIONS, KNOWING_POSITIONS};
use super::candidate_readings::{candidate_readings, heads_left_out};
use super::evaluate::losses;
use super::texts::{Task, Text, pair_loss, said_twice, sample, unigram_loss};

/// Receives progress: number of finished readings, and of all.
pub type Told<'a> = &'a mut dyn FnMut(usize, usize);

/// Most positions to compare: enough to show small gains.
const MOST_POSITIONS: usize = 4096;

/// Most tokens of a text, because attention costs grow with pairs of tokens.
const MOST_TOKENS: usize = 512;

/// Factor by which each round has more positions.
const MORE: usize = 4;

/// Readings that change the loss at fewer positions are not judged by them.
const FEWEST_POSITIONS: usize = 16;

/// Standard errors beyond which a reading is dropped: with normal gains, a round wrongly drops 1 of 2000.
const STANDARD_ERRORS: f64 = 3.3;

/// The same bound for an error estimated from `n` positions: Student's quantile, to first order in 1/n.
fn standard_errors(n: usize) -> f64 {
    let z = STANDARD_ERRORS;
    z + (z * z * z + z) / (4.0 * n.saturating_sub(1).max(1) as f64)
}

/// Fraction of the check's rival share that keeps a reading in the race, because its gain may still grow.
const NEARLY: f64 = 0.93;

/// Number of positions from which readings far behind the leader are dropped.
const LED_POSITIONS: usize = 4 * FIRST_POSITIONS;

/// Limits from the check's thresholds: a reading that the check would not believe is dropped.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    /// Gain below which a reading is ignored, in nats.
    pub margin: f64,
    /// Share of the leader's gain that a rival needs.
    rival: f64,
    /// Share of the text's unigram loss below which a model must be seeing its labels.
    reads_off: f64,
    /// Share of the text's unigram loss above which a model is no good.
    pub restored: f64,
    /// Number of tokens in a beginning, which is shorter than any training text.
    n_beginning: usize,
    /// Positions below which no reading is accused.
    fewest_positions: usize,
}

impl Lines {
    pub fn of(thresholds: &Thresholds) -> Self {
        // The first positions may gain less than all, so a margin above the default must not drop readings earlier.
        let usual = Thresholds::default().trained_otherwise.margin;
        Self {
            margin: thresholds.trained_otherwise.margin.min(usual),
            rival: NEARLY * thresholds.trained_otherwise.rival_share,
            reads_off: thresholds.trained_otherwise.label_share,
            restored: thresholds.trained_otherwise.restored_share,
            n_beginning: thresholds.trained_otherwise.beginning as usize,
            fewest_positions: thresholds.trained_otherwise.fewest_positions as usize,
        }
    }

    /// Whether so many positions can decide between readings.
    pub fn are_enough(&self, n_positions: usize) -> bool {
        n_positions >= self.fewest_positions
    }
}

/// Finds the readings under which the weights predict texts best.
///
/// # Errors
/// When the model cannot be run, or the work is stopped.
pub fn probe_readings<O: Ops>(
    ops: &O,
    model: &Model,
    inputs: &[Input],
    (lines, budget): (Lines, Budget),
    told: Told<'_>,
    pace: &dyn Pace,
) -> Result<Probed<TrainingProbe>> {
    let task = match Task::of(model) {
        Ok(task) => task,
        Err(reason) => return Ok(Probed::Not(reason)),
    };
    let all = sample(task, inputs, MOST_TOKENS, MOST_POSITIONS);
    let n_all: usize = all.iter().map(|text| text.wanted.len()).sum();
    if n_all == 0 {
        // Too few positions to decide; the check says how many it needs.
        return Ok(Probed::Ran(TrainingProbe {
            declared: vec![Vec::new()],
            added: None,
            noise: None,
            tells_next: false,
            places: Vec::new(),
            of_beginnings: Vec::new(),
            readings: Vec::new(),
            n_left_out: 0,
            seconds_left_out: 0.0,
            unigram_loss: f64::NAN,
            pair_loss: f64::NAN,
            copy_loss: f64::NAN,
        }));
    }
    let mean_of = |texts: &[Text]| -> Result<f64> {
        let declared = losses(ops, model, texts, &[], pace)?;
        Ok(declared
            .first()
            .map_or(f64::NAN, |losses| mean_loss(losses)))
    };
    let unigram_loss = unigram_loss(&all);
    let costs = Costs::of(model, n_all, budget);
    let n_last = costs.last_positions();
    let all = if n_last < n_all {
        sample(task, inputs, MOST_TOKENS.min(n_last + 2), n_last)
    } else {
        all
    };
    let n_all: usize = all.iter().map(|text| text.wanted.len()).sum();
    let declared_loss = if costs.is_cheap(n_all) {
        mean_of(&all)?
    } else {
        mean_of(&sample(
            task,
            inputs,
            KNOWING_POSITIONS + 2,
            KNOWING_POSITIONS,
        ))?
    };
    let knows = declared_loss < unigram_loss;
    let mut field = candidate_readings(model, &all);
    // A model that predicts well as declared cannot have been trained seeing some of its labels.
    field.retain(|reading| !knows || reading.hypothesis.sees_labels != SeesLabels::Faintly);
    let n_possible = field.len() + heads_left_out(model, &field);
    costs.leave_out(&mut field, knows);
    let n_field = field.len();
    let mut race = Race {
        ops,
        model,
        pace,
        lines,
        catalogue: field
            .iter()
            .map(|reading| reading.hypothesis.name.clone())
            .collect(),
        unigram_loss,
        promise: BTreeMap::new(),
        declared: Vec::new(),
        out: Vec::new(),
    };
    let mut n_positions = costs.first_positions(n_field);
    loop {
        let is_last = 2 * n_positions >= n_all;
        let texts = if is_last {
            all.clone()
        } else {
            // Use a few whole texts rather than many beginnings: attention behaves differently with few keys.
            sample(task, inputs, n_positions + 2, n_positions)
        };
        field = race.round(&texts, field, is_last)?;
        if is_last {
            break;
        }
        n_positions *= MORE;
        race.keep_promising(&mut field, costs.most_readings(n_positions.min(n_all)));
        told(n_field - field.len(), n_field);
    }
    // Count readings that were tried alone; combined readings come on top.
    let n_left_out = n_possible - race.out.len();
    let first = sample(task, inputs, FIRST_POSITIONS + 2, FIRST_POSITIONS);
    race.together((&first, &all), &costs)?;
    race.in_silence(&all, costs.most_readings(n_all))?;
    // On fewer positions only the lowest loss is told: what else is known of readings decides nothing.
    let are_enough = lines.are_enough(n_all);
    if are_enough {
        race.by_embedding(&all)?;
    }
    let of_beginnings = if are_enough {
        race.on_beginnings(&all)?
    } else {
        Vec::new()
    };
    told(n_field, n_field);
    let last = race.declared.len() - 1;
    let shows_labels = |(reading, tried): &(Reading, TestedHypothesis)| {
        tried.round == last && reading.hypothesis.sees_labels != SeesLabels::Not
    };
    let copy_loss = match task {
        // Only readings that show labels are compared with it.
        Task::Next if are_enough && race.out.iter().any(shows_labels) => {
            mean_of(&said_twice(&model.spec, inputs, costs.copied_positions()))?
        }
        _ => f64::NAN,
    };
    let places = all.iter().flat_map(|text| text.wanted.iter().copied());
    Ok(Probed::Ran(TrainingProbe {
        added: None,
        noise: noise_of(&all, model.spec.d_vocab),
        tells_next: !matches!(task, Task::Masked(_)),
        places: places.collect(),
        of_beginnings,
        declared: race.declared,
        readings: race.out.into_iter().map(|(_, tried)| tried).collect(),
        n_left_out,
        seconds_left_out: costs.seconds(n_left_out),
        unigram_loss,
        pair_loss: pair_loss(&all, model.spec.d_vocab),
        copy_loss,
    }))
}

/// Whether the tokens of all texts together are noise.
fn noise_of(texts: &[Text], d_vocab: usize) -> Option<Noise> {
    let tokens = texts.iter().flat_map(|text| text.sequence.tokens.iter());
    Noise::of(&tokens.copied().collect::<Vec<u32>>(), d_vocab)
}

/// Losses of all readings on the same positions, in nats, without a race; the declared model comes first.
///
/// # Errors
/// When the model cannot be run, or the work is stopped.
pub fn losses_of_all_readings<O: Ops>(
    ops: &O,
    model: &Model,
    inputs: &[Input],
    pace: &dyn Pace,
) -> Result<Vec<(Reading, Vec<f32>)>> {
    let Ok(task) = Task::of(model) else {
        return Ok(Vec::new());
    };
    let texts = sample(task, inputs, MOST_TOKENS, MOST_POSITIONS);
    let field = candidate_readings(model, &texts);
    let running: Vec<&Reading> = field.iter().collect();
    let all = losses(ops, model, &texts, &running, pace)?;
    let declared = std::iter::once(Reading::declared());
    Ok(declared.chain(field).zip(all).collect())
}

/// Name, layer and head of a reading.
type Key = (String, Option<usize>, Option<usize>);

fn key(reading: &Reading) -> Key {
    (
        reading.hypothesis.name.clone(),
        reading.hypothesis.layer_idx,
        reading.hypothesis.head_idx,
    )
}

pub(super) struct Race<'a, O> {
    pub ops: &'a O,
    pub model: &'a Model,
    pub pace: &'a dyn Pace,
    pub lines: Lines,
    /// Names of all readings, in family order.
    pub catalogue: Vec<String>,
    pub unigram_loss: f64,
    /// Upper bound of each reading's gain, from its last round.
    pub promise: BTreeMap<Key, f64>,
    /// [round][position]
    pub declared: Vec<Vec<f32>>,
    pub out: Vec<(Reading, TestedHypothesis)>,
}

impl<O: Ops> Race<'_, O> {
    /// Index of a reading in the catalogue; combined readings come last.
    pub fn order(&self, reading: &Reading) -> usize {
        let place = self
            .catalogue
            .iter()
            .position(|name| *name == reading.hypothesis.name);
        place.unwrap_or(self.catalogue.len())
    }

    /// Runs a round and returns the readings that stay in the race, none after the last round.
    fn round(
        &mut self,
        texts: &[Text],
        field: Vec<Reading>,
        is_last: bool,
    ) -> Result<Vec<Reading>> {
        let running: Vec<&Reading> = field.iter().collect();
        let mut all = losses(self.ops, self.model, texts, &running, self.pace)?.into_iter();
        let declared = all.next().unwrap_or_default();
        let round = self.declared.len();
        let of_all: Vec<Vec<f32>> = all
            .zip(&field)
            .map(|(losses, reading)| without_shown(reading, texts, losses, &declared))
            .collect();
        let gains: Vec<Gain> = of_all
            .iter()
            .map(|losses| Gain::of(&declared, losses))
            .collect();
        // Any model gains when it sees its labels, so such a reading leads only if its loss shows that it reads them off.
        let leads = |reading: &Reading, losses: &[f32]| {
            reading.hypothesis.sees_labels == SeesLabels::Not
                || mean_loss(losses) <= self.lines.reads_off * self.unigram_loss
        };
        let leaders = field.iter().zip(&of_all).zip(&gains);
        let leaders = leaders.filter(|((reading, losses), _)| leads(reading, losses));
        let mut lowest = leaders.map(|(_, gain)| gain.low()).fold(0.0, f64::max);
        // With few positions, one of hundreds of readings leads by chance.
        if declared.len() < LED_POSITIONS {
            lowest = 0.0;
        }
        self.declared.push(declared);
        let mut stays = Vec::new();
        for ((reading, losses), gain) in field.into_iter().zip(of_all).zip(gains) {
            // A window or another rotary base changes the loss at few positions, far into a text: it stays for one round more.
            let is_rare = round == 0 && reading.acts_far && reading.hypothesis.layer_idx.is_none();
            let may_win = gain.high() >= self.lines.margin.max(self.lines.rival * lowest)
                || gain.n_moved < FEWEST_POSITIONS
                || is_rare;
            if may_win && !is_last {
                self.promise.insert(key(&reading), gain.high());
                stays.push(reading);
            } else {
                let tried = tried(&reading, losses, round, self.order(&reading));
                self.out.push((reading, tried));
            }
        }
        Ok(stays)
    }

    /// Keeps the readings with the highest possible gain, if a round cannot afford all.
    fn keep_promising(&mut self, field: &mut Vec<Reading>, most: usize) {
        if field.len() <= most {
            return;
        }
        let mut ranked: Vec<(f64, Reading)> = field
            .drain(..)
            .map(|reading| {
                (
                    self.promise.get(&key(&reading)).copied().unwrap_or(0.0),
                    reading,
                )
            })
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked.truncate(most);
        field.extend(ranked.into_iter().map(|(_, reading)| reading));
    }

    /// Runs promising readings on the beginnings of the last texts, and returns the declared model's losses there; empty if the
    /// texts are hardly longer than the beginnings.
    fn on_beginnings(&mut self, all: &[Text]) -> Result<Vec<f32>> {
        let n_beginning = self.lines.n_beginning;
        let cut = beginnings(all, n_beginning);
        if !are_short_of(all, &cut) {
            return Ok(Vec::new());
        }
        let Some(last) = self.declared.last() else {
            return Ok(Vec::new());
        };
        let (n_rounds, margin) = (self.declared.len(), self.lines.margin);
        let may_gain = |tried: &TestedHypothesis| {
            tried.round + 1 == n_rounds && Gain::of(last, &tried.losses).high() >= margin
        };
        let is_asked = |(reading, tried): &(Reading, TestedHypothesis)| {
            !reading.depends_on_length() && may_gain(tried)
        };
        let asked: Vec<usize> = (0..self.out.len())
            .filter(|idx| is_asked(&self.out[*idx]))
            .collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let running: Vec<&Reading> = asked.iter().map(|idx| &self.out[*idx].0).collect();
        let mut found = losses(self.ops, self.model, &cut, &running, self.pace)?.into_iter();
        let declared = found.next().unwrap_or_default();
        let of_all: Vec<Vec<f32>> = running
            .iter()
            .zip(found)
            .map(|(reading, losses)| without_shown(reading, &cut, losses, &declared))
            .collect();
        for (idx, of_beginnings) in asked.into_iter().zip(of_all) {
            self.out[idx].1.of_beginnings = of_beginnings;
        }
        Ok(declared)
    }
}

/// Replaces a reading's losses by the declared ones wherever its prefix shows the labels, so that it cannot gain there.
fn without_shown(
    reading: &Reading,
    texts: &[Text],
    losses: Vec<f32>,
    declared: &[f32],
) -> Vec<f32> {
    let Some(n) = reading.n_shown() else {
        return losses;
    };
    let at = texts.iter().flat_map(|text| text.wanted.iter());
    let pairs = losses.into_iter().zip(declared).zip(at);
    let choose = |((own, declared), idx): ((f32, &f32), &usize)| {
        if idx + 1 < n { *declared } else { own }
    };
    pairs.map(choose).collect()
}

pub(super) fn tried(
    reading: &Reading,
    losses: Vec<f32>,
    round: usize,
    order: usize,
) -> TestedHypothesis {
    TestedHypothesis {
        hypothesis: reading.hypothesis.clone(),
        order,
        losses,
        round,
        of_beginnings: Vec::new(),
        silenced: None,
        by_embedding: None,
    }
}

/// Decrease of the loss from one reading to another, averaged over positions.
pub(super) struct Gain {
    pub mean: f64,
    /// Half-width of its confidence interval.
    half: f64,
    /// Number of positions at which the losses differ.
    n_moved: usize,
}

impl Gain {
    pub fn of(from: &[f32], to: &[f32]) -> Self {
        let n = from.len().max(1) as f64;
        let pairs = || {
            from.iter()
                .zip(to)
                .map(|(from, to)| f64::from(*from) - f64::from(*to))
        };
        let mean = pairs().sum::<f64>() / n;
        let squares = pairs()
            .map(|gain| (gain - mean) * (gain - mean))
            .sum::<f64>();
        Self {
            mean,
            n_moved: pairs().filter(|gain| gain.abs() > 1e-6).count(),
            half: standard_errors(from.len()) * (squares / (n - 1.0).max(1.0) / n).sqrt(),
        }
    }

    /// Upper bound of the gain; −∞ if the loss is NaN.
    pub fn high(&self) -> f64 {
        let high = self.mean + self.half;
        if high.is_nan() {
            f64::NEG_INFINITY
        } else {
            high
        }
    }

    pub fn low(&self) -> f64 {
        let low = self.mean - self.half;
        if low.is_nan() { f64::NEG_INFINITY } else { low }
    }
}
