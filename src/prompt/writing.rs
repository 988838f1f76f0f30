//! Settings of text generation: how many tokens, and how each is chosen.

use attnscope_compute::error::{Error, Result};

/// How the next token is chosen from the model's predictions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it before sampling; 0 takes the most likely token.
    pub temperature: f64,
    /// Samples from this many of the most likely tokens.
    pub top_k: Option<usize>,
    /// Samples from the fewest most likely tokens whose total probability reaches this.
    pub top_p: Option<f64>,
    /// The same seed always draws the same tokens.
    pub seed: u64,
}

// NaN is refused before a value is made.
impl Eq for Sampling {}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: None,
            seed: 0,
        }
    }
}

impl Sampling {
    /// # Errors
    /// When a number is not valid for sampling.
    pub fn check(self) -> Result<Self> {
        let problem = if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            Some(format!(
                "--temperature: expected a number of 0 or more, found {}",
                self.temperature
            ))
        } else if self.top_k == Some(0) {
            Some("--top-k: expected 1 or more, found 0".to_owned())
        } else {
            let is_share = |p: &f64| *p > 0.0 && *p <= 1.0;
            let wrong = self.top_p.filter(|p| !is_share(p));
            wrong.map(|p| format!("--top-p: expected a number above 0 and at most 1, found {p}"))
        };
        match problem {
            Some(problem) => Err(Error::Prompt(problem)),
            None => Ok(self),
        }
    }

    /// Whether the most likely token is always taken.
    pub fn is_greedy(self) -> bool {
        self.temperature == 0.0
    }
}
