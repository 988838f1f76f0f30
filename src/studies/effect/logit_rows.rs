//! Reads logits of many residuals at the same positions in chunks of the vocabulary: sums, likely tokens, ranks, divergence.

use std::ops::Range;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::simd::{Level, exp_sum};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Unembedding;
use attnscope_spec::{HeadSpec, Model};
use rayon::prelude::*;

use super::hidden::hidden_of;

/// Quantities to compute from the logits at some positions.
pub struct Wanted {
    /// Token whose logit is kept. // [position to read]
    pub targets: Vec<Option<u32>>,
    /// Number of most likely tokens to keep.
    pub n_top: usize,
    /// Whether to compute the ranks of the targets.
    pub ranks: bool,
}

/// Logits that other residuals are compared with, computed once.
pub struct Reference {
    /// [position]
    pub rows: Vec<Row>,
    /// [position, d_vocab]
    logits: Vec<f32>,
    d_vocab: usize,
}

/// Most numbers in a reference: 256 MiB.
pub const MOST_KEPT: usize = 64 << 20;

impl Reference {
    /// Computes and keeps the logits of one residual; `None` if they are too many.
    ///
    /// # Errors
    /// As for [`rows_of`].
    pub fn read<O: Ops>(
        ops: &O,
        model: &Model,
        head: &HeadSpec,
        (residual, positions): (&[f32], &[usize]),
        wanted: &Wanted,
        pace: &dyn Pace,
    ) -> Result<Option<Self>> {
        let d_vocab = head.unembed.n_out();
        if d_vocab * positions.len() > MOST_KEPT {
            return Ok(None);
        }
        let mut logits = vec![0.0; d_vocab * positions.len()];
        let mut keep = |range: &Range<usize>, chunk: &[f32]| {
            let rows = logits.chunks_mut(d_vocab.max(1));
            for (to, from) in rows.zip(chunk.chunks(range.len().max(1))) {
                to[range.clone()].copy_from_slice(from);
            }
        };
        let of = (&[residual][..], positions);
        let rows = read_rows(ops, model, head, of, (wanted, None), &mut keep, pace)?;
        Ok(Some(Self {
            rows,
            logits,
            d_vocab,
        }))
    }

    /// Takes logits that were computed elsewhere. // logits: [position, d_vocab]
    pub fn of_logits(logits: Vec<f32>, d_vocab: usize, wanted: &Wanted) -> Self {
        Self {
            rows: rows_of_logits(&logits, d_vocab, (wanted, None)),
            logits,
            d_vocab,
        }
    }

    /// Compares logits that were computed elsewhere with these. // logits: [position, d_vocab]
    pub fn compared(&self, logits: &[f32], wanted: &Wanted) -> Vec<Row> {
        rows_of_logits(logits, self.d_vocab, (wanted, Some(self)))
    }

    pub fn logit(&self, at: usize, token: u32) -> f32 {
        self.logits[at * self.d_vocab + token as usize]
    }

    fn of(&self, at: usize, range: &Range<usize>) -> &[f32] {
        &self.logits[at * self.d_vocab..][range.clone()]
    }
}

/// Values kept from one row of logits.
#[derive(Debug, Clone)]
pub struct Row {
    max: f32,
    /// Σ e^(logit − max).
    sum: f64,
    pub target: f32,
    /// Σ e^(first residual's logit − its largest) · (its logit − this logit), for the divergence.
    apart: f64,
    /// Most likely tokens with their logits.
    pub top: Vec<(u32, f32)>,
    /// Number of tokens whose logits exceed the target's, if ranks are wanted.
    pub n_above: usize,
}

const FRESH: Row = Row {
    max: f32::NEG_INFINITY,
    sum: 0.0,
    target: f32::NAN,
    apart: 0.0,
    top: Vec::new(),
    n_above: 0,
};

impl Row {
    fn add(&mut self, level: Level, range: &Range<usize>, logits: &[f32]) {
        let chunk = exp_sum(level, logits);
        let max = self.max.max(chunk.max);
        let scaled = |sum: f64, of: f32| match sum {
            0.0 => 0.0,
            sum => sum * f64::from(of - max).exp(),
        };
        self.sum = scaled(self.sum, self.max) + scaled(chunk.sum, chunk.max);
        self.max = max;
        debug_assert_eq!(range.len(), logits.len());
    }

    fn keep_target(&mut self, range: &Range<usize>, logits: &[f32], target: Option<u32>) {
        if let Some(target) = target.filter(|target| range.contains(&(*target as usize))) {
            self.target = logits[target as usize - range.start];
        }
    }

    fn keep_top(&mut self, range: &Range<usize>, logits: &[f32], n_top: usize) {
        for (offset, logit) in logits.iter().enumerate() {
            let is_in =
                self.top.len() < n_top || self.top.last().is_some_and(|(_, least)| logit > least);
            if is_in {
                let at = self.top.partition_point(|(_, better)| better >= logit);
                self.top.insert(at, ((range.start + offset) as u32, *logit));
                self.top.truncate(n_top);
            }
        }
    }

    fn count_above(&mut self, range: &Range<usize>, logits: &[f32], target: Option<u32>) {
        let Some(target) = target else {
            return;
        };
        let above = logits.iter().enumerate().filter(|(offset, logit)| {
            **logit > self.target && range.start + offset != target as usize
        });
        self.n_above += above.count();
    }

    pub fn log_sum_exp(&self) -> f64 {
        f64::from(self.max) + self.sum.ln()
    }

    /// KL(first residual ‖ this one), in nats; slightly negative results of rounding become 0.
    pub fn divergence_from(&self, first: &Self) -> f64 {
        let kl = self.apart / first.sum - first.log_sum_exp() + self.log_sum_exp();
        if kl < 0.0 { 0.0 } else { kl }
    }
}

/// Reads the logits of every residual at some positions, and compares them with a reference or, if there is none, with the
/// first residual. // [residual, position]
///
/// # Errors
/// When a tensor contradicts the spec, the device fails, or the pace stops it.
pub fn rows_of<O: Ops>(
    ops: &O,
    model: &Model,
    head: &HeadSpec,
    of: (&[&[f32]], &[usize]),
    (wanted, reference): (&Wanted, Option<&Reference>),
    pace: &dyn Pace,
) -> Result<Vec<Row>> {
    let mut nothing = |_: &Range<usize>, _: &[f32]| {};
    read_rows(
        ops,
        model,
        head,
        of,
        (wanted, reference),
        &mut nothing,
        pace,
    )
}

/// Reads logits, and also passes every chunk to `each`.
fn read_rows<O: Ops>(
    ops: &O,
    model: &Model,
    head: &HeadSpec,
    (residuals, positions): (&[&[f32]], &[usize]),
    (wanted, reference): (&Wanted, Option<&Reference>),
    each: &mut dyn FnMut(&Range<usize>, &[f32]),
    pace: &dyn Pace,
) -> Result<Vec<Row>> {
    let hidden = hidden_of(ops, model, residuals, positions)?;
    let (n_all, n_positions) = (residuals.len(), positions.len());
    let n_rows = n_all * n_positions;
    let mut unembedding = Unembedding::new(ops, model, head, &hidden, n_rows, pace)?;
    let targets = &wanted.targets;
    // Ordered by position, so that compared rows are adjacent. // [position, residual]
    let mut rows = vec![FRESH; n_rows];
    if wanted.ranks {
        // Ranks need the target's logit before the other logits arrive.
        let mut known: Vec<u32> = targets.iter().flatten().copied().collect();
        known.sort_unstable();
        known.dedup();
        for token in known {
            let at = token as usize;
            let logits = unembedding.logits(at..at + 1)?;
            let here = (0..n_positions).filter(|at| targets[*at] == Some(token));
            for at in here {
                for idx in 0..n_all {
                    rows[at * n_all + idx].target = logits[idx * n_positions + at];
                }
            }
        }
    }
    for range in unembedding.ranges() {
        if pace.stops() {
            return Err(Error::Cancelled);
        }
        let logits = unembedding.logits(range.clone())?;
        each(&range, &logits);
        let width = range.len();
        let of = |residual_idx: usize, at: usize| {
            let row = residual_idx * n_positions + at;
            &logits[row * width..(row + 1) * width]
        };
        add_chunk(&mut rows, n_all, &range, &of, (wanted, reference));
    }
    let by_residual = (0..n_all).flat_map(|idx| (0..n_positions).map(move |at| (idx, at)));
    Ok(by_residual
        .map(|(idx, at)| rows[at * n_all + idx].clone())
        .collect())
}

/// Reads rows whose logits are there as a whole. // logits: [position, d_vocab]
fn rows_of_logits(
    logits: &[f32],
    d_vocab: usize,
    compared: (&Wanted, Option<&Reference>),
) -> Vec<Row> {
    let mut rows = vec![FRESH; compared.0.targets.len()];
    let of = |_: usize, at: usize| &logits[at * d_vocab..(at + 1) * d_vocab];
    add_chunk(&mut rows, 1, &(0..d_vocab), &of, compared);
    rows
}

/// Adds a chunk of the vocabulary to rows, ordered by position. `of` gives the logits of a residual at a position.
/// // rows: [position, residual]
fn add_chunk<'l>(
    rows: &mut [Row],
    n_all: usize,
    range: &Range<usize>,
    of: &(dyn Fn(usize, usize) -> &'l [f32] + Sync),
    (wanted, reference): (&Wanted, Option<&Reference>),
) {
    let level = Level::current();
    let targets = &wanted.targets;
    rows.par_chunks_mut(n_all.max(1)).enumerate().for_each_init(
        Vec::new,
        |weights: &mut Vec<f32>, (at, rows)| {
            let before = rows[0].max;
            for (idx, row) in rows.iter_mut().enumerate() {
                let logits = of(idx, at);
                row.add(level, range, logits);
                if wanted.ranks {
                    row.count_above(range, logits, targets[at]);
                } else {
                    row.keep_target(range, logits, targets[at]);
                }
                if wanted.n_top > 0 {
                    row.keep_top(range, logits, wanted.n_top);
                }
            }
            let (first, max, n_skipped) = match reference {
                Some(reference) => (reference.of(at, range), reference.rows[at].max, 0),
                None => (of(0, at), rows[0].max, 1),
            };
            let shrink = match (reference, before) {
                (Some(_), _) => 1.0,
                (None, f32::NEG_INFINITY) => 0.0,
                (None, before) => f64::from(before - max).exp(),
            };
            if rows.len() == n_skipped {
                return;
            }
            weights.clear();
            weights.extend(first.iter().map(|logit| (logit - max).exp()));
            for (idx, row) in rows.iter_mut().enumerate().skip(n_skipped) {
                row.apart = row.apart * shrink + apart(weights, first, of(idx, at));
            }
        },
    );
}

/// Σ weight · (a − b).
fn apart(weights: &[f32], a: &[f32], b: &[f32]) -> f64 {
    let mut sum = 0.0f64;
    let chunks = weights.chunks(64).zip(a.chunks(64)).zip(b.chunks(64));
    for ((weights, a), b) in chunks {
        let mut lanes = [0.0f32; 16];
        for (idx, weight) in weights.iter().enumerate() {
            lanes[idx % 16] += weight * (a[idx] - b[idx]);
        }
        sum += f64::from(lanes.iter().sum::<f32>());
    }
    sum
}
