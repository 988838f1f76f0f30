//! A prompt as the model receives it: tokens, their labels, and their positions.

use std::sync::Arc;

use super::lost::TokenizerLoss;
use super::picture::{Firsts, Picture};
use super::positions::PositionRule;
use super::request::{Source, Target};
use super::sound::Sound;
use super::writing::Sampling;

/// A prompt that the model can run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    pub tokens: Vec<u32>,
    /// The text of each token, or its id if there is no tokenizer.
    pub labels: Vec<String>,
    pub positions: Vec<usize>,
    /// Whether the ids are not known, as in some recordings: `tokens` are then all 0.
    pub lacks_ids: bool,
    /// For each token, whether it is real or padding; `None` if all are real.
    pub real: Option<Vec<bool>>,
    /// Number of tokens dropped by truncation; 0 without it.
    pub n_cut: usize,
    /// The encoder's prompt, if there is an encoder; the other fields are then the decoder's.
    pub source: Option<Box<Prompt>>,
    /// Number of tokens that the model still has to generate.
    pub n_to_generate: usize,
    /// Number of tokens at the end that the model has generated.
    pub n_written: usize,
    /// The text of the generated tokens, set once generation has finished.
    pub written: String,
    pub sampling: Sampling,
    /// How badly the text, or the ids given in its place, fit the tokenizer.
    pub lost: TokenizerLoss,
    /// The picture whose patches are the tokens.
    pub picture: Option<Arc<Picture>>,
    /// The sound that replaces the tokens, which are then only position numbers.
    pub sound: Option<Arc<Sound>>,
}

impl Prompt {
    /// Appends a token that the model generated.
    pub fn push(&mut self, id: u32, label: String, rule: PositionRule) {
        self.tokens.push(id);
        self.labels.push(label);
        match &mut self.real {
            // With a mask, positions may have been counted over real tokens only, whatever `rule` says.
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

    /// The prompt at its maximum length, with a placeholder for every token that the model may still generate.
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

    /// The remark on characters that the tokenizer lost or on a truncated sound; `None` without either. Covers the encoder's and
    /// the decoder's side.
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

    /// How badly the prompt fits the tokenizer, summed over the encoder's and the decoder's side.
    pub fn all_lost(&self) -> TokenizerLoss {
        let source = self.source.as_deref().map(Self::all_lost);
        self.lost.and(source.unwrap_or_default())
    }

    /// The prompt of layers that see a picture's patches merged to this many rows and columns, behind these learned tokens.
    #[must_use]
    pub fn merged_to(&self, grid: [usize; 2], firsts: Firsts) -> Self {
        let n = firsts.len() + grid[0] * grid[1];
        let picture = self.picture.as_ref();
        Self::of_rows(n, picture.map(|picture| picture.merged_to(grid, firsts)))
    }

    /// The prompt of layers that learned tokens joined, before all others.
    #[must_use]
    pub fn joined_by(&self, n_joined: usize) -> Self {
        let picture = self.picture.as_deref().cloned();
        let picture = picture.map(|picture| picture.joined_by(n_joined));
        let joined = Self::of_rows(self.tokens.len() + n_joined, picture);
        if joined.picture.is_some() {
            return joined;
        }
        let firsts = (1..=n_joined).map(|nth| format!("[learned {nth}]"));
        let real = self.real.as_deref().map(|real| {
            let firsts = std::iter::repeat_n(true, n_joined);
            firsts.chain(real.iter().copied()).collect()
        });
        let ids = (0..n_joined as u32).map(|nth| u32::MAX - nth);
        Self {
            tokens: ids.chain(self.tokens.iter().copied()).collect(),
            labels: firsts.chain(self.labels.iter().cloned()).collect(),
            real,
            ..joined
        }
    }

    /// The tokens of this prompt and those of another one behind them.
    #[must_use]
    pub fn before(&self, other: &Self) -> Self {
        let both = [self, other];
        let real = |one: &Self, at: usize| one.real.as_ref().is_none_or(|real| real[at]);
        let each = both
            .into_iter()
            .flat_map(|one| (0..one.tokens.len()).map(move |at| real(one, at)));
        let is_padded = both.iter().any(|one| one.real.is_some());
        Self {
            tokens: [&self.tokens[..], &other.tokens[..]].concat(),
            labels: [&self.labels[..], &other.labels[..]].concat(),
            positions: [&self.positions[..], &other.positions[..]].concat(),
            real: is_padded.then(|| each.collect()),
            ..Self::default()
        }
    }

    /// The tokens of this prompt, and behind them its whole pools of `size` tokens, each labelled by the positions of its first token and its
    /// last.
    #[must_use]
    pub fn with_pools(&self, size: usize) -> Self {
        let size = size.max(1);
        let pools = || self.positions.chunks_exact(size);
        let ids = (0..pools().len() as u32).map(|nth| u32::MAX - nth);
        let labels = pools().map(|pool| format!("[{}–{}]", pool[0], pool[size - 1]));
        let real = self.real.as_deref().map(|real| {
            let of_pools = real.chunks_exact(size).map(|pool| pool.contains(&true));
            real.iter().copied().chain(of_pools).collect()
        });
        Self {
            tokens: self.tokens.iter().copied().chain(ids).collect(),
            labels: self.labels.iter().cloned().chain(labels).collect(),
            positions: {
                let firsts = pools().map(|pool| pool[0]);
                self.positions.iter().copied().chain(firsts).collect()
            },
            real,
            ..Self::default()
        }
    }

    fn of_rows(n: usize, picture: Option<Picture>) -> Self {
        Self {
            tokens: (0..n as u32).collect(),
            labels: picture.as_ref().map(Picture::labels).unwrap_or_default(),
            positions: (0..n).collect(),
            picture: picture.map(Arc::new),
            ..Self::default()
        }
    }

    /// The prompt that the user gave: the encoder's if there is an encoder.
    pub fn given(&self) -> &Prompt {
        self.source.as_deref().unwrap_or(self)
    }

    /// The source of the prompt that the user gave: a picture, the path of a sound, or the ids.
    pub fn given_source(&self) -> Source {
        let given = self.given();
        match (&given.picture, &given.sound) {
            (Some(picture), _) => Source::Picture(picture.source.clone()),
            (None, Some(sound)) => match &sound.rows {
                Some(rows) => Source::Values(rows.clone()),
                None => Source::Text(sound.asked.clone()),
            },
            (None, None) => Source::Ids(given.tokens.clone()),
        }
    }

    /// Returns what gives the decoder's tokens again, or the rows of numbers that it reads in place of tokens.
    pub fn given_target(&self) -> Target {
        match (&self.source, &self.sound) {
            (None, _) => Target::Generate(0),
            (Some(_), None) => Target::Ids(self.tokens.clone()),
            (Some(_), Some(sound)) => match &sound.rows {
                Some(rows) => Target::Text(rows.path().to_string_lossy().into_owned()),
                None => Target::Generate(0),
            },
        }
    }
}
