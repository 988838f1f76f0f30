//! log Σ over queries of e^s, per key: the first of two passes of a softmax over queries.

/// Sums so far, kept relative to each key's largest score so that nothing overflows. // [key]
pub struct LogSumsOverQueries {
    max: Vec<f32>,
    sum: Vec<f64>,
}

impl LogSumsOverQueries {
    pub fn new(n_keys: usize) -> Self {
        Self {
            max: vec![f32::NEG_INFINITY; n_keys],
            sum: vec![0.0; n_keys],
        }
    }

    /// Adds the scores of another query; −∞ where a key is not visible. // [key]
    pub fn add(&mut self, scores: &[f32]) {
        for ((score, max), sum) in scores.iter().zip(&mut self.max).zip(&mut self.sum) {
            if *score == f32::NEG_INFINITY {
                continue;
            }
            if *score > *max {
                *sum *= f64::from(*max - *score).exp();
                *max = *score;
            }
            *sum += f64::from(*score - *max).exp();
        }
    }

    /// log Σ per key; −∞ for keys that no query sees. // [key]
    pub fn finish(&self) -> Vec<f32> {
        let pairs = self.max.iter().zip(&self.sum);
        pairs
            .map(|(max, sum)| (f64::from(*max) + sum.ln()) as f32)
            .collect()
    }
}
