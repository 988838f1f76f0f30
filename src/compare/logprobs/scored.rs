//! Log-probabilities of tokens as one program gave them.

/// One token, and what was said of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScoredToken {
    pub id: Option<u32>,
    /// The token as text, where the program gave no id, or beside it.
    pub piece: Option<String>,
    /// Whether a tokenizer says that it stands for no text.
    pub is_special: bool,
    /// ln p of the token given all before it; `None` where nothing was said, as of a first token.
    pub logprob: Option<f64>,
    /// The likeliest tokens at this place and their ln p, in descending order.
    pub top: Vec<(u32, f64)>,
}

/// The tokens of one prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScoredPrompt {
    pub name: String,
    pub tokens: Vec<ScoredToken>,
    /// Whether tokens that stood before these are not known, so that no model can be asked about them.
    pub lacks_context: bool,
}

impl ScoredPrompt {
    /// All ids; `None` if one of them is not known.
    pub fn ids(&self) -> Option<Vec<u32>> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    /// Number of tokens of which something was said.
    pub fn n_scored(&self) -> usize {
        let scored = self.tokens.iter();
        scored.filter(|token| token.logprob.is_some()).count()
    }
}

/// A table: what one program said of some prompts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogProbs {
    /// What wrote it, or in what form it is.
    pub form: String,
    pub prompts: Vec<ScoredPrompt>,
    /// Half of the last digit that values were written with, where all have few.
    pub quantum: f64,
    /// What was left out or could not be used, in one line each.
    pub notes: Vec<String>,
}

impl LogProbs {
    pub fn n_scored(&self) -> usize {
        self.prompts.iter().map(ScoredPrompt::n_scored).sum()
    }

    /// Every log-probability with its place, in order: prompt, token, ln p.
    pub fn values(&self) -> impl Iterator<Item = (usize, usize, f64)> {
        let prompts = self.prompts.iter().enumerate();
        prompts.flat_map(|(prompt_idx, prompt)| {
            let tokens = prompt.tokens.iter().enumerate();
            tokens.filter_map(move |(idx, token)| Some((prompt_idx, idx, token.logprob?)))
        })
    }

    /// Notes how coarsely the values were written: 3 to 6 decimals.
    pub fn find_quantum(&mut self) {
        let is_multiple = |unit: f64| {
            let mut values = self.values().map(|(.., value)| value);
            values.all(|value| {
                let scaled = value / unit;
                !value.is_finite() || (scaled - scaled.round()).abs() < 1e-6 * scaled.abs().max(1.0)
            })
        };
        let has_many = self.values().count() >= 8;
        let found = [1e-2, 1e-3, 1e-4, 1e-5]
            .into_iter()
            .find(|unit| is_multiple(*unit));
        self.quantum = found.filter(|_| has_many).map_or(0.0, |unit| 0.5 * unit);
    }
}
