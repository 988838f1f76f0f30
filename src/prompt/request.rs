//! What a person asks to run, and how.

use std::path::PathBuf;

use super::picture::PictureSource;
use super::writing::Sampling;

/// What a person asked to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A text; the path of a sound, where the model hears.
    Text(String),
    /// Used verbatim.
    Ids(Vec<u32>),
    /// For models that see.
    Picture(PictureSource),
}

impl Source {
    /// The picture of a file.
    pub fn picture(path: impl Into<PathBuf>) -> Self {
        Self::Picture(PictureSource::File(path.into()))
    }
}

/// How positions are counted when some tokens are padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Positions {
    /// As the family does when none are given.
    #[default]
    Family,
    /// Over real tokens only.
    Mask,
}

/// What the decoder of a model with an encoder is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A text; the start token is put before it.
    Text(String),
    /// Used verbatim, the start token included.
    Ids(Vec<u32>),
    /// Nothing: the model writes up to so many tokens itself.
    Generate(usize),
}

/// Tokens that a model writes itself unless a number is given.
pub const N_GENERATED: usize = 32;

/// Everything a prompt depends on beside the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub source: Source,
    /// Only models with an encoder have one.
    pub target: Target,
    /// 1 for a real token, 0 for padding; one per token.
    pub attention_mask: Option<Vec<bool>>,
    pub positions: Positions,
    /// Whether the tokenizer may add its special tokens.
    pub special_tokens: bool,
    /// Keep the first positions of a text that is too long, instead of refusing it.
    pub truncate: bool,
    /// How many tokens a model of one stack writes behind its prompt.
    pub n_to_write: usize,
    pub sampling: Sampling,
}

impl Request {
    /// A plain text, as a person types it.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            source: Source::Text(text.into()),
            target: Target::Generate(N_GENERATED),
            attention_mask: None,
            positions: Positions::Family,
            special_tokens: true,
            truncate: false,
            n_to_write: 0,
            sampling: Sampling::default(),
        }
    }

    /// Plain ids.
    pub fn ids(ids: Vec<u32>) -> Self {
        Self {
            source: Source::Ids(ids),
            ..Self::text("")
        }
    }
}
