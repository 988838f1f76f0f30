//! What the model predicts at each position, from logits that pass in chunks of the vocabulary.

use std::ops::Range;

/// How many of the likeliest tokens are remembered per position.
pub const N_TOP: usize = 3;

/// A likely token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopToken {
    pub id: u32,
    pub probability: f32,
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
}

/// Reads logits chunk by chunk and keeps only what predictions need.
#[derive(Debug)]
pub(super) struct Scan {
    targets: Vec<Option<u32>>,
    top: Vec<Vec<(u32, f32)>>,
    max: Vec<f32>,
    sum: Vec<f64>,
    target_logit: Vec<f32>,
}

impl Scan {
    /// `targets` holds the token whose loss is wanted at each position.
    pub fn new(targets: Vec<Option<u32>>) -> Self {
        let n = targets.len();
        Self {
            targets,
            top: vec![Vec::with_capacity(N_TOP + 1); n],
            max: vec![f32::NEG_INFINITY; n],
            sum: vec![0.0; n],
            target_logit: vec![f32::NAN; n],
        }
    }

    /// Takes in the logits of a range of the vocabulary. // [position, range]
    pub fn add(&mut self, range: &Range<usize>, logits: &[f32]) {
        for (position_idx, row) in logits.chunks(range.len()).enumerate() {
            let chunk_max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let max = self.max[position_idx].max(chunk_max);
            let kept = self.sum[position_idx] * f64::from(self.max[position_idx] - max).exp();
            // An infinite maximum of nothing yet is no number to subtract.
            let kept = if self.sum[position_idx] == 0.0 {
                0.0
            } else {
                kept
            };
            self.sum[position_idx] =
                kept + row.iter().map(|l| f64::from((l - max).exp())).sum::<f64>();
            self.max[position_idx] = max;
            let top = &mut self.top[position_idx];
            for (offset, logit) in row.iter().enumerate() {
                if top.len() < N_TOP || top.last().is_some_and(|(_, least)| logit > least) {
                    let at = top.partition_point(|(_, better)| better >= logit);
                    top.insert(at, ((range.start + offset) as u32, *logit));
                    top.truncate(N_TOP);
                }
            }
            if let Some(target) = self.targets[position_idx]
                && range.contains(&(target as usize))
            {
                self.target_logit[position_idx] = row[target as usize - range.start];
            }
        }
    }

    /// Closes the scan; `is_counted` says which positions enter the mean loss.
    pub fn finish(self, has_loss: bool, is_counted: impl Fn(usize) -> bool) -> Predictions {
        let log_sum_exp: Vec<f64> = self
            .max
            .iter()
            .zip(&self.sum)
            .map(|(m, s)| f64::from(*m) + s.ln())
            .collect();
        let probability = |position_idx: usize, logit: f32| {
            (f64::from(logit) - log_sum_exp[position_idx]).exp() as f32
        };
        let top = self.top.iter().enumerate().map(|(position_idx, top)| {
            let token = |(id, logit): &(u32, f32)| TopToken {
                id: *id,
                probability: probability(position_idx, *logit),
            };
            top.iter().map(token).collect()
        });
        let top = top.collect();
        if !has_loss {
            return Predictions {
                top,
                next_loss: None,
                loss: None,
            };
        }
        let n_losses = self.targets.len().saturating_sub(1);
        let next_loss: Vec<f32> = (0..n_losses)
            .map(|i| (log_sum_exp[i] - f64::from(self.target_logit[i])) as f32)
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
