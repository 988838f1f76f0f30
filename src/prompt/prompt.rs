//! A prompt as a model takes it: tokens, what they read as, and where they stand.

use std::sync::Arc;

use super::lost::TokenizerLoss;
use super::picture::Picture;
use super::positions::PositionRule;
use super::request::Source;
use super::sound::Sound;
use super::writing::Sampling;

/// A prompt that the model can run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    pub tokens: Vec<u32>,
    /// What each token reads as; its id where there is no tokenizer.
    pub labels: Vec<String>,
    pub positions: Vec<usize>,
    /// `None` when every token is real.
    pub real: Option<Vec<bool>>,
    /// Tokens dropped because the text was too long and cutting was asked for.
    pub n_cut: usize,
    /// The encoder's side; then the rest is the decoder's.
    pub source: Option<Box<Prompt>>,
    /// How many tokens the model is to write after these.
    pub n_to_generate: usize,
    /// How many of the last tokens the model wrote.
    pub n_written: usize,
    /// What they read as together, once all are there.
    pub written: String,
    pub sampling: Sampling,
    /// How much of a text came through the tokenizer.
    pub lost: TokenizerLoss,
    /// What its tokens are patches of.
    pub picture: Option<Arc<Picture>>,
    /// What is heard in place of tokens, which then are only numbers of places.
    pub sound: Option<Arc<Sound>>,
}

impl Prompt {
    /// Adds a token that the model wrote.
    pub fn push(&mut self, id: u32, label: String, rule: PositionRule) {
        self.tokens.push(id);
        self.labels.push(label);
        match &mut self.real {
            // Positions may be counted over real tokens, whatever the rule.
            Some(real) => {
                real.push(true);
                let last = self.positions.last().copied();
                self.positions.push(last.map_or(0, |last| last + 1));
            }
            None => self.positions = rule.positions(&self.tokens, None),
        }
        self.n_to_generate = self.n_to_generate.saturating_sub(1);
        self.n_written += 1;
    }

    /// The prompt at its longest, with something in the place of every token that the model may still write.
    pub fn longest(&self) -> Self {
        let mut longest = self.clone();
        let n_longest = self.tokens.len() + self.n_to_generate;
        let last = |values: &[usize]| values.last().copied().unwrap_or(0);
        longest.tokens.resize(n_longest, 0);
        longest.positions.resize(n_longest, last(&self.positions));
        if let Some(real) = &mut longest.real {
            real.resize(n_longest, true);
        }
        longest
    }

    /// What there is to say of characters that did not come through the tokenizer, or of a file that did not come through whole;
    /// of a model of two stacks, of both sides.
    pub fn lost_words(&self) -> Option<String> {
        let sides = self.source.as_deref().into_iter().chain([self]);
        let said: Vec<String> = sides
            .filter_map(|side| {
                side.lost
                    .words()
                    .or_else(|| side.sound.as_ref()?.said.clone())
            })
            .collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// How much did not come through the tokenizer; of a model of two stacks, of both sides.
    pub fn all_lost(&self) -> TokenizerLoss {
        let source = self.source.as_deref().map(Self::all_lost);
        self.lost.and(source.unwrap_or_default())
    }

    /// The prompt whose tokens a person gave: the encoder's where there is one.
    pub fn given(&self) -> &Prompt {
        self.source.as_deref().unwrap_or(self)
    }

    /// What was asked for on the side that a person gives: the path of a sound, or the ids.
    pub fn given_source(&self) -> Source {
        let given = self.given();
        match (&given.picture, &given.sound) {
            (Some(picture), _) => Source::Picture(picture.source.clone()),
            (None, Some(sound)) => Source::Text(sound.asked.clone()),
            (None, None) => Source::Ids(given.tokens.clone()),
        }
    }
}
