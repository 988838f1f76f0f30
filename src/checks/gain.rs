//! How much lower the losses of one reading of a model are than another's, position by position.

use attnscope_compute::bootstrap::{interval_of_mean, is_surely_positive};

/// The gain of one reading over another, position by position.
#[derive(Debug, Clone)]
pub(super) struct Gain {
    pub mean: f64,
    pub gains: Vec<f64>,
}

impl Gain {
    pub fn of(from: &[f32], to: &[f32]) -> Self {
        let gains = differences(from, to);
        Self {
            mean: gains.iter().sum::<f64>() / gains.len() as f64,
            gains,
        }
    }

    /// The confidence interval. It takes thousands of draws: call it only for reported results or decisions.
    pub fn interval(&self) -> (f64, f64) {
        interval_of_mean(&self.gains)
    }

    pub fn is_clear(&self, margin: f64) -> bool {
        self.mean >= margin && is_surely_positive(&self.gains)
    }

    /// Whether the whole confidence interval is above the margin.
    pub fn exceeds(&self, margin: f64) -> bool {
        let beyond: Vec<f64> = self.gains.iter().map(|gain| gain - margin).collect();
        is_surely_positive(&beyond)
    }
}

/// Mean loss of all positions; NaN without any.
pub fn mean_loss(losses: &[f32]) -> f64 {
    losses.iter().map(|loss| f64::from(*loss)).sum::<f64>() / losses.len() as f64
}

/// A mean loss in words, with the positions that it is a mean over: `loss 6.568 nats per token, over 39 positions`.
pub fn loss_words(loss: f64, positions: &str) -> String {
    format!("loss {loss:.3} nats per token, over {positions}")
}

/// Quick test whether the confidence interval may reach the margin: it ends at about 2.6 standard errors.
pub(super) fn may_reach(from: &[f32], to: &[f32], margin: f64) -> bool {
    let gains = differences(from, to);
    let n = gains.len().max(1) as f64;
    let mean = gains.iter().sum::<f64>() / n;
    let variance = gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / n;
    mean + 5.0 * (variance / n).sqrt() >= margin
}

/// Differences of two lists of losses, position by position.
fn differences(from: &[f32], to: &[f32]) -> Vec<f64> {
    let pairs = from.iter().zip(to);
    pairs
        .map(|(from, to)| f64::from(*from) - f64::from(*to))
        .collect()
}
