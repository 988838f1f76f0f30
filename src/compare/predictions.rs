//! Compares the predictions of two models, from logits in chunks of the vocabulary.

use std::ops::Range;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::simd::{Level, exp_sum, weighted_gap};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Input, Unembedding, final_hidden, pool_hidden};
use attnscope_spec::Model;
use rayon::prelude::*;

use super::engines::Engines;
use super::exchange::{AFTER, Measure, unequal};
use super::gap::{Axes, HeadGap, HookGap, same_bits};
use super::largest::Largest;

/// Difference between the predictions of two models.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictionDifference {
    /// Mean next-token loss of A and B, in nats; `None` for models that do not predict the next token.
    pub loss: [Option<f64>; 2],
    /// Mean Kullback–Leibler divergence of B's predictions from A's over real positions, in nats.
    pub kl: f64,
    /// Divergence at each position, in nats. // [position]
    pub kl_at: Vec<f64>,
    /// Likeliest token at each position, of A and of B. // [position]
    pub top1: Vec<[u32; 2]>,
    /// Share of real positions with the same likeliest token on both sides.
    pub same_top1: f64,
}

/// Running sums over one position's logits on both sides.
#[derive(Debug, Clone)]
pub(super) struct RowScan {
    target: Option<usize>,
    target_logit: [f64; 2],
    max: [f64; 2],
    /// Σ e^(logit − max).
    sum: [f64; 2],
    top: [(u32, f64); 2],
    /// Σ e^(a − max_a)(a − b).
    weighted: f64,
    gap: HeadGap,
    /// Largest difference; only with `Measure::Largest`. Its elements are numbered over positions and vocabulary.
    largest: Option<Largest>,
}

impl RowScan {
    pub fn new(target: Option<usize>) -> Self {
        Self {
            target,
            target_logit: [f64::NAN; 2],
            max: [f64::NEG_INFINITY; 2],
            sum: [0.0; 2],
            top: [(0, f64::NEG_INFINITY); 2],
            weighted: 0.0,
            gap: HeadGap::default(),
            largest: None,
        }
    }

    /// Adds the logits of a range of the vocabulary, of A and of B.
    pub fn add(&mut self, position_idx: usize, range: &Range<usize>, rows: [&[f32]; 2]) {
        self.gap.vector(position_idx, rows[0], rows[1]);
        let level = Level::current();
        let is_same = same_bits(rows[0], rows[1]);
        let of_a = exp_sum(level, rows[0]);
        let of_b = if is_same {
            of_a
        } else {
            exp_sum(level, rows[1])
        };
        for (side, (row, chunk)) in rows.into_iter().zip([of_a, of_b]).enumerate() {
            let most = f64::from(chunk.max);
            if most > self.top[side].1 {
                let at = row
                    .iter()
                    .position(|logit| *logit == chunk.max)
                    .unwrap_or(0);
                self.top[side] = ((range.start + at) as u32, most);
            }
            let mut of_chunk = chunk.sum;
            if most > self.max[side] && most.is_finite() {
                let shrink = (self.max[side] - most).exp();
                self.sum[side] *= shrink;
                if side == 0 {
                    self.weighted *= shrink;
                }
                self.max[side] = most;
            } else if most.is_finite() {
                of_chunk *= (most - self.max[side]).exp();
            }
            self.sum[side] += of_chunk;
            if let Some(target) = self.target.filter(|target| range.contains(target)) {
                self.target_logit[side] = f64::from(row[target - range.start]);
            }
        }
        // Equal logits add nothing to the divergence, and neither do those of weight 0.
        if is_same {
            return;
        }
        let max = self.max[0] as f32;
        self.weighted += weighted_gap(level, rows[0], rows[1], max);
    }

    /// Returns the total difference over all positions.
    pub fn gap_of(rows: &[Self]) -> HookGap {
        let mut all = HeadGap::default();
        rows.iter().for_each(|row| all.join(&row.gap));
        HookGap {
            axes: Axes::Queries,
            has_heads: false,
            heads: vec![all],
        }
    }

    fn log_sum(&self, side: usize) -> f64 {
        self.max[side] + self.sum[side].ln()
    }

    fn kl(&self) -> f64 {
        let kl = self.weighted / self.sum[0] - (self.log_sum(0) - self.log_sum(1));
        // Only rounding makes it negative.
        if kl.is_nan() { kl } else { kl.max(0.0) }
    }

    fn loss(&self, side: usize) -> f64 {
        self.log_sum(side) - self.target_logit[side]
    }
}

/// Comparison after the last layer: the final norm, and logits if both models have a head.
pub(super) struct AfterLayers {
    pub gap: HookGap,
    pub predictions: Option<PredictionDifference>,
    /// Largest difference of the last hidden states; only with `Measure::Largest`.
    pub hidden: Option<Largest>,
    /// Largest difference of the logits; only with `Measure::Largest`.
    pub logits: Option<Largest>,
}

/// Compares logits a chunk of the vocabulary at a time, or the last hidden states of models without a head.
pub(super) fn after_layers<E: Engines>(
    engines: &E,
    (a, b): (&Model, &Model),
    (resid_a, resid_b): (&<E::A as Ops>::Buffer, &<E::B as Ops>::Buffer),
    (input, measure): (&Input, Measure),
    pace: &dyn Pace,
) -> Result<AfterLayers> {
    let sequence = &input.sequence;
    let is_real = |idx: usize| sequence.is_real(idx);
    let (ops_a, ops_b) = (engines.a(), engines.b());
    let (mut of_a, mut of_b) = Default::default();
    final_hidden(ops_a, a, a.spec.main_stack(), resid_a, &mut of_a)?; // [position, d_model]
    final_hidden(ops_b, b, b.spec.main_stack(), resid_b, &mut of_b)?; // [position, d_model]
    let heads = a.spec.head.as_ref().zip(b.spec.head.as_ref());
    let has_largest = measure == Measure::Largest;
    let mut after = AfterLayers {
        gap: RowScan::gap_of(&[]),
        predictions: None,
        hidden: None,
        logits: None,
    };
    if has_largest || heads.is_none() {
        let (of_a, of_b) = (ops_a.get(&of_a)?, ops_b.get(&of_b)?);
        let values = (&*of_a.values, &*of_b.values);
        after.gap = HookGap::of_vectors(Axes::Queries, None, values, of_a.width, &is_real);
        if has_largest {
            let mut largest = Largest::default();
            let rows = values.0.chunks(of_a.width.max(1));
            let rows = rows.zip(values.1.chunks(of_b.width.max(1))).enumerate();
            for (idx, (row_a, row_b)) in rows.filter(|(idx, _)| is_real(*idx)) {
                largest.add(idx * of_a.width, row_a, row_b);
            }
            after.hidden = Some(largest);
        }
    }
    let Some((head_a, head_b)) = heads else {
        return Ok(after);
    };
    pool_hidden(ops_a, a, head_a, sequence, &mut of_a)?;
    pool_hidden(ops_b, b, head_b, sequence, &mut of_b)?;
    let n = sequence.len();
    let has_loss = a.spec.is_causal_lm && b.spec.is_causal_lm;
    let target = |i: usize| {
        let next = sequence.tokens.get(i + 1).filter(|_| has_loss);
        next.map(|token| *token as usize)
    };
    let mut rows: Vec<RowScan> = (0..n).map(|i| RowScan::new(target(i))).collect();
    let mut unembed_a = Unembedding::new(ops_a, a, head_a, &of_a, n, pace)?;
    let mut unembed_b = Unembedding::new(ops_b, b, head_b, &of_b, n, pace)?;
    let d_vocab = head_a.unembed.n_out();
    for range in unembed_a.ranges() {
        let logits_a = unembed_a.logits(range.clone())?; // [position, range]
        let logits_b = unembed_b.logits(range.clone())?;
        if has_largest && logits_a.len() != logits_b.len() {
            return Err(unequal(AFTER.name(), logits_a.len(), logits_b.len()));
        }
        let width = range.len();
        let logits = logits_a.par_chunks(width).zip(logits_b.par_chunks(width));
        let rows = rows.par_iter_mut().zip(logits).enumerate();
        rows.filter(|(idx, _)| sequence.is_real(*idx))
            .for_each(|(idx, (row, (a, b)))| {
                row.add(idx, &range, [a, b]);
                if has_largest {
                    let largest = row.largest.get_or_insert_default();
                    largest.add(idx * d_vocab + range.start, a, b);
                }
            });
    }
    after.predictions = Some(predictions(&rows, has_loss, &is_real));
    after.gap = RowScan::gap_of(&rows);
    after.logits = has_largest.then(|| {
        let mut all = Largest::default();
        let known = rows.iter().filter_map(|row| row.largest.as_ref());
        known.for_each(|largest| all.join(largest));
        all
    });
    Ok(after)
}

/// Summarizes the predictions of all positions.
pub(super) fn predictions(
    rows: &[RowScan],
    has_loss: bool,
    is_real: &dyn Fn(usize) -> bool,
) -> PredictionDifference {
    let real = || rows.iter().enumerate().filter(|(idx, _)| is_real(*idx));
    let n = real().count().max(1) as f64;
    let loss = |side: usize| {
        // A prediction counts if both its own token and its target are real.
        let pairs = real().filter(|(idx, _)| idx + 1 < rows.len() && is_real(idx + 1));
        let losses: Vec<f64> = pairs.map(|(_, row)| row.loss(side)).collect();
        let mean = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        (has_loss && !losses.is_empty()).then_some(mean)
    };
    let same = real().filter(|(_, row)| row.top[0].0 == row.top[1].0);
    PredictionDifference {
        loss: [loss(0), loss(1)],
        kl: real().map(|(_, row)| row.kl()).sum::<f64>() / n,
        kl_at: rows.iter().map(RowScan::kl).collect(),
        top1: rows
            .iter()
            .map(|row| [row.top[0].0, row.top[1].0])
            .collect(),
        same_top1: same.count() as f64 / n,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divergence_does_not_depend_on_the_chunk_size() {
        let logits: Vec<f32> = (0..11)
            .map(|v| ((v * 7919) % 23) as f32 * 0.4 - 3.0)
            .collect();
        let others: Vec<f32> = (0..11).map(|v| ((v * 104_729) % 19) as f32 * 0.3).collect();
        let probabilities = |row: &[f32]| -> Vec<f64> {
            let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
            row.iter().map(|l| f64::from(*l).exp() / sum).collect()
        };
        let (p, q) = (probabilities(&logits), probabilities(&others));
        let expected: f64 = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum();
        for n_chunk in [1, 3, 11] {
            let mut row = RowScan::new(Some(4));
            for start in (0..11).step_by(n_chunk) {
                let range = start..(start + n_chunk).min(11);
                row.add(0, &range, [&logits[range.clone()], &others[range.clone()]]);
            }
            assert!((row.kl() - expected).abs() < 1e-6, "{n_chunk}");
            assert!((row.loss(1) + q[4].ln()).abs() < 1e-6);
        }
    }
}
