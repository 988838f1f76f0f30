//! Why a side departs: which change of the model, or of its numbers, gives what the side has.
//!
//! Each explanation is judged by the share of Σ|difference| that it takes away. It is a cause if that is four fifths, or if what it leaves is
//! no more than rounding: small departures of a program in 16-bit arithmetic stand in noise that no explanation takes away.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

use super::between::gap;
use super::floor::{Level, MARGIN};
use super::reference::{Referee, Reference, can_be_read};
use super::scored::LogProbs;
use super::side::{
    First, Judge, Pair, SideJudgement, excused, pairs, standing, standing_at, tolerance,
};
use super::spending::Spending;
use super::transformed::transformed;
use super::tried::{Searched, Tried, explained};

/// What explains a departure.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// What the side is, or what its numbers are.
    pub reading: String,
    /// Whether it is of the side's numbers alone, and no change of the model.
    pub is_of_numbers: bool,
    /// What to set or do, if there are words for it.
    pub advice: String,
    /// Share of Σ|difference| that it takes away.
    pub explains: f64,
    /// Whether what it leaves is no more than rounding.
    pub leaves_rounding: bool,
    /// First token that it moves beyond rounding.
    pub first: Option<First>,
    /// Others that explain as much.
    pub rivals: Vec<String>,
}

/// What was tried.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Search {
    pub n_tried: usize,
    /// Readings that were not tried, since another one explains almost everything or a search may not cost more.
    pub n_left_out: usize,
    /// The best of those that do not explain enough, with its share.
    pub best: Option<(String, f64)>,
    /// Roundings of weights or of the cache that leave no more than 16-bit arithmetic does, but take too little away to be a cause: the best
    /// first.
    pub like: Vec<String>,
    /// Why readings of the model were not tried, if so.
    pub not_tried: Option<String>,
}

/// Share from which an explanation is a cause.
pub(super) const EXPLAINS: f64 = 0.8;

/// A share so near to the best that the two cannot be told apart.
pub(super) const NEAR: f64 = 0.01;

impl<O: Ops> Referee<'_, O> {
    /// Looks for what explains a side that departs.
    ///
    /// # Errors
    /// When the model cannot be run, or the work is stopped.
    pub(super) fn explain(
        &self,
        (table, reference): (&LogProbs, &Reference),
        judge: &Judge<'_>,
        judged: &mut SideJudgement,
        told: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let pairs = pairs(table, reference);
        let mut tried: Vec<Tried> = transformed(&pairs, reference)
            .into_iter()
            .map(|found| Tried::of_numbers(&pairs, found))
            .collect();
        let mut search = Search::default();
        if can_be_read(self.model) {
            let best = tried.iter().map(|one| one.explains).fold(0.0, f64::max);
            if best < 1.0 - NEAR {
                let searched = Searched {
                    table,
                    judged,
                    pairs: &pairs,
                    bf16: judge.floor.bf16,
                };
                let mut spending = Spending::new(self.model.spec.n_multiplications());
                tried.extend(self.read(&searched, &mut spending, told)?);
                search.n_left_out = spending.n_left_out;
            }
        } else {
            search.not_tried = Some(
                "readings are of decoders made of blocks: recurrent networks and encoder–decoders have none"
                    .to_owned(),
            );
        }
        search.n_tried = tried.len();
        tried.sort_by(|a, b| b.rank().total_cmp(&a.rank()));
        let best = tried.first().filter(|one| one.explains > 0.0);
        let leaves = best.is_some_and(|best| leaves_rounding(&pairs, &best.values, judge));
        match best {
            Some(best) if best.explains >= EXPLAINS || leaves => {
                let near = tried[1..].iter();
                let near = near.filter(|one| {
                    one.explains >= best.explains - NEAR && one.is_fitted <= best.is_fitted
                });
                let rivals = near.map(|one| one.name.clone()).take(3).collect();
                judged.cause = Some(cause(best, (table, &pairs), leaves, rivals));
                if best.name == F16_CACHE && judge.floor.given.is_none() {
                    judged.keep_within(F16_CACHE);
                }
            }
            Some(best) => search.best = Some((best.name.clone(), best.explains)),
            None => {}
        }
        if judged.within.is_some() {
            return Ok(());
        }
        if judged.cause.is_none()
            && let Some(standing) = excused(&pairs, judge, judged.level)
        {
            judged.excuse(&standing);
            return Ok(());
        }
        if judged.cause.is_none() {
            let roundings = roundings(&pairs, &tried, judge);
            // Programs that keep weights in few bits often round what they multiply them with too.
            match roundings.first().filter(|one| one.explains >= MOSTLY) {
                Some(one) => judged.cause = Some(cause(one, (table, &pairs), true, Vec::new())),
                None => {
                    let names = roundings.iter().map(|one| one.name.clone());
                    search.like = names.take(MOST_LIKE).collect();
                }
            }
        }
        judged.search = Some(search);
        Ok(())
    }
}

/// What an engine with a cache in f16 rounds, as it does unless it is told otherwise.
const F16_CACHE: &str = "kv=f16";

/// Least share of Σ|difference| that a rounding takes away from a side that it may be, and from one whose cause it is.
const LIKE: f64 = 0.1;
const MOSTLY: f64 = 0.5;

/// Most roundings that are named.
const MOST_LIKE: usize = 3;

/// Roundings of weights or the cache that leave nothing but arithmetic in 16 bits and the same rounding of numbers that this arithmetic
/// moved. `tried` is in descending order.
fn roundings<'a>(pairs: &[Pair], tried: &'a [Tried], judge: &Judge<'_>) -> Vec<&'a Tried> {
    let rounds = |one: &&Tried| {
        let is_whole = one.reading.as_ref().is_some_and(|reading| reading.rounds());
        is_whole && !one.is_fitted && one.explains >= LIKE
    };
    let leaves = |one: &&Tried| {
        let left = rounded_again(pairs, &one.values);
        !standing_at(Level::Bf16, &left, judge).departs
    };
    tried.iter().filter(rounds).filter(leaves).collect()
}

/// Pairs as they are if a rounding holds, with what it does to the tokens around one as a part of the token's scale: moved by a little, a
/// number falls to another of its neighbours.
fn rounded_again(pairs: &[Pair], values: &[Option<f64>]) -> Vec<Pair> {
    const REACH: usize = 4;
    let moved = pairs.iter().zip(values);
    let moved = moved.map(|(pair, value)| value.map_or(0.0, |value| gap(pair.model, value)));
    let squares: Vec<f64> = moved.map(|moved| moved * moved).collect();
    let mut left = without(pairs, values);
    for (idx, pair) in left.iter_mut().enumerate() {
        let around = &squares[idx.saturating_sub(REACH)..(idx + REACH + 1).min(squares.len())];
        let mean = around.iter().sum::<f64>() / around.len() as f64;
        pair.scale = pair.scale.hypot(mean.sqrt() / MARGIN);
    }
    left
}

/// An explanation as the cause.
fn cause(
    of: &Tried,
    (table, pairs): (&LogProbs, &[Pair]),
    leaves_rounding: bool,
    rivals: Vec<String>,
) -> Cause {
    Cause {
        reading: of.name.clone(),
        is_of_numbers: of.reading.is_none() && of.is_of_numbers,
        advice: of.advice.clone(),
        explains: of.explains,
        leaves_rounding,
        first: first_moved(pairs, of).map(|pair| First {
            prompt: table.prompts[pair.at.prompt_idx].name.clone(),
            position: pair.at.idx,
        }),
        rivals,
    }
}

/// Pairs as they are if an explanation holds.
fn without(pairs: &[Pair], values: &[Option<f64>]) -> Vec<Pair> {
    let each = pairs.iter().zip(values).map(|(pair, value)| Pair {
        model: value.unwrap_or(pair.model),
        ..*pair
    });
    each.collect()
}

/// The first token that an explanation moves.
fn first_moved<'a>(pairs: &'a [Pair], tried: &Tried) -> Option<&'a Pair> {
    let moves = |(pair, value): &(&Pair, &Option<f64>)| {
        value.is_some_and(|value| gap(pair.model, value).abs() > tolerance(pair, Level::F32, 0.0))
    };
    let moved = pairs.iter().zip(&tried.values).filter(moves);
    let first = moved.min_by_key(|(pair, _)| (pair.at.idx, pair.at.prompt_idx));
    first.map(|(pair, _)| pair)
}

/// Whether an explanation takes away most of what is beyond rounding, and leaves nothing that is.
fn leaves_rounding(pairs: &[Pair], values: &[Option<f64>], judge: &Judge<'_>) -> bool {
    let beyond = standing(pairs, judge).beyond;
    let some: Vec<Pair> = beyond.iter().map(|idx| pairs[*idx]).collect();
    let of_some: Vec<Option<f64>> = beyond.iter().map(|idx| values[*idx]).collect();
    let left = without(pairs, values);
    explained(&some, &of_some) >= EXPLAINS && !standing(&left, judge).departs
}
