//! How a decoder begins: its start token, what is written before its own first choice, and what it must not write.

use attnscope_prompt::{Prefix, Starts};

/// How a decoder reads the text of its encoder again, one place later, where it has nothing to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadsAgain {
    /// It does not: a target has to be given.
    Never,
    /// After its start token, where its head gives labels.
    ForLabels,
    /// After its start token, whatever its head.
    Shifted,
    /// After the text's own last token.
    Rotated,
}

/// What a decoder writes at one place whatever the logits say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forced {
    Token(u32),
    /// The likeliest of some: a language that is to be recognised.
    OneOf(Vec<u32>),
}

/// What a model with an encoder needs beside its stacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecoderStart {
    /// The token that a target begins with.
    pub start_token: u32,
    /// Tokens that end one.
    pub end_tokens: Vec<u32>,
    /// Tokens that follow it, before what the model writes and before a text that is given.
    pub prefixes: [Prefix; 2],
    /// What is written first whatever the logits say: a language, or the beginning of a sentence.
    pub forced: Vec<Forced>,
    /// Tokens that are never written.
    pub never_written: Vec<u32>,
    /// Tokens that are not written first.
    pub never_first: Vec<u32>,
    /// The decoder reads the encoder's text again where no target is given.
    pub reads_again: ReadsAgain,
    /// Ids mean other words than those of the encoder.
    pub has_own_vocabulary: bool,
}

impl DecoderStart {
    /// What a target begins with.
    pub(super) fn starts(&self) -> Starts {
        Starts {
            of_written: self.prefixes[0],
            of_text: self.prefixes[1],
            // One token alone, a language, counts as written.
            n_forced: match self.forced.len() {
                1 => 0,
                n => n,
            },
        }
    }

    /// What is written behind a target of so many tokens whatever the logits say.
    pub fn forced_after(&self, n_tokens: usize) -> Option<&Forced> {
        let n_before = 1 + self.prefixes[0].ids().len();
        self.forced.get(n_tokens.checked_sub(n_before)?)
    }

    /// Whether the next token is the first that the model chooses itself.
    pub fn is_first_choice(&self, n_tokens: usize) -> bool {
        n_tokens == 1 + self.prefixes[0].ids().len() + self.forced.len()
    }
}
