//! Log-probabilities of a prompt's own tokens: what a model says of each token, from the tokens before it.

use std::ops::ControlFlow;

use attnscope_checks::stats::LayerReport;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::logit_row::LogitRow;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input, Unembedding};
use attnscope_spec::{Model, Stack};
use rayon::prelude::*;

use super::job::Options;
use super::observer::{Observer, Progress};
use super::pass::targets;
use super::pipeline::run;
use super::tap::Tap;

/// Most logits held at once: 64 MiB.
const MOST_VALUES: usize = 16 << 20;

/// What a model says of one token.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenLogProb {
    pub id: u32,
    /// ln p of the token given all before it, in nats; `None` for the first token, and beside padding.
    pub logprob: Option<f64>,
    /// 1 for the likeliest token: one more than the number of tokens that are likelier than this one.
    pub rank: Option<u32>,
    /// Entropy of the prediction, in nats.
    pub entropy: Option<f64>,
    /// The likeliest tokens and their ln p, in descending order.
    pub top: Vec<(u32, f64)>,
}

/// Receives whole distributions: the index of a position, and ln p of every token that may follow it. // [d_vocab]
pub type Distributions<'a> = &'a mut dyn FnMut(usize, &[f32]) -> Result<()>;

/// Refuses a model that has no log-probabilities of a prompt's tokens.
///
/// # Errors
/// Why it has none.
pub fn needs_next_tokens(model: &Model) -> Result<()> {
    let spec = &model.spec;
    let why = match &spec.head {
        None => "it has no language-model head",
        Some(head) if head.labels.is_some() => "its head predicts labels",
        Some(_) if !spec.is_causal_lm => {
            "it sees the tokens that it predicts, so that they have no log-probability from what stands before them"
        }
        Some(_) => return Ok(()),
    };
    let name = &model.checkpoint.name;
    let problem = format!("{name}: expected a model that predicts the next token: {why}");
    Err(Error::Prompt(problem))
}

/// Computes what a model says of every token of a prompt, with the `n_top` likeliest tokens of each prediction. `full` receives
/// whole distributions in the order of positions.
///
/// # Errors
/// When the model predicts no next tokens, cannot be run, is stopped, or `full` fails.
pub fn token_logprobs<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    (n_top, mut full): (usize, Option<Distributions<'_>>),
    told: &mut dyn FnMut(Progress),
    pace: &dyn Pace,
) -> Result<Vec<TokenLogProb>> {
    needs_next_tokens(model)?;
    let no_head = || Error::Prompt("the model has no head to predict with".to_owned());
    let head = model.spec.head.as_ref().ok_or_else(no_head)?;
    let mut last = LastHidden::default();
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    let mut observer = Telling(told);
    run(
        ops,
        model,
        input,
        options,
        &mut observer,
        Some(&mut last),
        pace,
    )?;
    let sequence = &input.sequence;
    let n = sequence.len();
    let targets = targets(&model.spec, sequence);
    let is_asked = |idx: usize| sequence.is_real(idx) && sequence.is_real(idx + 1);
    let width = last.values.len() / n.max(1);
    let d_vocab = head.unembed.n_out();
    let n_at_once = (MOST_VALUES / d_vocab.max(1)).max(1);
    let mut found = vec![TokenLogProb::default(); n];
    for (token, id) in found.iter_mut().zip(&sequence.tokens) {
        token.id = *id;
    }
    let n_predicting = if full.is_some() {
        n
    } else {
        n.saturating_sub(1)
    };
    for first in (0..n_predicting).step_by(n_at_once) {
        let positions = first..(first + n_at_once).min(n_predicting);
        let rows = &last.values[positions.start * width..positions.end * width];
        let mut hidden = O::Buffer::default();
        ops.put(rows, width, &mut hidden)?;
        let mut logits = vec![0.0f32; positions.len() * d_vocab]; // [position, d_vocab]
        let mut unembedding = Unembedding::new(ops, model, head, &hidden, positions.len(), pace)?;
        for range in unembedding.ranges() {
            let chunk = unembedding.logits(range.clone())?; // [position, range]
            let rows = logits.chunks_mut(d_vocab).zip(chunk.chunks(range.len()));
            rows.for_each(|(row, chunk)| row[range.clone()].copy_from_slice(chunk));
        }
        let judged: Vec<Option<TokenLogProb>> = logits
            .par_chunks(d_vocab)
            .zip(positions.clone())
            .map(|(row, idx)| {
                let target = targets[idx].filter(|_| is_asked(idx))?;
                Some(TokenLogProb::of_logits(row, target, n_top))
            })
            .collect();
        for (idx, token) in positions.clone().zip(judged) {
            if let Some(token) = token {
                found[idx + 1] = token;
            }
        }
        if let Some(full) = &mut full {
            logits.par_chunks_mut(d_vocab).for_each(normalise);
            for (idx, row) in positions.zip(logits.chunks(d_vocab)) {
                full(idx, row)?;
            }
        }
    }
    Ok(found)
}

/// ln Σ e^logit, summed in f64 since these values are what other programs are judged by. NaN if any logit is.
fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !max.is_finite() {
        return f64::from(row.iter().sum::<f32>());
    }
    let max = f64::from(max);
    let sum: f64 = row
        .iter()
        .map(|logit| (f64::from(*logit) - max).exp())
        .sum();
    max + sum.ln()
}

impl TokenLogProb {
    /// What logits say of a token, with the `n_top` likeliest ones. // row: [d_vocab]
    pub fn of_logits(row: &[f32], id: u32, n_top: usize) -> Self {
        let mut scan = LogitRow::new(None, n_top);
        scan.add(&(0..row.len()), row);
        let total = log_sum_exp(row);
        let own = row.get(id as usize).copied().unwrap_or(f32::NAN);
        let better = row.iter().filter(|logit| **logit > own).count();
        let term = |logit: &f32| {
            let log = f64::from(*logit) - total;
            if log == f64::NEG_INFINITY {
                0.0
            } else {
                -log.exp() * log
            }
        };
        let top = scan.top().iter();
        Self {
            id,
            logprob: Some(f64::from(own) - total),
            rank: Some(better as u32 + 1),
            entropy: Some(row.iter().map(term).sum()),
            top: top
                .map(|(id, logit)| (*id, f64::from(*logit) - total))
                .collect(),
        }
    }
}

/// Turns logits into log-probabilities.
fn normalise(row: &mut [f32]) {
    let total = log_sum_exp(row);
    row.iter_mut()
        .for_each(|logit| *logit = (f64::from(*logit) - total) as f32);
}

/// Keeps what the head reads.
#[derive(Default)]
struct LastHidden {
    /// [position, d_model]
    values: Vec<f32>,
}

impl Tap for LastHidden {
    fn wants(&self, _: Stack, _: usize, _: Hook) -> bool {
        false
    }

    fn values(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    fn wants_hidden(&self) -> bool {
        true
    }

    fn hidden(&mut self, values: &[f32]) {
        self.values = values.to_vec();
    }
}

/// Passes progress on, and nothing else.
struct Telling<'a>(&'a mut dyn FnMut(Progress));

impl Observer for Telling<'_> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        (self.0)(progress);
        ControlFlow::Continue(())
    }

    fn layer(&mut self, _: LayerReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_rank_entropy_and_the_likeliest_tokens() {
        let row = [1.0f32, 3.0, 2.0, f32::NEG_INFINITY];
        let found = TokenLogProb::of_logits(&row, 2, 2);
        let sum: f64 = [1.0f64, 3.0, 2.0].iter().map(|v| v.exp()).sum();
        assert!((found.logprob.expect("a value") - (2.0 - sum.ln())).abs() < 1e-12);
        assert_eq!(found.rank, Some(2));
        let p = [1.0f64, 3.0, 2.0].map(|v| v.exp() / sum);
        let entropy: f64 = p.iter().map(|p| -p * p.ln()).sum();
        assert!((found.entropy.expect("a value") - entropy).abs() < 1e-12);
        assert_eq!(
            found.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            [1, 2]
        );
        assert!(
            TokenLogProb::of_logits(&[f32::NAN, 0.0], 1, 0)
                .logprob
                .expect("a value")
                .is_nan()
        );
    }
}
