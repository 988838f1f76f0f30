//! One position's logits, passed over in chunks of the vocabulary: the sum of their exponentials, the likeliest, and one target.

use std::ops::Range;

use super::simd::{Level, exp_sum};

/// Logits that are passed over at once where none of them is among the likeliest.
const SKIPPED: usize = 64;

/// What is kept of one position's logits.
#[derive(Debug, Clone)]
pub struct LogitRow {
    target: Option<u32>,
    target_logit: f32,
    n_top: usize,
    /// Likeliest first: tokens and their logits.
    top: Vec<(u32, f32)>,
    max: f32,
    /// Σ e^(logit − max).
    sum: f64,
}

impl LogitRow {
    /// Nothing yet: `target` is the token whose loss is wanted, and `n_top` of the likeliest are kept.
    #[must_use]
    pub fn new(target: Option<u32>, n_top: usize) -> Self {
        Self {
            target,
            target_logit: f32::NAN,
            n_top,
            top: Vec::with_capacity(n_top + usize::from(n_top > 0)),
            max: f32::NEG_INFINITY,
            sum: 0.0,
        }
    }

    /// Takes in the logits of a range of the vocabulary. Ranges come in ascending order.
    pub fn add(&mut self, range: &Range<usize>, logits: &[f32]) {
        let chunk = exp_sum(Level::current(), logits);
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
        if self.n_top > 0 {
            self.rank(range.start, logits);
        }
        if let Some(target) = self.target
            && range.contains(&(target as usize))
        {
            self.target_logit = logits[target as usize - range.start];
        }
    }

    /// Looks for the likeliest among logits whose first is of token `first`.
    fn rank(&mut self, first: usize, logits: &[f32]) {
        for (nth, chunk) in logits.chunks(SKIPPED).enumerate() {
            let larger = |most: f32, logit: &f32| if *logit > most { *logit } else { most };
            let most = chunk.iter().fold(f32::NEG_INFINITY, larger);
            let is_full = self.top.len() == self.n_top;
            if is_full && self.top.last().is_some_and(|(_, least)| most <= *least) {
                continue;
            }
            for (offset, logit) in chunk.iter().enumerate() {
                self.insert((first + nth * SKIPPED + offset) as u32, *logit);
            }
        }
    }

    fn insert(&mut self, id: u32, logit: f32) {
        let top = &mut self.top;
        if top.len() < self.n_top || top.last().is_some_and(|(_, least)| logit > *least) {
            let at = top.partition_point(|(_, better)| *better >= logit);
            top.insert(at, (id, logit));
            top.truncate(self.n_top);
        }
    }

    /// The likeliest tokens and their logits, the likeliest first.
    #[must_use]
    pub fn top(&self) -> &[(u32, f32)] {
        &self.top
    }

    /// ln Σ e^logit of all that was taken in.
    #[must_use]
    pub fn log_sum_exp(&self) -> f64 {
        f64::from(self.max) + self.sum.ln()
    }

    /// −log p of the target in nats; NaN without one, or where its logit never came.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.log_sum_exp() - f64::from(self.target_logit)
    }
}
