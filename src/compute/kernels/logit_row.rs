//! One position's logits, read in chunks of the vocabulary: log-sum-exp, most likely tokens, and the loss of a target.

use std::ops::Range;

use super::simd::{Level, exp_sum};

/// Logits skipped at once if none of them is among the most likely.
const SKIPPED: usize = 64;

/// Running statistics of one position's logits.
#[derive(Debug, Clone)]
pub struct LogitRow {
    target: Option<u32>,
    target_logit: f32,
    n_top: usize,
    /// Most likely tokens and their logits, in descending order.
    top: Vec<(u32, f32)>,
    max: f32,
    /// Σ e^(logit − max).
    sum: f64,
}

impl LogitRow {
    /// Empty statistics. `target` is the token whose loss is computed; the `n_top` most likely tokens are kept.
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

    /// Adds the logits of a range of the vocabulary. Ranges must be in ascending order.
    pub fn add(&mut self, range: &Range<usize>, logits: &[f32]) {
        let chunk = exp_sum(Level::current(), logits);
        let max = self.max.max(chunk.max);
        // Before the first chunk, the maximum is −∞ and cannot be subtracted.
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

    /// Updates the most likely tokens; the first logit belongs to token `first`.
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

    /// The most likely tokens and their logits, in descending order.
    #[must_use]
    pub fn top(&self) -> &[(u32, f32)] {
        &self.top
    }

    /// ln Σ e^logit over all logits added so far.
    #[must_use]
    pub fn log_sum_exp(&self) -> f64 {
        f64::from(self.max) + self.sum.ln()
    }

    /// −log p of the target in nats; NaN without a target, or if its logit was not added.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.log_sum_exp() - f64::from(self.target_logit)
    }
}
