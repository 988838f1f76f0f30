//! Attention rollout (Abnar and Zuidema 2020): how much of every input token has reached a position after some layers, assuming
//! that attention and the residual each carry half.

use std::sync::{Mutex, PoisonError};

use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::{Matrix, MatrixMut, Threads, product};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input};
use attnscope_run::{Recorded, Tap};
use attnscope_spec::{BlockSpec, FirstRows, Model, Place, Stack};
use rayon::prelude::*;

use super::capture::{of_blocks, sequence_of};
use super::watched::run_watched;

/// Longest text: three matrices over all pairs of tokens take at most 1 GiB.
const MOST_TOKENS: usize = 8192;

/// Rollout of one stack.
#[derive(Debug, Clone)]
pub struct Rollout {
    pub stack: Stack,
    /// Whether queries see only earlier tokens: rollout then concentrates on the first token, whatever the model does.
    pub is_causal: bool,
    pub n_tokens: usize,
    /// Share of every token that has reached each requested position, after each layer. // [layer][position][token]
    pub layers: Vec<Vec<Vec<f32>>>,
    /// Mean over all real positions, after each layer. // [layer][token]
    pub means: Vec<Vec<f32>>,
}

/// Probabilities are rounded to multiples of 1/`GRID` before summing: sums below 2¹³ are then exact in any order of heads.
const GRID: f64 = (1u64 << 40) as f64;

/// Sum of all heads' patterns in the current layer.
struct Sum {
    n: usize,
    // [query, key]
    values: Mutex<Vec<f64>>,
}

impl BlockSink for Sum {
    fn block(&self, _: usize, first_query: usize, _: &[f32], pattern: &[f32]) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let to = &mut values[first_query * self.n..][..pattern.len()];
        let on_grid = |p: &f32| (f64::from(*p) * GRID).round() / GRID;
        to.iter_mut()
            .zip(pattern)
            .for_each(|(to, p)| *to += on_grid(p));
    }
}

struct Rolling<'a> {
    input: &'a Input,
    positions: &'a [usize],
    sum: Sum,
    /// [position, token]
    rolled: Vec<f32>,
    stacks: Vec<Rollout>,
    /// Stack and number of the current layer, if the layer has heads.
    at: Option<(Stack, usize)>,
    causal: Vec<(Stack, bool)>,
    /// Layers whose tokens before a picture's patches share the mean of what all of them get, and the number of these tokens.
    averaged: (Vec<(Stack, usize)>, usize),
}

impl<'a> Rolling<'a> {
    fn new(input: &'a Input, positions: &'a [usize], causal: Vec<(Stack, bool)>) -> Result<Self> {
        let longest = input.source.as_ref().map_or(0, |source| source.len());
        let longest = longest.max(input.sequence.len());
        if longest > MOST_TOKENS {
            let problem = format!(
                "rollout multiplies matrices of all pairs of tokens: expected at most {MOST_TOKENS} tokens, found {longest}"
            );
            return Err(Error::Prompt(problem));
        }
        Ok(Self {
            input,
            positions,
            sum: Sum {
                n: 0,
                values: Mutex::default(),
            },
            rolled: Vec::new(),
            stacks: Vec::new(),
            at: None,
            causal,
            averaged: (Vec::new(), 0),
        })
    }

    fn begin(&mut self, stack: Stack) {
        let n = sequence_of(self.input, stack).len();
        self.sum.n = n;
        self.sum.values = Mutex::new(vec![0.0; n * n]);
        self.rolled = vec![0.0; n * n];
        (0..n).for_each(|idx| self.rolled[idx * (n + 1)] = 1.0);
        let known = self.causal.iter().find(|(known, _)| *known == stack);
        self.stacks.push(Rollout {
            stack,
            is_causal: known.is_some_and(|(_, is_causal)| *is_causal),
            n_tokens: n,
            layers: Vec::new(),
            means: Vec::new(),
        });
    }
}

impl Tap for Rolling<'_> {
    fn wants(&self, stack: Stack, _: usize, hook: Hook) -> bool {
        stack != Stack::Cross && hook == Hook::ResidPre
    }

    fn values(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        _: Hook,
        _: &[f32],
        _: usize,
    ) -> Result<()> {
        if layer_idx == 0 {
            self.begin(stack);
        }
        self.at = Some((stack, layer_idx));
        Ok(())
    }

    fn blocks(&self, stack: Stack, _: usize) -> Option<&dyn BlockSink> {
        (stack != Stack::Cross).then_some(&self.sum as &dyn BlockSink)
    }

    fn end_of_layer(&mut self) -> Result<()> {
        let (Some(at), Some(last)) = (self.at.take(), self.stacks.last_mut()) else {
            return Ok(());
        };
        let stack = at.0;
        let n = self.sum.n;
        let sum = self
            .sum
            .values
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if self.averaged.0.contains(&at) {
            average(sum, n, self.averaged.1);
        }
        // (W + I) / row sum, where W is the mean of all heads: ½W + ½I if rows sum to 1.
        let mut halves = vec![0.0f32; sum.len()];
        halves
            .par_chunks_mut(n.max(1))
            .zip(sum.par_chunks(n.max(1)))
            .enumerate()
            .for_each(|(idx, (halves, row))| {
                let total: f64 = row.iter().sum();
                if total > 0.0 {
                    let pairs = halves.iter_mut().zip(row);
                    pairs.for_each(|(half, value)| *half = (0.5 * value / total) as f32);
                    halves[idx] += 0.5;
                } else {
                    halves[idx] = 1.0;
                }
            });
        let mut next = vec![0.0; n * n];
        product(
            &mut MatrixMut::new(&mut next, n, n, n),
            Matrix::row_major(&halves, n, n),
            Matrix::row_major(&self.rolled, n, n),
            false,
            Threads::Pool,
        );
        self.rolled = next;
        sum.fill(0.0);
        let row = |idx: usize| self.rolled[idx * n..(idx + 1) * n].to_vec();
        let here = self.positions.iter().filter(|idx| **idx < n);
        last.layers.push(here.map(|idx| row(*idx)).collect());
        let sequence = sequence_of(self.input, stack);
        let real: Vec<usize> = (0..n).filter(|idx| sequence.is_real(*idx)).collect();
        let mut mean = vec![0.0f32; n];
        for idx in &real {
            let row = &self.rolled[idx * n..(idx + 1) * n];
            mean.iter_mut()
                .zip(row)
                .for_each(|(sum, value)| *sum += value / real.len() as f32);
        }
        last.means.push(mean);
        Ok(())
    }
}

/// The layers of a model whose tokens before a picture's patches share the mean of what they get, and the number of these tokens.
fn averaged(model: &Model) -> (Vec<(Stack, usize)>, usize) {
    let patches = model.spec.main_stack().embed.patches.as_ref();
    let layers = model.spec.stacks.iter().flat_map(|stack| {
        let blocks = stack.blocks().iter().enumerate();
        let averages = |block: &BlockSpec| {
            let own = block.own();
            own.is_some_and(|own| own.projections.firsts == FirstRows::Averaged)
        };
        let averaged = blocks.filter(move |(_, block)| averages(block));
        averaged.map(|(layer_idx, _)| (stack.stack, layer_idx))
    });
    let n_first = patches.map_or(0, |patches| patches.n_first());
    (layers.collect(), n_first)
}

/// Puts the mean of the first rows in the place of each of them. // sums: [query, key]
fn average(sums: &mut [f64], n_keys: usize, n_first: usize) {
    let n = (n_first * n_keys).min(sums.len());
    let rows = &mut sums[..n];
    for key in 0..n_keys {
        let own = rows.iter().skip(key).step_by(n_keys);
        let mean = own.sum::<f64>() / n_first.max(1) as f64;
        let own = rows.iter_mut().skip(key).step_by(n_keys);
        own.for_each(|value| *value = mean);
    }
}

/// Computes the rollout of every stack, with whole rows for some positions.
///
/// # Errors
/// When a text is too long, a layer is not a block, or the model cannot run.
pub fn rollout<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    positions: &[usize],
    pace: &dyn Pace,
) -> Result<Vec<Rollout>> {
    of_blocks(model)?;
    let stacks = model.spec.stacks.iter();
    let causal = stacks.map(|stack| {
        let attention = stack.first_attention();
        let is_causal = attention.is_some_and(|attention| attention.mask.causal);
        (stack.stack, is_causal)
    });
    let mut rolling = Rolling::new(input, positions, causal.collect())?;
    rolling.averaged = averaged(model);
    run_watched(ops, model, input, &mut rolling, pace)?;
    Ok(rolling.stacks)
}

/// Computes the rollout of every stack of a run that other code made, from the layers that were recorded.
///
/// # Errors
/// When a text is too long, or the patterns of a layer are not there for all pairs of its tokens.
pub fn rollout_recorded(
    recorded: &Recorded,
    input: &Input,
    positions: &[usize],
) -> Result<Vec<Rollout>> {
    let mut grids = recorded.shape();
    grids.retain(|grid| grid.stack != Stack::Cross);
    let is_causal = |stack: Stack| {
        let attention = recorded.attention(stack, 0);
        attention.is_some_and(|attention| attention.mask.causal)
    };
    let causal = grids.iter().map(|grid| (grid.stack, is_causal(grid.stack)));
    let mut rolling = Rolling::new(input, positions, causal.collect())?;
    for grid in &grids {
        let n = sequence_of(input, grid.stack).len();
        for layer_idx in 0..grid.n_heads.len() {
            let heads = recorded.patterns(grid.stack, layer_idx)?;
            let [n_heads, n_queries, n_keys] = heads.dims;
            if [n_queries, n_keys] != [n, n] {
                let place = Place::layer(grid.stack, layer_idx);
                let problem = format!(
                    "rollout: {place} has patterns of {n_queries} queries and {n_keys} keys; expected {n} of both, one for each token"
                );
                return Err(Error::Prompt(problem));
            }
            rolling.values(grid.stack, layer_idx, Hook::ResidPre, &[], 0)?;
            (0..n_heads).for_each(|head_idx| {
                rolling.sum.block(head_idx, 0, &[], heads.head(head_idx));
            });
            rolling.end_of_layer()?;
        }
    }
    Ok(rolling.stacks)
}
