//! What the model predicts at each position, from logits that pass in chunks of the vocabulary.

use std::ops::Range;

use rayon::prelude::*;

use crate::kernels::simd::{Level, exp_sum};

/// How many of the likeliest tokens are remembered per position.
pub const N_TOP: usize = 3;

/// A likely token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopToken {
    pub id: u32,
    /// For a head that gives numbers as they are, the number.
    pub probability: f32,
}

/// A label, at the position that it is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LabelAt {
    pub position_idx: usize,
    pub label_idx: usize,
    pub logit: f32,
    /// Of this label among all, by itself, or of this position among all; `None` for a number as it is.
    pub probability: Option<f32>,
}

/// Predictions of a whole prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// Likeliest first. // [position, N_TOP]
    pub top: Vec<Vec<TopToken>>,
    /// −log p of the token that follows, in nats; for models that predict the next token. // [position − 1]
    pub next_loss: Option<Vec<f32>>,
    /// Mean of `next_loss` over pairs of real tokens, in nats.
    pub loss: Option<f64>,
    /// Where the head gives labels: all of them at the position that counts, or the likeliest of each position.
    pub labels: Vec<LabelAt>,
}

/// Reads logits chunk by chunk and keeps only what predictions need.
#[derive(Debug)]
pub(super) struct Scan {
    /// [position]
    rows: Vec<RowScan>,
}

/// What is kept of one position's logits.
#[derive(Debug, Clone)]
struct RowScan {
    target: Option<u32>,
    target_logit: f32,
    top: Vec<(u32, f32)>,
    max: f32,
    /// Σ e^(logit − max).
    sum: f64,
}

/// Logits that are passed over at once where none of them is among the likeliest.
const SKIPPED: usize = 64;

impl RowScan {
    fn add(&mut self, level: Level, range: &Range<usize>, row: &[f32]) {
        let chunk = exp_sum(level, row);
        let max = self.max.max(chunk.max);
        // An infinite maximum of nothing yet is not a number to subtract.
        let scaled = |sum: f64, of: f32| {
            if sum == 0.0 {
                0.0
            } else {
                sum * f64::from(of - max).exp()
            }
        };
        self.sum = scaled(self.sum, self.max) + scaled(chunk.sum, chunk.max);
        self.max = max;
        for (nth, logits) in row.chunks(SKIPPED).enumerate() {
            let most = logits.iter().fold(
                f32::NEG_INFINITY,
                |most, l| if *l > most { *l } else { most },
            );
            let is_full = self.top.len() == N_TOP;
            if is_full && self.top.last().is_some_and(|(_, least)| most <= *least) {
                continue;
            }
            for (offset, logit) in logits.iter().enumerate() {
                let id = range.start + nth * SKIPPED + offset;
                self.insert(id as u32, *logit);
            }
        }
        if let Some(target) = self.target
            && range.contains(&(target as usize))
        {
            self.target_logit = row[target as usize - range.start];
        }
    }

    fn insert(&mut self, id: u32, logit: f32) {
        let top = &mut self.top;
        if top.len() < N_TOP || top.last().is_some_and(|(_, least)| logit > *least) {
            let at = top.partition_point(|(_, better)| *better >= logit);
            top.insert(at, (id, logit));
            top.truncate(N_TOP);
        }
    }

    fn log_sum_exp(&self) -> f64 {
        f64::from(self.max) + self.sum.ln()
    }
}

impl Scan {
    /// `targets` holds the token whose loss is wanted at each position.
    pub fn new(targets: Vec<Option<u32>>) -> Self {
        let row = |target| RowScan {
            target,
            target_logit: f32::NAN,
            top: Vec::with_capacity(N_TOP + 1),
            max: f32::NEG_INFINITY,
            sum: 0.0,
        };
        Self {
            rows: targets.into_iter().map(row).collect(),
        }
    }

    /// Takes in the logits of a range of the vocabulary. // [position, range]
    pub fn add(&mut self, range: &Range<usize>, logits: &[f32]) {
        let level = Level::current();
        self.rows
            .par_iter_mut()
            .zip(logits.par_chunks(range.len()))
            .for_each(|(row, logits)| row.add(level, range, logits));
    }

    /// Closes the scan: −log p of each position's target, in nats.
    pub fn losses(self) -> Vec<f32> {
        let loss = |row: &RowScan| (row.log_sum_exp() - f64::from(row.target_logit)) as f32;
        self.rows.iter().map(loss).collect()
    }

    /// Closes the scan; `is_counted` says which positions enter the mean loss.
    pub fn finish(self, has_loss: bool, is_counted: impl Fn(usize) -> bool) -> Predictions {
        let top = self.rows.iter().map(|row| {
            let log_sum_exp = row.log_sum_exp();
            let token = |(id, logit): &(u32, f32)| TopToken {
                id: *id,
                probability: (f64::from(*logit) - log_sum_exp).exp() as f32,
            };
            row.top.iter().map(token).collect()
        });
        let top = top.collect();
        if !has_loss {
            return Predictions {
                top,
                next_loss: None,
                loss: None,
                labels: Vec::new(),
            };
        }
        let n_losses = self.rows.len().saturating_sub(1);
        let next_loss: Vec<f32> = self.rows[..n_losses]
            .iter()
            .map(|row| (row.log_sum_exp() - f64::from(row.target_logit)) as f32)
            .collect();
        let counted: Vec<f64> = next_loss
            .iter()
            .enumerate()
            .filter(|(i, _)| is_counted(*i))
            .map(|(_, l)| f64::from(*l))
            .collect();
        let loss =
            (!counted.is_empty()).then(|| counted.iter().sum::<f64>() / counted.len() as f64);
        Predictions {
            top,
            next_loss: Some(next_loss),
            loss,
            labels: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_any_size_give_the_same_predictions_as_the_whole_row() {
        let logits: Vec<f32> = (0..2 * 11)
            .map(|v| ((v * 7919) % 23) as f32 * 0.4 - 3.0)
            .collect();
        for n_chunk in [1, 3, 11] {
            let mut scan = Scan::new(vec![Some(4), None]);
            for start in (0..11).step_by(n_chunk) {
                let range = start..(start + n_chunk).min(11);
                let chunk: Vec<f32> = logits
                    .chunks(11)
                    .flat_map(|row| row[range.clone()].to_vec())
                    .collect();
                scan.add(&range, &chunk);
            }
            let predictions = scan.finish(true, |_| true);
            let row = &logits[..11];
            let total: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
            let expected = total.ln() - f64::from(row[4]);
            assert!((predictions.loss.expect("a loss") - expected).abs() < 1e-6);
            let best = row.iter().copied().fold(f32::MIN, f32::max);
            let top = predictions.top[0][0];
            assert_eq!(row[top.id as usize], best);
            assert!((f64::from(top.probability) - f64::from(best).exp() / total).abs() < 1e-6);
            assert_eq!(predictions.top[0].len(), N_TOP);
        }
    }
}
