//! Turns the sums that kernels compute for a row into its summary.

use super::spec::SoftmaxAxis;
use super::summary::RowSummary;
use crate::kernels::simd::{PatternSums, ScoreSums};

/// Kernel sums of one row, and the data that turns its weights into probabilities.
pub(super) struct FastRow {
    pub scores: ScoreSums,
    pub pattern: PatternSums,
    pub axis: SoftmaxAxis,
    /// The largest score; includes the learned sink.
    pub max: f32,
    pub sink: Option<f32>,
    /// The scores are exactly scale·q·k: nothing was added to them.
    pub is_plain: bool,
}

impl FastRow {
    /// Σ e^(s − max); includes the learned sink.
    fn denominator(&self) -> f64 {
        let keys = match self.axis {
            SoftmaxAxis::Keys => self.pattern.sum,
            SoftmaxAxis::Queries | SoftmaxAxis::Heads => self.pattern.row_sum,
        };
        keys + self
            .sink
            .map_or(0.0, |sink| f64::from((sink - self.max).exp()))
    }

    /// Factor that turns a weight into a probability.
    pub(super) fn factor(&self) -> f32 {
        match self.axis {
            SoftmaxAxis::Keys => (1.0 / self.denominator()) as f32,
            SoftmaxAxis::Queries | SoftmaxAxis::Heads => 1.0,
        }
    }

    /// Fills in every field that follows from sums. `top` is the weight of the key with the largest score.
    pub(super) fn summarise(&self, top: f32, summary: &mut RowSummary) {
        let n = self.scores.n as f64;
        let (mean, variance) = (self.scores.sum / n, self.pattern.squares / n);
        summary.n_visible = self.scores.n as u32;
        summary.score_mean = mean as f32;
        summary.score_var = variance as f32;
        (summary.score_min, summary.score_max) = (self.scores.min, self.scores.max);
        summary.score_norm = (n * (variance + mean * mean)).sqrt() as f32;
        summary.raw_mean = (self.scores.raw_sum / n) as f32;
        let raw_variance = if self.is_plain {
            variance
        } else {
            self.scores.raw_squares / n
        };
        summary.raw_var = raw_variance as f32;
        (summary.raw_min, summary.raw_max) = (self.scores.raw_min, self.scores.raw_max);
        summary.cosine = (self.scores.cosine_sum / (f64::from(summary.q_norm) * n)) as f32;
        let log_denominator = self.denominator().ln();
        summary.log_sum_exp = (f64::from(self.max) + log_denominator) as f32;

        let sums = &self.pattern;
        match self.axis {
            SoftmaxAxis::Keys => {
                let inverse = 1.0 / self.denominator();
                let mass = sums.sum * inverse;
                // −Σ p log p with log p = s − max − log Σ.
                let entropy = mass * log_denominator - sums.weighted * inverse;
                summary.mass = mass as f32;
                summary.entropy = if entropy < 0.0 { 0.0 } else { entropy as f32 };
                summary.sum_p2 = (sums.sum_2 * inverse * inverse) as f32;
                summary.sum_p3 = (sums.sum_3 * inverse * inverse * inverse) as f32;
                summary.distance = (sums.distance * inverse) as f32;
                summary.top1 = (f64::from(top) * inverse) as f32;
                let second = f64::from(self.scores.second - self.max).exp();
                summary.top2 = (second * inverse) as f32;
                summary.argmax = self.scores.argmax as u32;
            }
            SoftmaxAxis::Queries | SoftmaxAxis::Heads => {
                summary.mass = sums.sum as f32;
                summary.entropy = -sums.weighted as f32;
                summary.sum_p2 = sums.sum_2 as f32;
                summary.sum_p3 = sums.sum_3 as f32;
                summary.distance = sums.distance as f32;
                (summary.top1, summary.top2) = (sums.top_1, sums.top_2);
                summary.argmax = sums.argmax as u32;
            }
        }
    }
}
