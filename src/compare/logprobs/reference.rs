//! What the model says of a side's tokens, and how far rounding moves that.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Input, Sequence};
use attnscope_run::readings::{Text, losses, rounded_readings};
use attnscope_run::{Progress, TokenLogProb, needs_next_tokens, token_logprobs};
use attnscope_spec::Model;

use super::scored::LogProbs;

/// A model that can be asked, and how.
pub struct Referee<'a, O> {
    pub ops: &'a O,
    pub model: &'a Model,
    pub pace: &'a dyn Pace,
}

/// The model's own log-probabilities of some prompts.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    /// [prompt][token]
    pub said: Vec<Vec<TokenLogProb>>,
    /// Scale of what bf16 does to each, in nats. // [prompt][token]
    pub(super) scales: Vec<Vec<f64>>,
    pub(super) is_measured: bool,
    /// [`lower_half`] of the draws themselves, as ratios to the scales.
    pub(super) usual_half: f64,
}

/// Mean of |values| over their lower half: what the quieter tokens have, whatever some of the others do.
pub(super) fn lower_half(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len().div_ceil(2);
    values[..n].iter().sum::<f64>() / n.max(1) as f64
}

/// [`lower_half`] of |normal noise|, in standard deviations.
const HALF_OF_NORMAL: f64 = 0.3247;

/// Likeliest tokens kept of each prediction: enough to see what a truncation keeps.
const N_TOP: usize = 256;

/// Draws of the rounding.
const N_DRAWS: u32 = 4;

/// Most tokens that are run side by side.
const MOST_TOGETHER: usize = 2048;

/// Scale of bf16 where it cannot be measured, in nats; and the least one, of the f32 arithmetic here.
const USUAL_SCALE: f64 = 0.01;
const LEAST_SCALE: f64 = 1e-4;

/// Refuses a model that cannot judge tables.
///
/// # Errors
/// When it does not predict the next token, or needs a source that no table has.
pub fn can_judge(model: &Model) -> Result<()> {
    needs_next_tokens(model)?;
    if model.spec.is_encoder_decoder() {
        let name = &model.checkpoint.name;
        let problem =
            format!("{name}: expected a decoder alone: a table has no source for an encoder");
        return Err(Error::Prompt(problem));
    }
    Ok(())
}

impl<O: Ops> Referee<'_, O> {
    /// Asks the model about every prompt of a table.
    ///
    /// # Errors
    /// When ids are missing or no tokens of the model, it cannot be run, or is stopped.
    pub fn ask(
        &self,
        table: &LogProbs,
        told: &mut dyn FnMut(usize, Progress),
    ) -> Result<Reference> {
        let model = self.model;
        can_judge(model)?;
        let mut all_ids = Vec::with_capacity(table.prompts.len());
        for prompt in &table.prompts {
            let expected =
                |what: String| Error::Prompt(format!("prompt {}: expected {what}", prompt.name));
            if prompt.lacks_context {
                let what = "the tokens before those that were written, found none: ask for the prompt's log-probabilities too (echo, prompt_logprobs, logprob_start_len=0)";
                return Err(expected(what.to_owned()));
            }
            let ids = prompt
                .ids()
                .ok_or_else(|| expected("the id of every token, found some without".to_owned()))?;
            let d_vocab = model.spec.d_vocab;
            if let Some(id) = ids.iter().find(|id| **id as usize >= d_vocab) {
                return Err(expected(format!(
                    "ids below {d_vocab}, the vocabulary of {}, found {id}",
                    model.checkpoint.name
                )));
            }
            if let Some(most) = model.spec.n_ctx.filter(|most| ids.len() > *most) {
                return Err(expected(format!(
                    "at most {most} tokens, the context of {}, found {}",
                    model.checkpoint.name,
                    ids.len()
                )));
            }
            all_ids.push(ids);
        }
        let mut reference = Reference {
            is_measured: can_be_read(model),
            usual_half: HALF_OF_NORMAL,
            ..Reference::default()
        };
        for (idx, ids) in all_ids.iter().enumerate() {
            let input = input(model, ids);
            let mut progress = |progress| told(idx, progress);
            let said = token_logprobs(
                self.ops,
                model,
                &input,
                (N_TOP, None),
                &mut progress,
                self.pace,
            )?;
            reference.scales.push(vec![USUAL_SCALE; said.len()]);
            reference.said.push(said);
        }
        if reference.is_measured {
            self.measure(&all_ids, &mut reference)?;
        }
        Ok(reference)
    }

    /// Measures what rounding does to every token.
    fn measure(&self, all_ids: &[Vec<u32>], reference: &mut Reference) -> Result<()> {
        let draws = rounded_readings(N_DRAWS);
        let draws: Vec<_> = draws.iter().collect();
        let mut ratios = Vec::new();
        for prompts in groups(all_ids) {
            let ids = prompts.clone().map(|idx| all_ids[idx].clone());
            let texts: Vec<Text> = ids.map(|ids| Text::whole(&self.model.spec, ids)).collect();
            let all = losses(self.ops, self.model, &texts, &draws, self.pace)?;
            let mut at = 0;
            for prompt_idx in prompts.clone() {
                let scales = &mut reference.scales[prompt_idx];
                for scale in scales.iter_mut().skip(1) {
                    let apart = all[1..].iter().map(|draw| f64::from(draw[at] - all[0][at]));
                    let square = apart.map(|apart| apart * apart).sum::<f64>() / f64::from(N_DRAWS);
                    *scale = square.sqrt();
                    at += 1;
                }
                smooth(scales);
            }
            let scales = prompts.flat_map(|idx| reference.scales[idx][1..].iter());
            for (at, scale) in scales.enumerate() {
                let apart = all[1..]
                    .iter()
                    .map(|draw| f64::from(draw[at] - all[0][at]).abs());
                ratios.extend(
                    apart
                        .map(|apart| apart / scale)
                        .filter(|ratio| ratio.is_finite()),
                );
            }
        }
        if !ratios.is_empty() {
            reference.usual_half = lower_half(ratios);
        }
        Ok(())
    }
}

/// A few draws say little of one token: its scale is that of its neighbourhood where its own is smaller.
fn smooth(scales: &mut [f64]) {
    const REACH: usize = 4;
    let own = scales.to_vec();
    for (idx, scale) in scales.iter_mut().enumerate() {
        let around = &own[idx.saturating_sub(REACH)..(idx + REACH + 1).min(own.len())];
        let mean = around.iter().sum::<f64>() / around.len() as f64;
        // NaN stays out of it: a token without a number has no scale.
        *scale = own[idx].max(0.5 * mean).max(LEAST_SCALE);
    }
}

/// Whether readings can run a model.
pub(super) fn can_be_read(model: &Model) -> bool {
    let has_recurrence = model
        .spec
        .stacks
        .iter()
        .any(|stack| stack.recurrence().is_some());
    !has_recurrence && !model.spec.is_encoder_decoder()
}

/// Prompts in groups that run side by side.
fn groups(all_ids: &[Vec<u32>]) -> Vec<std::ops::Range<usize>> {
    let mut groups = Vec::new();
    let (mut first, mut n) = (0, 0);
    for (idx, ids) in all_ids.iter().enumerate() {
        if idx > first && n + ids.len() > MOST_TOGETHER {
            groups.push(first..idx);
            (first, n) = (idx, 0);
        }
        n += ids.len();
    }
    groups.push(first..all_ids.len());
    groups.retain(|group| !group.is_empty());
    groups
}

/// A run's input from ids alone.
fn input(model: &Model, ids: &[u32]) -> Input {
    Input {
        source: None,
        sequence: Sequence {
            tokens: ids.to_vec(),
            positions: model.spec.positions.positions(ids, None),
            ..Sequence::default()
        },
    }
}
