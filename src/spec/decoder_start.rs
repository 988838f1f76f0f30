//! How a decoder begins: its start token, the tokens it is forced to write first, and the tokens it must not write.

use attnscope_prompt::{Prefix, Starts};

/// Whether, and shifted how, a decoder reads the encoder's tokens when no target is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecoderInput {
    /// Never: a target must be given.
    Never,
    /// After the start token, if the head gives labels.
    ShiftedForLabels,
    /// After the start token, with any head.
    Shifted,
    /// After the text's last token, which is moved to the front.
    LastTokenFirst,
}

/// What a decoder must write at one position, whatever the logits say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forced {
    Token(u32),
    /// The most likely of these tokens, such as a language to be detected.
    OneOf(Vec<u32>),
}

/// How the decoder of an encoder–decoder model begins, and what it may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecoderStart {
    /// First token of every target.
    pub start_token: u32,
    /// Tokens that end a target.
    pub end_tokens: Vec<u32>,
    /// Tokens that follow the start token: before generated text, and before a given text.
    pub prefixes: [Prefix; 2],
    /// Tokens written first, whatever the logits say: a language, or the beginning of a sentence.
    pub forced: Vec<Forced>,
    /// Tokens that are never written.
    pub never_written: Vec<u32>,
    /// Tokens that are not written first.
    pub never_first: Vec<u32>,
    /// How the decoder reads the encoder's tokens when no target is given.
    pub reads_again: DecoderInput,
    /// The decoder's token ids belong to another vocabulary than the encoder's.
    pub has_own_vocabulary: bool,
}

impl DecoderStart {
    /// Tokens that begin a target.
    pub(super) fn starts(&self) -> Starts {
        Starts {
            of_written: self.prefixes[0],
            of_text: self.prefixes[1],
            // A single forced token (a language) is treated as part of the generated text.
            n_forced: match self.forced.len() {
                1 => 0,
                n => n,
            },
        }
    }

    /// The token forced after a target of `n_tokens` tokens, whatever the logits say.
    pub fn forced_after(&self, n_tokens: usize) -> Option<&Forced> {
        let n_before = 1 + self.prefixes[0].ids().len();
        self.forced.get(n_tokens.checked_sub(n_before)?)
    }

    /// Whether the next token is the first that the model chooses itself.
    pub fn is_first_choice(&self, n_tokens: usize) -> bool {
        n_tokens == 1 + self.prefixes[0].ids().len() + self.forced.len()
    }
}
