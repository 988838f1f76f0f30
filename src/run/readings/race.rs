//! Readings race: all of them on a few positions, those that may still win on more.

use std::collections::BTreeMap;

use attnscope_checks::{Probed, SeesLabels, Thresholds, TrainingProbe, Tried};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_spec::Model;

use super::Reading;
use super::beginnings::{are_short_of, beginnings};
use super::budget::{Costs, FIRST_POSITIONS, KNOWING_POSITIONS};
use super::entrants::{entrants, heads_left_out};
use super::evaluate::losses;
use super::texts::{Task, Text, blind_loss, said_twice, sample, unigram_loss};

/// What is told of the work: readings that are through, of how many.
pub type Told<'a> = &'a mut dyn FnMut(usize, usize);

/// Positions that are compared at most: enough for small gains to show.
const MOST_POSITIONS: usize = 4096;

/// Tokens of a text that are read at most: pairs of tokens cost more than tokens.
const MOST_TOKENS: usize = 512;

/// How many times more positions each round has.
const MORE: usize = 4;

/// A reading that moves fewer positions than these is not judged by them.
const FEWEST_POSITIONS: usize = 16;

/// Standard errors beyond which a reading is given up: for a gain that is normal, 1 of 2000 is given up wrongly in a round.
const STANDARD_ERRORS: f64 = 3.3;

/// As many where an error is estimated from few positions: Student's quantile, to the first order of 1/n.
fn standard_errors(n: usize) -> f64 {
    let z = STANDARD_ERRORS;
    z + (z * z * z + z) / (4.0 * n.saturating_sub(1).max(1) as f64)
}

/// The share of what makes a rival that keeps a reading in the race: its gain may still grow.
const NEARLY: f64 = 0.93;

/// From so many positions on, those far behind the leader are given up.
const LED_POSITIONS: usize = 4 * FIRST_POSITIONS;

/// Where the check draws its lines: nobody stays in the race whom it would not believe.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    /// The gain below which a reading is of no interest, in nats.
    margin: f64,
    /// The share of the leader's gain that a rival needs.
    rival: f64,
    /// The share of the text's unigram loss below which labels are read off.
    reads_off: f64,
    /// Tokens of a beginning, which is shorter than the texts of any training.
    n_beginning: usize,
}

impl Lines {
    pub fn of(thresholds: &Thresholds) -> Self {
        // The first positions may gain less than all: a wider margin than the usual one gives nobody up earlier.
        let usual = Thresholds::default().of("trained-otherwise.margin");
        Self {
            margin: thresholds.of("trained-otherwise.margin").min(usual),
            rival: NEARLY * thresholds.of("trained-otherwise.rival_share"),
            reads_off: thresholds.of("trained-otherwise.label_share"),
            n_beginning: thresholds.of("trained-otherwise.beginning") as usize,
        }
    }
}

/// Asks under which reading the weights explain texts best.
///
/// # Errors
/// When the model cannot be run, or the work is stopped.
pub fn probe_readings<O: Ops>(
    ops: &O,
    model: &Model,
    inputs: &[Input],
    lines: Lines,
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
        // Nothing to tell by: the check says how many positions it wants.
        return Ok(Probed::Ran(TrainingProbe {
            declared: vec![Vec::new()],
            tells_next: false,
            places: Vec::new(),
            of_beginnings: Vec::new(),
            readings: Vec::new(),
            n_left_out: 0,
            unigram_loss: f64::NAN,
            blind_loss: f64::NAN,
            copy_loss: f64::NAN,
        }));
    }
    let mean_of = |texts: &[Text]| -> Result<f64> {
        let declared = losses(ops, model, texts, &[], pace)?;
        Ok(declared.first().map_or(f64::NAN, |losses| mean(losses)))
    };
    let unigram_loss = unigram_loss(&all);
    let costs = Costs::of(model, n_all);
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
    let mut field = entrants(model, &all);
    // A model that is good as declared cannot have been trained to see a little of its labels.
    field.retain(|reading| !knows || reading.claim.sees_labels != SeesLabels::Faintly);
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
            .map(|reading| reading.claim.name.clone())
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
            // Few whole texts rather than the beginnings of many: attention differs where there is little to look at.
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
    // What was tried alone: readings that are put together come on top.
    let n_left_out = n_possible - race.out.len();
    let first = sample(task, inputs, FIRST_POSITIONS + 2, FIRST_POSITIONS);
    race.together((&first, &all), costs.most_readings(n_all))?;
    let of_beginnings = race.on_beginnings(&all)?;
    told(n_field, n_field);
    let last = race.declared.len() - 1;
    let shows_labels = |(reading, tried): &(Reading, Tried)| {
        tried.round == last && reading.claim.sees_labels != SeesLabels::Not
    };
    let copy_loss = match task {
        // Only readings that show labels are compared with it.
        Task::Next if race.out.iter().any(shows_labels) => {
            mean_of(&said_twice(&model.spec, inputs, costs.copied_positions()))?
        }
        _ => f64::NAN,
    };
    let places = all.iter().flat_map(|text| text.wanted.iter().copied());
    Ok(Probed::Ran(TrainingProbe {
        tells_next: !matches!(task, Task::Masked(_)),
        places: places.collect(),
        of_beginnings,
        declared: race.declared,
        readings: race.out.into_iter().map(|(_, tried)| tried).collect(),
        n_left_out,
        unigram_loss,
        blind_loss: blind_loss(&all, model.spec.d_vocab),
        copy_loss,
    }))
}

/// Losses of every reading on the same positions, in nats, without a race: what is declared comes first.
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
    let field = entrants(model, &texts);
    let running: Vec<&Reading> = field.iter().collect();
    let all = losses(ops, model, &texts, &running, pace)?;
    let declared = std::iter::once(Reading::declared());
    Ok(declared.chain(field).zip(all).collect())
}

/// A reading's name and place.
type Key = (String, Option<usize>, Option<usize>);

fn key(reading: &Reading) -> Key {
    (
        reading.claim.name.clone(),
        reading.claim.layer_idx,
        reading.claim.head_idx,
    )
}

struct Race<'a, O> {
    ops: &'a O,
    model: &'a Model,
    pace: &'a dyn Pace,
    lines: Lines,
    /// Names of all readings, in the order of the families.
    catalogue: Vec<String>,
    unigram_loss: f64,
    /// What a reading may gain at most, by the last round that it ran in.
    promise: BTreeMap<Key, f64>,
    /// [round][position]
    declared: Vec<Vec<f32>>,
    out: Vec<(Reading, Tried)>,
}

impl<O: Ops> Race<'_, O> {
    /// A reading's place in the catalogue; what was put together later comes last.
    fn order(&self, reading: &Reading) -> usize {
        let place = self
            .catalogue
            .iter()
            .position(|name| *name == reading.claim.name);
        place.unwrap_or(self.catalogue.len())
    }

    /// Runs a round, and gives those who stay in the race; after the last one nobody does.
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
        // Any model gains where it is shown its labels: such a reading leads only where they are read off.
        let leads = |reading: &Reading, losses: &[f32]| {
            reading.claim.sees_labels == SeesLabels::Not
                || mean(losses) <= self.lines.reads_off * self.unigram_loss
        };
        let leaders = field.iter().zip(&of_all).zip(&gains);
        let leaders = leaders.filter(|((reading, losses), _)| leads(reading, losses));
        let mut lowest = leaders.map(|(_, gain)| gain.low()).fold(0.0, f64::max);
        // Of hundreds of readings one leads by chance where positions are few.
        if declared.len() < LED_POSITIONS {
            lowest = 0.0;
        }
        self.declared.push(declared);
        let mut stays = Vec::new();
        for ((reading, losses), gain) in field.into_iter().zip(of_all).zip(gains) {
            // A window shows in long texts only.
            let may_win = gain.high() >= self.lines.margin.max(self.lines.rival * lowest)
                || gain.n_moved < FEWEST_POSITIONS;
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

    /// Keeps the readings that may gain most, where a round cannot pay for all.
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

    /// Runs readings that may gain on the beginnings of the last texts, and gives what is declared loses there: nothing where the
    /// texts are hardly longer.
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
        let may_gain = |tried: &Tried| {
            tried.round + 1 == n_rounds && Gain::of(last, &tried.losses).high() >= margin
        };
        let is_asked =
            |(reading, tried): &(Reading, Tried)| !reading.depends_on_length() && may_gain(tried);
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

    /// Puts the best reading together with others, as long as that gains: `most` of them on all texts, those that lose least
    /// on the first few positions.
    fn together(&mut self, (first, all): (&[Text], &[Text]), most: usize) -> Result<()> {
        const MOST: usize = 2;
        let last = self.declared.len() - 1;
        for _ in 0..MOST {
            let total = |tried: &Tried| mean(&tried.losses);
            let is_in_last =
                |(_, tried): &&(Reading, Tried)| tried.round == last && total(tried).is_finite();
            let best = self
                .out
                .iter()
                .filter(is_in_last)
                .min_by(|a, b| total(&a.1).total_cmp(&total(&b.1)));
            let Some((best, its)) = best else {
                return Ok(());
            };
            if mean(&self.declared[last]) - total(its) < self.lines.margin {
                return Ok(());
            }
            let best_losses = its.losses.clone();
            let known = |reading: &Reading| {
                self.out
                    .iter()
                    .any(|(_, tried)| tried.claim.name == reading.claim.name)
            };
            let others = self
                .out
                .iter()
                .filter(|(_, tried)| tried.claim.layer_idx.is_none());
            let mut both: Vec<Reading> = others
                .filter_map(|(other, _)| best.and(other))
                .filter(|both| !known(both))
                .collect();
            if both.is_empty() {
                return Ok(());
            }
            if both.len() > most {
                let running: Vec<&Reading> = both.iter().collect();
                let few = losses(self.ops, self.model, first, &running, self.pace)?;
                let few = few.into_iter().skip(1).map(|losses| mean(&losses));
                let mut ranked: Vec<(f64, Reading)> = few.zip(both).collect();
                ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
                ranked.truncate(most);
                both = ranked.into_iter().map(|(_, reading)| reading).collect();
            }
            let running: Vec<&Reading> = both.iter().collect();
            let found = losses(self.ops, self.model, all, &running, self.pace)?;
            let mut gained = false;
            for (reading, losses) in both.into_iter().zip(found.into_iter().skip(1)) {
                if Gain::of(&best_losses, &losses).low() > 0.0
                    && mean(&best_losses) - mean(&losses) >= self.lines.margin
                {
                    gained = true;
                    let tried = tried(&reading, losses, last, self.order(&reading));
                    self.out.push((reading, tried));
                }
            }
            if !gained {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Losses of a reading, with those of what is declared where it shows the labels to all: there it cannot gain.
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

fn tried(reading: &Reading, losses: Vec<f32>, round: usize, order: usize) -> Tried {
    Tried {
        claim: reading.claim.clone(),
        order,
        losses,
        round,
        of_beginnings: Vec::new(),
    }
}

/// How much less one loses than another, position by position.
struct Gain {
    mean: f64,
    /// Half of the interval in which it lies.
    half: f64,
    /// Positions at which there is any difference.
    n_moved: usize,
}

impl Gain {
    fn of(from: &[f32], to: &[f32]) -> Self {
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

    /// What it is at most; −∞ for a loss that is no number.
    fn high(&self) -> f64 {
        let high = self.mean + self.half;
        if high.is_nan() {
            f64::NEG_INFINITY
        } else {
            high
        }
    }

    fn low(&self) -> f64 {
        let low = self.mean - self.half;
        if low.is_nan() { f64::NEG_INFINITY } else { low }
    }
}

fn mean(losses: &[f32]) -> f64 {
    losses.iter().map(|loss| f64::from(*loss)).sum::<f64>() / losses.len() as f64
}
