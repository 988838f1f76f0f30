//! The prompt that a user asks to run, and the options for it.

use std::path::PathBuf;

use attnscope_checkpoint::values::Values;

use super::picture::PictureSource;
use super::writing::Sampling;

/// The input that the user asked to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A text; for speech models, the path of a sound file.
    Text(String),
    /// Token ids, used verbatim.
    Ids(Vec<u32>),
    /// A picture, for vision models.
    Picture(PictureSource),
    /// Rows of numbers, [position, feature], for live models that take vectors.
    Values(Values),
}

impl Source {
    /// A picture from a file.
    pub fn picture(path: impl Into<PathBuf>) -> Self {
        Self::Picture(PictureSource::File(path.into()))
    }
}

/// How positions are counted when some tokens are padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Positions {
    /// As the model family does when no positions are given.
    #[default]
    Family,
    /// Over real tokens only.
    Mask,
}

/// The decoder's input, for models with an encoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A text; the start token is prepended. For decoders that read rows of numbers, the path of their file.
    Text(String),
    /// Token ids, used verbatim; they must include the start token.
    Ids(Vec<u32>),
    /// No input: the model generates up to this many tokens.
    Generate(usize),
}

/// Default number of tokens that a decoder generates as its target.
pub const N_GENERATED: usize = 32;

/// Everything that a prompt depends on, apart from the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub source: Source,
    /// Only used by models with an encoder.
    pub target: Target,
    /// 1 for a real token, 0 for padding; one per token.
    pub attention_mask: Option<Vec<bool>>,
    pub positions: Positions,
    /// Whether the tokenizer may add its special tokens.
    pub special_tokens: bool,
    /// Keep the first positions of a text that is too long, instead of refusing it.
    pub truncate: bool,
    /// Number of tokens to generate after the prompt, for models without an encoder.
    pub n_to_write: usize,
    pub sampling: Sampling,
}

impl Request {
    /// A text with default options.
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

    /// Token ids with default options.
    pub fn ids(ids: Vec<u32>) -> Self {
        Self {
            source: Source::Ids(ids),
            ..Self::text("")
        }
    }
}
