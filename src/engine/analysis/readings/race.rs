//! Readings race: all of them on a few positions, those that may still win on more.

use std::collections::BTreeMap;

use super::evaluate::losses;
use super::texts::{Task, Text, blind_loss, said_twice, sample, unigram_loss};
use super::{FAMILIES, IsLocal, Known, Reading, everywhere, local};
use crate::checks::{Probed, SeesLabels, TrainingProbe, Tried};
use crate::error::Result;
use crate::model::{Input, Model};
use crate::ops::Ops;
use crate::pace::Pace;

/// What is told of the work: readings that are through, of how many.
pub type Told<'a> = &'a mut dyn FnMut(usize, usize);

/// Positions that are compared at most: enough for small gains to show.
const MOST_POSITIONS: usize = 4096;
/// Tokens of a text that are read at most: pairs of tokens cost more than tokens.
const MOST_TOKENS: usize = 512;
/// Positions of the first round, and how many times more the next ones have.
const FIRST_POSITIONS: usize = 48;
const FEWEST_FIRST: usize = 12;
/// A reading that moves fewer positions than these is not judged by them.
const FEWEST_POSITIONS: usize = 16;
const MORE: usize = 4;
/// Multiplications of a race that are not worth saving: about a second.
const CHEAP: usize = 40_000_000_000;
/// What the first round, and each later one, may cost beyond that, in runs of the model on all positions.
const FIRST_ROUND_COSTS: usize = 3;
const ROUND_COSTS: usize = 1;
/// Heads of a model up to which readings are tried in each of them.
const MOST_HEADS: usize = 64;
/// Standard errors beyond which a reading is given up: for a gain that is normal, 1 of 2000 is given up wrongly in a round.
const STANDARD_ERRORS: f64 = 3.3;
/// The gain below which a reading is of no interest, in nats, and the share of the leader's gain that a rival needs.
const MARGIN: f64 = 0.05;
const RIVAL: f64 = 0.7;
/// From so many positions on, those far behind the leader are given up.
const LED_POSITIONS: usize = 4 * FIRST_POSITIONS;
/// The share of the text's unigram loss below which labels are read off.
const READS_OFF: f64 = 0.1;

/// Asks under which reading the weights explain texts best.
///
/// # Errors
/// When the model cannot be run, or the work is stopped.
pub fn probe_readings<O: Ops>(
    ops: &O,
    model: &Model,
    inputs: &[Input],
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
            readings: Vec::new(),
            unigram_loss: f64::NAN,
            blind_loss: f64::NAN,
            copy_loss: f64::NAN,
        }));
    }
    let mean_of = |texts: &[Text]| -> Result<f64> {
        let declared = Reading::declared();
        Ok(losses(ops, model, texts, &[&declared], pace)?
            .first()
            .map_or(f64::NAN, |l| mean(l)))
    };
    let unigram_loss = unigram_loss(&all);
    let copy_loss = match task {
        Task::Next => mean_of(&said_twice(&model.spec, inputs))?,
        Task::Target | Task::Masked(_) => f64::NAN,
    };
    let knows = mean_of(&all)? < unigram_loss;
    let costs = Costs::of(model, n_all);
    let mut field = entrants(model, &all);
    // A model that is good as declared cannot have been trained to see a little of its labels.
    field.retain(|reading| !knows || reading.sees_labels != SeesLabels::Faintly);
    costs.leave_out(&mut field, knows);
    let n_field = field.len();
    let mut race = Race {
        ops,
        model,
        pace,
        catalogue: field.iter().map(|reading| reading.name.clone()).collect(),
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
    race.together(&all)?;
    told(n_field, n_field);
    Ok(Probed::Ran(TrainingProbe {
        declared: race.declared,
        readings: race.out.into_iter().map(|(_, tried)| tried).collect(),
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
    let mut field = entrants(model, &texts);
    field.insert(0, Reading::declared());
    let running: Vec<&Reading> = field.iter().collect();
    let all = losses(ops, model, &texts, &running, pace)?;
    Ok(field.into_iter().zip(all).collect())
}

/// All readings that are tried: everywhere, in pairs of those that go together, in single layers, and in single heads.
fn entrants(model: &Model, texts: &[Text]) -> Vec<Reading> {
    let positions = texts
        .iter()
        .flat_map(|text| text.sequence.positions.iter().copied());
    let known = Known {
        model,
        n_longest: texts
            .iter()
            .map(|text| text.sequence.len())
            .max()
            .unwrap_or(0),
        first_position: positions.min().unwrap_or(0),
    };
    let mut all = everywhere(&known);
    debug_assert!(
        all.iter()
            .all(|one| FAMILIES.iter().any(|family| family.id == one.family))
    );
    let pairs: Vec<Reading> = (0..all.len())
        .flat_map(|idx| {
            all[idx + 1..]
                .iter()
                .filter_map(|other| all[idx].and(other))
                .collect::<Vec<_>>()
        })
        .filter(is_usual)
        .collect();
    let blocks = model.spec.main_stack().blocks();
    let n_heads: usize = blocks
        .iter()
        .filter_map(|block| Some(block.attention()?.n_heads))
        .sum();
    let mut alone = local(model, &all, IsLocal::InLayers);
    if n_heads <= MOST_HEADS {
        alone.extend(local(model, &all, IsLocal::InHeads));
    }
    all.extend(pairs);
    all.extend(alone);
    all
}

/// What a race may cost.
struct Costs {
    n_all: usize,
    /// Multiplications of one token.
    of_token: usize,
}

impl Costs {
    fn of(model: &Model, n_all: usize) -> Self {
        Self {
            n_all,
            of_token: model.spec.n_multiplications(),
        }
    }

    fn is_cheap(&self, n_tokens: usize) -> bool {
        n_tokens.saturating_mul(self.of_token) <= CHEAP
    }

    /// Leaves readings out that the first round cannot pay for: those of single heads first, then the less usual ones of
    /// single layers.
    ///
    /// A model that tells more than word frequencies has its weights where they are read: of a large one other places of
    /// weights are not tried then.
    fn leave_out(&self, field: &mut Vec<Reading>, knows: bool) {
        if knows && !self.is_cheap(field.len() * FIRST_POSITIONS) {
            field.retain(|reading| reading.shares_weights);
        }
        let affordable = FIRST_ROUND_COSTS * self.n_all / FEWEST_FIRST;
        let usual = ["no causal mask", "a softmax over queries", "no scale"];
        let is_usual = |reading: &Reading| usual.contains(&reading.name.as_str());
        let steps: [&dyn Fn(&Reading) -> bool; 3] = [
            &|reading| reading.head_idx.is_none(),
            &|reading| reading.layer_idx.is_none() || is_usual(reading),
            &|reading| reading.layer_idx.is_none(),
        ];
        for step in steps {
            // A reading of one layer costs half on average: only what follows the layer runs again.
            let n_whole = field
                .iter()
                .filter(|reading| reading.layer_idx.is_none())
                .count();
            let n = n_whole + (field.len() - n_whole) / 2;
            if n <= affordable || self.is_cheap(n * FIRST_POSITIONS) {
                return;
            }
            field.retain(|reading| step(reading));
        }
    }

    fn first_positions(&self, n_field: usize) -> usize {
        let affordable = FIRST_ROUND_COSTS * self.n_all / n_field.max(1);
        let n = if self.is_cheap(n_field * FIRST_POSITIONS) {
            FIRST_POSITIONS
        } else {
            affordable.clamp(FEWEST_FIRST, FIRST_POSITIONS)
        };
        n.min(self.n_all)
    }

    /// How many readings a later round may have.
    fn most_readings(&self, n_positions: usize) -> usize {
        let in_cheap = CHEAP / (n_positions * self.of_token).max(1);
        let in_costs = ROUND_COSTS * self.n_all / n_positions.max(1);
        in_cheap.max(in_costs).max(2)
    }
}

/// Mistakes that are made together: another axis, no mask, and a scale that was forgotten or squared.
fn is_usual(pair: &Reading) -> bool {
    let usual = [
        "a softmax over queries",
        "no causal mask",
        "no scale",
        "a scale of 1/d_head",
    ];
    pair.parts.iter().all(|part| usual.contains(&part.as_str()))
}

/// A reading's name and place.
type Key = (String, Option<usize>, Option<usize>);

fn key(reading: &Reading) -> Key {
    (reading.name.clone(), reading.layer_idx, reading.head_idx)
}

struct Race<'a, O> {
    ops: &'a O,
    model: &'a Model,
    pace: &'a dyn Pace,
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
        let place = self.catalogue.iter().position(|name| *name == reading.name);
        place.unwrap_or(self.catalogue.len())
    }

    /// Runs a round, and gives those who stay in the race; after the last one nobody does.
    fn round(
        &mut self,
        texts: &[Text],
        field: Vec<Reading>,
        is_last: bool,
    ) -> Result<Vec<Reading>> {
        let declared = Reading::declared();
        let running: Vec<&Reading> = std::iter::once(&declared).chain(&field).collect();
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
            reading.sees_labels == SeesLabels::Not || mean(losses) <= READS_OFF * self.unigram_loss
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
            let may_win =
                gain.high() >= MARGIN.max(RIVAL * lowest) || gain.n_moved < FEWEST_POSITIONS;
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

    /// Puts the best reading together with others, as long as that gains.
    fn together(&mut self, texts: &[Text]) -> Result<()> {
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
            if mean(&self.declared[last]) - total(its) < MARGIN {
                return Ok(());
            }
            let best_losses = its.losses.clone();
            let known =
                |reading: &Reading| self.out.iter().any(|(_, tried)| tried.name == reading.name);
            let others = self
                .out
                .iter()
                .filter(|(_, tried)| tried.layer_idx.is_none());
            let both: Vec<Reading> = others
                .filter_map(|(other, _)| best.and(other))
                .filter(|both| !known(both))
                .collect();
            if both.is_empty() {
                return Ok(());
            }
            let running: Vec<&Reading> = both.iter().collect();
            let all = losses(self.ops, self.model, texts, &running, self.pace)?;
            let mut gained = false;
            for (reading, losses) in both.into_iter().zip(all) {
                if Gain::of(&best_losses, &losses).low() > 0.0
                    && mean(&best_losses) - mean(&losses) >= MARGIN
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
        family: reading.family,
        name: reading.name.clone(),
        parts: reading.parts.clone(),
        advice: reading.advice.clone(),
        layer_idx: reading.layer_idx,
        head_idx: reading.head_idx,
        sees_labels: reading.sees_labels,
        smooths: reading.smooths,
        order,
        losses,
        round,
    }
}

/// How much less one loses than another, position by position.
struct Gain {
    mean: f64,
    standard_error: f64,
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
            standard_error: (squares / (n - 1.0).max(1.0) / n).sqrt(),
        }
    }

    /// What it is at most; −∞ for a loss that is no number.
    fn high(&self) -> f64 {
        let high = self.mean + STANDARD_ERRORS * self.standard_error;
        if high.is_nan() {
            f64::NEG_INFINITY
        } else {
            high
        }
    }

    fn low(&self) -> f64 {
        let low = self.mean - STANDARD_ERRORS * self.standard_error;
        if low.is_nan() { f64::NEG_INFINITY } else { low }
    }
}

fn mean(losses: &[f32]) -> f64 {
    losses.iter().map(|loss| f64::from(*loss)).sum::<f64>() / losses.len() as f64
}
