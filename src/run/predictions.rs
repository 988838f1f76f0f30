//! The model's predictions at each position, read from logits that arrive in chunks of the vocabulary.

use std::ops::Range;

use attnscope_checks::mean_loss;
use attnscope_compute::kernels::logit_row::LogitRow;
use rayon::prelude::*;

/// Number of most likely tokens kept per position.
pub const N_TOP: usize = 3;

/// A likely token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopToken {
    pub id: u32,
    /// For a head that predicts plain numbers, the number itself.
    pub probability: f32,
}

/// A label at its position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LabelAt {
    pub position_idx: usize,
    pub label_idx: usize,
    pub logit: f32,
    /// Softmax over labels, sigmoid of this label, or softmax over positions, by kind of head; `None` for a plain number.
    pub probability: Option<f32>,
}

/// Predictions of a whole prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// Most likely first. // [position, N_TOP]
    pub top: Vec<Vec<TopToken>>,
    /// −log p of the next token, in nats; for models that predict the next token. // [position − 1]
    pub next_loss: Option<Vec<f32>>,
    /// Mean of `next_loss` over positions whose next token is known, in nats: both are real tokens.
    pub loss: Option<f64>,
    /// Number of those positions.
    pub n_in_loss: usize,
    /// Labels of a classification head: all labels at the position that counts, or the most likely one of each position.
    pub labels: Vec<LabelAt>,
}

/// Reads logits chunk by chunk and keeps only what predictions need.
#[derive(Debug)]
pub(super) struct Scan {
    /// [position]
    rows: Vec<LogitRow>,
}

impl Scan {
    /// `targets` holds the token whose loss is needed at each position.
    pub fn new(targets: Vec<Option<u32>>) -> Self {
        Self::with_top(targets, N_TOP)
    }

    /// Keeps only losses, not the most likely tokens.
    pub fn of_losses(targets: impl Iterator<Item = u32>) -> Self {
        Self::with_top(targets.map(Some).collect(), 0)
    }

    fn with_top(targets: Vec<Option<u32>>, n_top: usize) -> Self {
        let row = |target| LogitRow::new(target, n_top);
        Self {
            rows: targets.into_iter().map(row).collect(),
        }
    }

    /// Adds the logits of a range of the vocabulary. // [position, range]
    pub fn add(&mut self, range: &Range<usize>, logits: &[f32]) {
        self.rows
            .par_iter_mut()
            .zip(logits.par_chunks(range.len()))
            .for_each(|(row, logits)| row.add(range, logits));
    }

    /// Ends the scan and returns −log p of each position's target, in nats.
    pub fn losses(self) -> Vec<f32> {
        self.rows.iter().map(|row| row.loss() as f32).collect()
    }

    /// Ends the scan; `is_counted` selects the positions that enter the mean loss. If predictions of the first positions are
    /// known, the scan covers only later ones and the result covers both.
    pub fn finish(
        self,
        known: Option<(&Predictions, usize)>,
        has_loss: bool,
        is_counted: impl Fn(usize) -> bool,
    ) -> Predictions {
        let known = known.filter(|(_, n)| *n > 0);
        let of_row = |row: &LogitRow| {
            let log_sum_exp = row.log_sum_exp();
            let token = |(id, logit): &(u32, f32)| TopToken {
                id: *id,
                probability: (f64::from(*logit) - log_sum_exp).exp() as f32,
            };
            row.top().iter().map(token).collect()
        };
        let top = known.iter().flat_map(|(known, n)| known.top[..*n].to_vec());
        let top = top.chain(self.rows.iter().map(of_row)).collect();
        if !has_loss {
            return Predictions {
                top,
                next_loss: None,
                loss: None,
                n_in_loss: 0,
                labels: Vec::new(),
            };
        }
        let of_known = known.and_then(|(known, n)| Some(&known.next_loss.as_ref()?[..n]));
        let n_losses = self.rows.len().saturating_sub(1);
        let of_rows = self.rows[..n_losses].iter().map(|row| row.loss() as f32);
        let next_loss: Vec<f32> = of_known
            .unwrap_or_default()
            .iter()
            .copied()
            .chain(of_rows)
            .collect();
        let counted: Vec<f32> = next_loss
            .iter()
            .enumerate()
            .filter(|(i, _)| is_counted(*i))
            .map(|(_, loss)| *loss)
            .collect();
        let loss = (!counted.is_empty()).then(|| mean_loss(&counted));
        Predictions {
            top,
            next_loss: Some(next_loss),
            loss,
            n_in_loss: counted.len(),
            labels: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_any_size_give_the_predictions_of_a_whole_row() {
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
            let predictions = scan.finish(None, true, |_| true);
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
