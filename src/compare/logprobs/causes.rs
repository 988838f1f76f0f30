//! Why a side departs: which change of the model, or of its numbers, gives what the side has.
//!
//! Each explanation is judged by the share of Σ|difference| that it takes away. It is a cause if that is four fifths, or if what it leaves is
//! no more than rounding: small departures of a program in 16-bit arithmetic stand in noise that no explanation takes away.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

use super::between::gap;
use super::floor::Level;
use super::reference::{Referee, Reference, can_be_read};
use super::scored::LogProbs;
use super::side::{First, Judge, Pair, SideJudgement, excused, pairs, standing, tolerance};
use super::transformed::transformed;
use super::tried::{Tried, explained};

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
    /// The best of those that do not explain enough, with its share.
    pub best: Option<(String, f64)>,
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
                tried.extend(self.read((table, judged), &pairs, told)?);
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
                judged.cause = Some(Cause {
                    reading: best.name.clone(),
                    is_of_numbers: best.reading.is_none() && best.is_of_numbers,
                    advice: best.advice.clone(),
                    explains: best.explains,
                    leaves_rounding: leaves,
                    first: first_moved(&pairs, best).map(|pair| First {
                        prompt: table.prompts[pair.at.prompt_idx].name.clone(),
                        position: pair.at.idx,
                    }),
                    rivals: near.map(|one| one.name.clone()).take(3).collect(),
                });
            }
            Some(best) => search.best = Some((best.name.clone(), best.explains)),
            None => {}
        }
        if judged.cause.is_none()
            && let Some(standing) = excused(&pairs, judge, judged.level)
        {
            judged.excuse(&standing);
            return Ok(());
        }
        judged.search = Some(search);
        Ok(())
    }
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
    let left: Vec<Pair> = pairs
        .iter()
        .zip(values)
        .map(|(pair, value)| Pair {
            model: value.unwrap_or(pair.model),
            ..*pair
        })
        .collect();
    explained(&some, &of_some) >= EXPLAINS && !standing(&left, judge).departs
}
