//! The limits that a model sets for its prompts.

use super::picture::PicturePreprocessing;
use super::positions::PositionRule;
use super::prompt::Prompt;
use super::sound::SoundRule;
use super::starts::Starts;

/// What kinds of prompt a model accepts, and how long they may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub d_vocab: usize,
    /// Size of the decoder's vocabulary, if it has its own.
    pub d_vocab_target: Option<usize>,
    pub n_ctx: Option<usize>,
    /// The decoder's context length, if it has its own.
    pub n_ctx_target: Option<usize>,
    /// Whether `n_ctx` is a hard limit because positions are rows of a table. Rotary and relative positions have no limit.
    pub is_n_ctx_hard: bool,
    pub positions: PositionRule,
    /// The token that a decoder's input begins with, for models with an encoder.
    pub start_token: Option<u32>,
    /// How a picture becomes tokens, for vision models.
    pub preprocessing: Option<PicturePreprocessing>,
    /// Tokens after the start token.
    pub starts: Starts,
    /// How a sound is preprocessed, for speech models; a text prompt is then the path of a sound file.
    pub sound: Option<SoundRule>,
    /// The rows of numbers that a decoder reads in place of tokens, if it reads such.
    pub rows_of_target: Option<SoundRule>,
}

impl Limits {
    /// The maximum number of positions; `None` if there is no limit.
    pub fn hard_n_ctx(self) -> Option<usize> {
        self.n_ctx.filter(|_| self.is_n_ctx_hard)
    }

    /// The warning about a prompt that is longer than the model's context but can still run; `None` if it is not longer.
    pub fn beyond(self, prompt: &Prompt) -> Option<String> {
        let n_ctx = self.n_ctx?;
        // The length of a sound is fixed by the encoder, so the decoder's context does not limit it.
        let given = Some(prompt.given()).filter(|given| given.sound.is_none());
        let n = given.map_or(0, |given| given.tokens.len());
        let n = n.max(prompt.tokens.len());
        (n > n_ctx).then(|| {
            format!(
                "the prompt has {n} tokens, more than the {n_ctx} positions of the model's context: it runs all the same"
            )
        })
    }
}
