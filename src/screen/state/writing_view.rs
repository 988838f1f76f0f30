//! What the model writes, token by token, and what a person looks at of it.

use std::sync::Arc;

use attnscope_prompt::Request;
use attnscope_worker::WrittenToken;

use super::selection::step;

/// What the model has written so far.
#[derive(Debug, Default)]
pub struct WritingView {
    /// What the tokens before read as.
    pub given: Vec<String>,
    /// The encoder's tokens, where there is an encoder.
    pub keys: Option<Vec<String>>,
    /// What A wrote, and B where another model stands beside it.
    pub sides: Vec<WrittenSide>,
    /// The side that is looked at.
    pub side: usize,
    pub n_most: usize,
    /// The token that is looked at; the newest one where there is none.
    pub looked_at: Option<usize>,
    pub state: WritingState,
    /// The whole text, once it is there and does not run yet.
    pub to_run: Option<Request>,
}

/// What one model wrote.
#[derive(Debug, Default)]
pub struct WrittenSide {
    pub model: String,
    pub tokens: Vec<Arc<WrittenToken>>,
}

/// How far writing has come.
#[derive(Debug, Default, PartialEq)]
pub enum WritingState {
    #[default]
    Reading,
    Going,
    Ended,
    /// Says why.
    BrokeOff(String),
}

impl WritingView {
    /// What the side that is looked at wrote.
    pub fn tokens(&self) -> &[Arc<WrittenToken>] {
        self.sides
            .get(self.side)
            .map_or(&[], |side| side.tokens.as_slice())
    }

    /// The token that is looked at.
    pub fn shown(&self) -> Option<(usize, &WrittenToken)> {
        let tokens = self.tokens();
        let last = tokens.len().checked_sub(1)?;
        let idx = self.looked_at.unwrap_or(last).min(last);
        Some((idx, &tokens[idx]))
    }

    /// What the keys of a row read as.
    pub fn label(&self, is_cross: bool, key_idx: usize) -> &str {
        let label = match &self.keys {
            Some(keys) if is_cross => keys.get(key_idx),
            _ => self.given.get(key_idx),
        };
        let written = || {
            let token = self.tokens().get(key_idx.checked_sub(self.given.len())?)?;
            Some(&token.label)
        };
        label.or_else(written).map_or("", String::as_str)
    }

    pub fn is_going(&self) -> bool {
        matches!(self.state, WritingState::Reading | WritingState::Going)
    }

    /// To another token; beyond the newest one, to whichever is the newest.
    pub fn walk(&mut self, by: isize) {
        let n = self.tokens().len();
        let last = n.saturating_sub(1);
        let at = step(self.looked_at.unwrap_or(last), by, n);
        // Beyond the last token, the view follows what is written.
        self.looked_at = (at < last).then_some(at);
    }
}
