//! Retrieval heads (Wu et al. 2024), which copy a needle's tokens from far away, measured on random tokens; and streaming
//! heads, which need only the first and the nearest tokens.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};

use attnscope_checks::stats::LayerReport;
use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input, Sequence};
use attnscope_run::{Job, Observer, Options, Progress, Tap, run_all};
use attnscope_spec::{BlockSpec, Model, Place, Stack};

/// Number of tokens in a prompt, unless the context is shorter.
const N_TOKENS: usize = 256;

/// Tokens of a needle: `N_NAME` that name it, followed by `N_VALUES` to copy.
const N_NAME: usize = 2;

const N_VALUES: usize = 8;

/// Positions of needles in the haystack, as shares of its length.
const DEPTHS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Number of prompts at each depth.
const N_DRAWS: usize = 4;

const SEED: u64 = 0;

/// Number of leading tokens that streaming keeps (Xiao et al. 2024); the nearest 1/`NEAR_SHARE` of the context is near.
const N_SINKS: usize = 4;

const NEAR_SHARE: usize = 8;

/// Retrieval and streaming scores of one head.
#[derive(Debug, Clone)]
pub struct RetrievalHead {
    pub place: Place,
    /// Share of the needle's tokens that the model predicts while the head attends to them most; NaN without predictions.
    pub retrieval: f64,
    /// Share of the needle's tokens that the head attends to most before they are due, whatever the model predicts.
    pub looks: f64,
    /// `looks` for each depth.
    pub by_depth: Vec<f64>,
    /// Mean share of attention on the first and the nearest tokens, over queries in the second half.
    pub streaming: f64,
}

/// Scores of all heads, and the sizes that they were measured with.
#[derive(Debug, Clone)]
pub struct Retrieval {
    pub heads: Vec<RetrievalHead>,
    pub depths: Vec<f64>,
    pub n_tokens: usize,
    pub n_values: usize,
    pub n_prompts: usize,
    pub n_sinks: usize,
    pub n_near: usize,
    /// Share of the needle's tokens that the model predicts; `None` if it predicts no tokens.
    pub written: Option<f64>,
}

/// A prompt that hides a needle and asks for it at the end.
struct Hidden {
    tokens: Vec<u32>,
    /// Position where the value of the needle begins.
    value_at: usize,
    /// Queries at the end that predict the tokens of the value.
    queries: Range<usize>,
    depth_idx: usize,
}

impl Hidden {
    /// Key that holds the token to predict at a query.
    fn asked(&self, query_idx: usize) -> usize {
        self.value_at + query_idx - self.queries.start
    }

    fn draw(
        random: &mut fastrand::Rng,
        d_vocab: u32,
        (n, n_values): (usize, usize),
        depth_idx: usize,
    ) -> Self {
        let needle: Vec<u32> = random.choose_multiple(0..d_vocab, N_NAME + n_values);
        // The question is the name again, then the value without its last token.
        let question = &needle[..N_NAME + n_values - 1];
        let n_hay = n - needle.len() - question.len();
        let at = (DEPTHS[depth_idx] * n_hay as f64).round() as usize;
        let mut hay = Vec::with_capacity(n_hay);
        while hay.len() < n_hay {
            let token = random.u32(0..d_vocab);
            // Tokens of the needle occur nowhere else.
            if !needle.contains(&token) {
                hay.push(token);
            }
        }
        let tokens = [&hay[..at], &needle, &hay[at..], question].concat();
        Self {
            value_at: at + N_NAME,
            queries: n - n_values..n,
            tokens,
            depth_idx,
        }
    }
}

/// Counts of one head on one prompt.
#[derive(Debug, Clone)]
struct Count {
    /// Whether the head attends most to the token to predict. // [value]
    hits: Vec<bool>,
    /// Share of attention on near keys: summed in order, since blocks come in any. // [query of the second half]
    near: Vec<f64>,
}

/// Observes one prompt.
struct Watch<'a> {
    hidden: &'a Hidden,
    n_near: usize,
    predicts: bool,
    now: Mutex<(Stack, usize)>,
    counts: Mutex<BTreeMap<(Stack, usize, usize), Count>>,
    /// Largest logit at each query of a value, and its token.
    best: Vec<(f32, u32)>,
}

impl BlockSink for Watch<'_> {
    fn block(&self, head_idx: usize, first_query: usize, _: &[f32], pattern: &[f32]) {
        let n = self.hidden.tokens.len();
        let (stack, layer_idx) = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts
            .entry((stack, layer_idx, head_idx))
            .or_insert_with(|| Count {
                hits: vec![false; self.hidden.queries.len()],
                near: vec![0.0; n - n / 2],
            });
        for (query_idx, row) in (first_query..).zip(pattern.chunks(n)) {
            if query_idx >= n / 2 {
                let is_near =
                    |key_idx: usize| key_idx < N_SINKS || query_idx < key_idx + self.n_near;
                let all = row.iter().enumerate();
                let (near, sum) = all.fold((0.0, 0.0), |(near, sum), (key_idx, p)| {
                    let p = f64::from(*p);
                    (if is_near(key_idx) { near + p } else { near }, sum + p)
                });
                count.near[query_idx - n / 2] = near / sum;
            }
            if self.hidden.queries.contains(&query_idx) {
                let most = row.iter().enumerate();
                let most = most.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
                let is_hit = most.is_some_and(|(key_idx, p)| {
                    key_idx == self.hidden.asked(query_idx) && *p > 0.0
                });
                count.hits[query_idx - self.hidden.queries.start] = is_hit;
            }
        }
    }
}

impl Tap for Watch<'_> {
    fn wants(&self, _: Stack, _: usize, hook: Hook) -> bool {
        self.predicts && hook == Hook::Logits
    }

    fn values(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    fn blocks(&self, stack: Stack, layer_idx: usize) -> Option<&dyn BlockSink> {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = (stack, layer_idx);
        Some(self)
    }

    fn logits(&mut self, range: Range<usize>, values: &[f32]) -> Result<()> {
        let rows = values.chunks(range.len().max(1));
        let asked = rows
            .skip(self.hidden.queries.start)
            .take(self.best.len())
            .zip(&mut self.best);
        for (row, best) in asked {
            for (token, logit) in range.clone().zip(row) {
                if *logit > best.0 {
                    *best = (*logit, token as u32);
                }
            }
        }
        Ok(())
    }
}

/// Ignores every layer's report.
struct Passing;

impl Observer for Passing {
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn layer(&mut self, _: LayerReport) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Lengths of prompts and values for a model; an error if it is not a decoder, or its context is too short.
fn sizes(model: &Model) -> Result<(usize, usize)> {
    let spec = &model.spec;
    let family = spec.family;
    let blocks = spec.main_stack().blocks().iter();
    let is_causal = blocks
        .filter_map(BlockSpec::attention)
        .any(|own| own.mask.causal);
    if !is_causal || spec.is_encoder_decoder() {
        let problem = format!(
            "{family}: needles are hidden before what asks for them; expected a causal model of one stack"
        );
        return Err(Error::Setting(problem));
    }
    let n = spec.n_ctx.map_or(N_TOKENS, |n_ctx| n_ctx.min(N_TOKENS));
    // At least half of the tokens are hay, and half of the vocabulary too.
    let of_context = (n / 4).saturating_sub(N_NAME);
    let of_vocabulary = (spec.d_vocab / 2).saturating_sub(N_NAME);
    let n_values = N_VALUES.min(of_context).min(of_vocabulary);
    if n_values < 2 {
        let problem = format!(
            "{family}: a context of {n} tokens and a vocabulary of {} leave no room for a needle",
            spec.d_vocab
        );
        return Err(Error::Setting(problem));
    }
    Ok((n, n_values))
}

/// Hides random needles at several depths, asks for them, and scores every head. The needle's value is fed token by token,
/// whatever the model predicts.
///
/// # Errors
/// When the model is not a single-stack decoder, its context is too short for a needle, or it cannot run.
pub fn retrieval<O: Ops>(ops: &O, model: &Model, pace: &dyn Pace) -> Result<Retrieval> {
    let (n, n_values) = sizes(model)?;
    let spec = &model.spec;
    let predicts = spec.head.as_ref().is_some_and(|head| head.labels.is_none());
    let mut random = fastrand::Rng::with_seed(SEED);
    let drawn = (0..N_DRAWS).flat_map(|_| 0..DEPTHS.len());
    let hidden: Vec<Hidden> = drawn
        .map(|depth_idx| Hidden::draw(&mut random, spec.d_vocab as u32, (n, n_values), depth_idx))
        .collect();
    let inputs: Vec<Input> = hidden
        .iter()
        .map(|hidden| Input {
            source: None,
            sequence: Sequence {
                positions: spec.positions.positions(&hidden.tokens, None),
                tokens: hidden.tokens.clone(),
                real: None,
                picture: None,
                ..Sequence::default()
            },
        })
        .collect();
    let n_near = (n / NEAR_SHARE).max(1);
    let mut watches: Vec<Watch<'_>> = hidden
        .iter()
        .map(|hidden| Watch {
            hidden,
            n_near,
            predicts,
            now: Mutex::new((Stack::Only, 0)),
            counts: Mutex::new(BTreeMap::new()),
            best: vec![(f32::NEG_INFINITY, u32::MAX); n_values],
        })
        .collect();
    let mut observers: Vec<Passing> = hidden.iter().map(|_| Passing).collect();
    let jobs = inputs.iter().zip(&mut observers).zip(&mut watches);
    let jobs = jobs.map(|((input, observer), watch)| Job {
        input,
        observer,
        tap: Some(watch),
    });
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    run_all(ops, model, jobs.collect(), options, pace)?;
    Ok(put_together(watches, (n, n_values, n_near)))
}

/// Sums the counts of all prompts.
fn put_together(
    watches: Vec<Watch<'_>>,
    (n, n_values, n_near): (usize, usize, usize),
) -> Retrieval {
    #[derive(Default)]
    struct Sums {
        hits: [usize; DEPTHS.len()],
        n: [usize; DEPTHS.len()],
        written: usize,
        near: f64,
        n_rows: usize,
    }
    let predicts = watches.first().is_some_and(|watch| watch.predicts);
    let n_prompts = watches.len();
    let (mut of_heads, mut n_written) = (BTreeMap::<_, Sums>::new(), 0);
    for watch in watches {
        let hidden = watch.hidden;
        let is_written = |value_idx: usize| {
            let token = hidden.tokens[hidden.value_at + value_idx];
            watch.best[value_idx].1 == token
        };
        n_written += (0..n_values).filter(|idx| is_written(*idx)).count();
        let counts = watch.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, count) in counts.iter() {
            let sums = of_heads.entry(*place).or_default();
            for (value_idx, is_hit) in count.hits.iter().enumerate() {
                sums.hits[hidden.depth_idx] += usize::from(*is_hit);
                sums.written += usize::from(*is_hit && is_written(value_idx));
                sums.n[hidden.depth_idx] += 1;
            }
            sums.near += count.near.iter().sum::<f64>();
            sums.n_rows += count.near.len();
        }
    }
    let share = |n: usize, of: usize| n as f64 / of as f64;
    let heads = of_heads.into_iter();
    let heads = heads.map(|((stack, layer_idx, head_idx), sums)| {
        let n_all = sums.n.iter().sum();
        let by_depth = sums.hits.iter().zip(&sums.n);
        RetrievalHead {
            place: Place::layer(stack, layer_idx).head(head_idx),
            retrieval: if predicts {
                share(sums.written, n_all)
            } else {
                f64::NAN
            },
            looks: share(sums.hits.iter().sum(), n_all),
            by_depth: by_depth.map(|(hits, n)| share(*hits, *n)).collect(),
            streaming: sums.near / sums.n_rows as f64,
        }
    });
    Retrieval {
        heads: heads.collect(),
        depths: DEPTHS.to_vec(),
        n_tokens: n,
        n_values,
        n_prompts,
        n_sinks: N_SINKS,
        n_near,
        written: predicts.then(|| share(n_written, n_prompts * n_values)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 64;

    /// Share of the value's tokens that a head with the given target keys attends to, by depth.
    fn looks(of: impl Fn(&Hidden, usize) -> usize) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(3);
        let all =
            (0..DEPTHS.len()).map(|depth_idx| Hidden::draw(&mut random, 400, (N, 6), depth_idx));
        let all: Vec<Hidden> = all.collect();
        let watch = |hidden| {
            let watch = Watch {
                hidden,
                n_near: 8,
                predicts: true,
                now: Mutex::new((Stack::Only, 0)),
                counts: Mutex::new(BTreeMap::new()),
                // The model predicts the right tokens.
                best: hidden
                    .queries
                    .clone()
                    .map(|query_idx| (0.0, hidden.tokens[hidden.asked(query_idx)]))
                    .collect(),
            };
            for query_idx in 0..N {
                let mut row = vec![0.1 / N as f32; N];
                row[of(hidden, query_idx)] += 0.9;
                watch.block(0, query_idx, &[], &row);
            }
            watch
        };
        let found = put_together(all.iter().map(watch).collect(), (N, 6, 8));
        assert_eq!(found.written, Some(1.0));
        let head = &found.heads[0];
        assert_eq!(head.retrieval, head.looks);
        head.by_depth.clone()
    }

    fn earlier(hidden: &Hidden, query_idx: usize) -> usize {
        let before = &hidden.tokens[..query_idx];
        let found = before
            .iter()
            .position(|token| *token == hidden.tokens[query_idx]);
        found.unwrap_or(query_idx)
    }

    #[test]
    fn a_head_that_attends_to_the_token_after_the_earlier_copy_is_found_at_every_depth() {
        let found = looks(|hidden, query_idx| (earlier(hidden, query_idx) + 1).min(N - 1));
        assert_eq!(found, [1.0; DEPTHS.len()]);
    }

    #[test]
    fn heads_that_attend_to_the_same_the_previous_or_the_first_token_are_not_found() {
        assert_eq!(looks(earlier), [0.0; DEPTHS.len()]);
        assert_eq!(
            looks(|_, query_idx| query_idx.saturating_sub(1)),
            [0.0; DEPTHS.len()]
        );
        assert_eq!(looks(|_, _| 0), [0.0; DEPTHS.len()]);
    }

    #[test]
    fn a_fixed_distance_finds_one_depth_at_most() {
        for distance in 1..N {
            let found = looks(|_, query_idx| query_idx.saturating_sub(distance));
            assert!(
                found.iter().filter(|share| **share > 0.2).count() <= 1,
                "{distance}: {found:?}"
            );
        }
    }
}
