//! Search that asks one question after another about the few best descriptions so far, ranked by their loss on text.

use std::collections::BTreeMap;
use std::sync::Arc;

use attnscope_checkpoint::Checkpoint;
use attnscope_checks::mean_loss;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_families::description::Described;
use attnscope_run::Reading;
use attnscope_run::readings::{Text, losses};
use attnscope_spec::{Model, ModelSpec};

use super::assign::Assignment;
use super::options::{Answer, Known, QUESTIONS, Question};
use super::rivals::{Ahead, is_open};
use super::written::Margin;

/// Cost per point that an assignment's name score is below the best, in nats; `MOST_OF_NAMES` is the maximum in total.
pub const OF_NAMES: f64 = 0.003;

pub const MOST_OF_NAMES: f64 = 0.03;

/// The search ends after a pass that gains less.
const GAIN: f64 = 2e-4;

/// Most passes over all questions.
const MOST_PASSES: usize = 4;

/// Standard errors by which a rare answer must be better: among dozens of answers, one reaches three by chance.
const ERRORS: f64 = 4.0;

/// Gain that never occurs by chance among dozens of answers, in nats.
const SHOWN: f64 = 0.015;

/// Cost of a tensor that is not assigned to any part.
pub const OF_LEFT: f64 = 0.2;

/// Number of questions that are asked beforehand, for the first states.
const ASKED_FIRST: usize = 2;

/// Number of descriptions that run side by side.
const AT_ONCE: usize = 48;

/// A description and its loss.
#[derive(Debug, Clone)]
pub struct State {
    pub assignment_idx: usize,
    pub described: Described,
    pub loss: f64,
    pub handicaps: BTreeMap<&'static str, f64>,
    pub of_names: f64,
}

impl State {
    /// Value that states are ranked by: the loss, increased by the handicaps of unlikely answers.
    pub fn rank(&self) -> f64 {
        self.loss * (1.0 + self.handicaps.values().sum::<f64>()) + self.of_names
    }
}

/// Result of a question.
pub struct Asked {
    pub better: Option<State>,
    pub margin: Option<Margin>,
    /// Another answer that may be right instead.
    pub open: Option<Rival>,
}

/// An answer that may be right instead of the chosen one.
#[derive(Debug, Clone, PartialEq)]
pub struct Rival {
    /// The answer in a few words.
    pub words: String,
    pub described: Described,
    /// Difference of its loss to that of the chosen answer.
    pub ahead: Ahead,
}

/// Limits on the width of the search.
#[derive(Debug, Clone, Copy)]
pub struct Width {
    pub beam: usize,
    pub assignments: usize,
    pub placements: usize,
    /// Placements whose attention is split in every way before any placement is clearly ahead.
    pub places: usize,
}

pub struct Search<'a, O> {
    pub ops: &'a O,
    pub checkpoint: &'a Arc<Checkpoint>,
    pub assignments: &'a [Assignment],
    pub texts: &'a [Text],
    pub n_longest: usize,
    pub width: Width,
    pub pace: &'a dyn Pace,
    pub told: &'a mut dyn FnMut(&str, usize),
    pub n_tried: usize,
    /// Losses of each description at all positions, in nats; empty if it cannot run.
    pub known: BTreeMap<String, Vec<f32>>,
}

impl<O: Ops> Search<'_, O> {
    /// Best description that can be reached from some states.
    ///
    /// # Errors
    /// When the work is stopped, or no description can run.
    pub fn best(&mut self, mut beam: Vec<State>) -> Result<State> {
        self.evaluate(&mut beam)?;
        let mut last = f64::INFINITY;
        for pass in 0..MOST_PASSES {
            let asked = if pass == 0 { ASKED_FIRST } else { 0 };
            for question in QUESTIONS.iter().skip(asked) {
                let most = match pass {
                    0 => self.width.beam,
                    1 => self.width.beam.div_ceil(2),
                    _ => 2,
                };
                (self.told)(question.key, self.n_tried);
                self.ask(question.key, question.answers, &mut beam, most)?;
            }
            let best = beam.first().map_or(f64::INFINITY, State::rank);
            if last - best < GAIN {
                break;
            }
            last = best;
        }
        beam.into_iter().next().ok_or_else(none)
    }

    /// Asks one question about one state: returns a better answer if there is one, and the margin of the best.
    ///
    /// # Errors
    /// When the work is stopped.
    pub fn asked(&mut self, state: &State, question: &Question) -> Result<Asked> {
        let answers = self.answers(state, question.answers);
        let mut states: Vec<State> = Vec::new();
        let mut words = Vec::new();
        for answer in answers {
            let mut next = state.clone();
            next.described = answer.described;
            next.handicaps.insert(question.key, answer.handicap);
            states.push(next);
            words.push(answer.words);
        }
        self.evaluate(&mut states)?;
        let own = states
            .iter()
            .find(|other| other.described == state.described);
        let now = own.unwrap_or(state).clone();
        let best = states.iter().min_by(|a, b| a.rank().total_cmp(&b.rank()));
        let mut chosen_now = best
            .filter(|best| best.rank() < now.rank() - 1e-9)
            .unwrap_or(&now)
            .clone();
        // Rare features must show at many positions, not at a few by chance.
        let is_rare = chosen_now
            .handicaps
            .get(question.key)
            .is_some_and(|handicap| *handicap >= 1e-2);
        let usual = states
            .iter()
            .filter(|other| other.handicaps.get(question.key).is_none_or(|h| *h == 0.0));
        let usual = usual.min_by(|a, b| a.rank().total_cmp(&b.rank()));
        if let Some(usual) = usual.filter(|usual| is_rare && !self.is_shown(usual, &chosen_now)) {
            chosen_now = usual.clone();
        }
        let better = Some(chosen_now).filter(|chosen| chosen.described != state.described);
        let chosen = better.as_ref().unwrap_or(&now);
        let others = states
            .iter()
            .zip(&words)
            .filter(|(other, _)| other.loss.is_finite() && other.described != chosen.described);
        let mut others: Vec<(&State, &String)> = others.collect();
        others.sort_by(|(a, _), (b, _)| a.loss.total_cmp(&b.loss));
        let margin = others.first().map(|(second, words)| Margin {
            second: (*words).clone(),
            ahead: second.loss - chosen.loss,
            n_answers: states.len(),
        });
        let open = others.iter().find_map(|(rival, words)| {
            let ahead = self.ahead(chosen, rival)?;
            let place = |state: &State| {
                let mut all = states.iter();
                all.position(|other| other.described == state.described)
            };
            let rival_at = (place(rival)?, *rival);
            is_open(question.key, (place(chosen), chosen), rival_at, ahead).then(|| Rival {
                words: (*words).clone(),
                described: rival.described.clone(),
                ahead,
            })
        });
        Ok(Asked {
            better,
            margin,
            open,
        })
    }

    /// Difference in loss between a second state and the chosen one.
    fn ahead(&self, chosen: &State, second: &State) -> Option<Ahead> {
        let losses = |state: &State| self.known.get(&format!("{:?}", state.described));
        Ahead::of(losses(chosen)?, losses(second)?)
    }

    /// Whether the rare state's loss is lower by more than chance explains.
    fn is_shown(&self, usual: &State, rare: &State) -> bool {
        let losses = |state: &State| self.known.get(&format!("{:?}", state.described));
        let (Some(from), Some(to)) = (losses(usual), losses(rare)) else {
            return true;
        };
        if from.len() != to.len() || from.len() < 2 {
            return true;
        }
        let gains: Vec<f64> = from
            .iter()
            .zip(to)
            .map(|(a, b)| f64::from(*a) - f64::from(*b))
            .collect();
        let n = gains.len() as f64;
        let mean = gains.iter().sum::<f64>() / n;
        let squares = gains
            .iter()
            .map(|gain| (gain - mean) * (gain - mean))
            .sum::<f64>();
        let error = (squares / (n - 1.0) / n).sqrt();
        mean > SHOWN || mean > ERRORS * error
    }

    /// Asks one question about every state, and keeps the best results.
    pub(super) fn ask(
        &mut self,
        key: &'static str,
        answers: fn(&Known<'_>, &Described) -> Vec<Answer>,
        beam: &mut Vec<State>,
        most: usize,
    ) -> Result<()> {
        let mut states = Vec::new();
        for state in beam.iter() {
            let found = self.answers(state, answers);
            for answer in found {
                let mut next = state.clone();
                next.described = answer.described;
                next.handicaps.insert(key, answer.handicap);
                states.push(next);
            }
        }
        self.evaluate(&mut states)?;
        states.append(beam);
        keep(beam, states, most);
        Ok(())
    }

    /// Answers to a question about a state.
    pub fn answers(
        &self,
        state: &State,
        answers: fn(&Known<'_>, &Described) -> Vec<Answer>,
    ) -> Vec<Answer> {
        match self.assignments.get(state.assignment_idx) {
            Some(assignment) => {
                let known = Known {
                    assignment,
                    n_longest: self.n_longest,
                };
                answers(&known, &state.described)
            }
            None => Vec::new(),
        }
    }

    /// Fills in each state's loss; a description that cannot run gets infinite loss.
    ///
    /// # Errors
    /// When the work is stopped.
    pub fn evaluate(&mut self, states: &mut [State]) -> Result<()> {
        let keys: Vec<String> = states
            .iter()
            .map(|state| format!("{:?}", state.described))
            .collect();
        let mut running: Vec<(usize, Arc<ModelSpec>)> = Vec::new();
        for (idx, state) in states.iter().enumerate() {
            let is_asked = running.iter().any(|(other, _)| keys[*other] == keys[idx]);
            if !self.known.contains_key(&keys[idx]) && !is_asked {
                match self.spec(&state.described) {
                    Some(spec) => running.push((idx, Arc::new(spec))),
                    None => {
                        self.known.insert(keys[idx].clone(), Vec::new());
                    }
                }
            }
        }
        // Descriptions that run side by side must have equal widths.
        let width = |spec: &ModelSpec| {
            let attention = spec.main_stack().first_attention();
            let d_heads = attention.map_or(0, |own| own.n_heads * own.d_head);
            (spec.d_model, d_heads, spec.d_vocab)
        };
        running.sort_by_key(|(idx, spec)| (width(spec), *idx));
        let alike = running.chunk_by(|(_, a), (_, b)| width(a) == width(b));
        for chunk in alike.flat_map(|alike| alike.chunks(AT_ONCE)) {
            let specs: Vec<Arc<ModelSpec>> = chunk.iter().map(|(_, spec)| spec.clone()).collect();
            let found = match self.losses(&specs) {
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Ok(found) => found,
                // One of them cannot run: run each alone to find out which.
                Err(_) => {
                    let mut all = Vec::new();
                    for spec in &specs {
                        match self.losses(std::slice::from_ref(spec)) {
                            Err(Error::Cancelled) => return Err(Error::Cancelled),
                            Ok(found) => all.extend(found),
                            Err(_) => all.push(Vec::new()),
                        }
                    }
                    all
                }
            };
            self.n_tried += chunk.len();
            for ((idx, _), loss) in chunk.iter().zip(found) {
                self.known.insert(keys[*idx].clone(), loss);
            }
        }
        for (state, key) in states.iter_mut().zip(&keys) {
            state.loss = self
                .known
                .get(key)
                .map_or(f64::INFINITY, |losses| mean(losses));
        }
        Ok(())
    }

    fn spec(&self, described: &Described) -> Option<ModelSpec> {
        let tensors = &self.checkpoint.tensors;
        let spec = described.spec(tensors).ok()?;
        let fits = spec.n_ctx.is_none_or(|n_ctx| n_ctx >= self.n_longest);
        (fits && spec.check_tensors(tensors).is_ok()).then_some(spec)
    }

    fn losses(&self, specs: &[Arc<ModelSpec>]) -> Result<Vec<Vec<f32>>> {
        let Some(first) = specs.first() else {
            return Ok(Vec::new());
        };
        let model = Model {
            checkpoint: self.checkpoint.clone(),
            spec: ModelSpec::clone(first),
        };
        let readings: Vec<Reading> = specs[1..].iter().cloned().map(Reading::of_spec).collect();
        let readings: Vec<&Reading> = readings.iter().collect();
        losses(self.ops, &model, self.texts, &readings, self.pace)
    }
}

pub fn none() -> Error {
    Error::Setting("no way to take the tensors gives a model that runs".to_owned())
}

/// Mean loss; infinite if it is not a number, or there are no losses.
pub fn mean(losses: &[f32]) -> f64 {
    let mean = mean_loss(losses);
    if mean.is_finite() {
        mean
    } else {
        f64::INFINITY
    }
}

/// Keeps the best distinct states; the first one of equal states.
pub fn keep(beam: &mut Vec<State>, mut states: Vec<State>, most: usize) {
    states.retain(|state| state.loss.is_finite());
    states.sort_by(|a, b| a.rank().total_cmp(&b.rank()));
    beam.clear();
    for state in states {
        if beam.len() == most {
            break;
        }
        // Two states with the same loss differ only in ways that the text does not show.
        let is_known = beam
            .iter()
            .any(|other| (other.loss - state.loss).abs() < 1e-9);
        if !is_known {
            beam.push(state);
        }
    }
}
