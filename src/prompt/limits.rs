//! What a model allows a prompt to be.

use super::picture::PicturePreprocessing;
use super::positions::PositionRule;
use super::prompt::Prompt;
use super::sound::SoundRule;
use super::starts::Starts;

/// What a model allows a prompt to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub d_vocab: usize,
    /// The decoder's vocabulary, where its ids mean other words.
    pub d_vocab_target: Option<usize>,
    pub n_ctx: Option<usize>,
    /// The decoder's positions, where they are counted apart.
    pub n_ctx_target: Option<usize>,
    /// Whether positions are rows of a table, so that none lie beyond `n_ctx`. Rotary and relative ones go on for ever.
    pub is_n_ctx_hard: bool,
    pub positions: PositionRule,
    /// The token that a decoder's input begins with, for models with an encoder.
    pub start_token: Option<u32>,
    /// How a picture becomes tokens, for models that see.
    pub look: Option<PicturePreprocessing>,
    /// What follows it.
    pub starts: Starts,
    /// How a sound is heard, for models that hear: a text is the path of one.
    pub sound: Option<SoundRule>,
}

impl Limits {
    /// The most positions that there are; `None` where there is no last one.
    pub fn hard_n_ctx(self) -> Option<usize> {
        self.n_ctx.filter(|_| self.is_n_ctx_hard)
    }

    /// What to say of a prompt that goes beyond the context of a model whose positions go on; `None` where it does not.
    pub fn beyond(self, prompt: &Prompt) -> Option<String> {
        let n_ctx = self.n_ctx?;
        // A sound is as long as the model hears, whatever the decoder's context.
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
