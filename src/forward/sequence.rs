//! Tokens as a model takes them.

use std::ops::Range;
use std::sync::Arc;

use attnscope_compute::attention::{AttentionSpec, Globals, Visibility};
use attnscope_prompt::{Picture, Sound};

/// One sequence of tokens, as a model takes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence {
    pub tokens: Vec<u32>,
    /// Position of each token, as the model's position rule counts it.
    pub positions: Vec<usize>,
    /// Which tokens are real; `None` when all are.
    pub real: Option<Vec<bool>>,
    /// What tokens are patches of, for models that see.
    pub picture: Option<Arc<Picture>>,
    /// What is heard in place of tokens, which then are only numbers of places.
    pub sound: Option<Arc<Sound>>,
}

impl Sequence {
    /// Tokens of a text, none of them padding.
    pub fn of_text(tokens: Vec<u32>, positions: Vec<usize>) -> Self {
        Self {
            tokens,
            positions,
            ..Self::default()
        }
    }

    /// Which tokens see each other in an attention among themselves.
    pub fn visibility(&self, spec: &AttentionSpec) -> Visibility {
        let visibility = Visibility::of_self(spec.mask, self.len(), self.real.as_deref());
        match spec.globals {
            Some(globals) => visibility.with_global(self.global(globals)),
            None => visibility,
        }
    }

    /// Which tokens see all others; padding does not.
    pub(super) fn global(&self, globals: Globals) -> Vec<bool> {
        let among = globals.among(&self.tokens).into_iter().enumerate();
        among.map(|(idx, is)| is && self.is_real(idx)).collect()
    }

    /// Its first tokens.
    pub fn first(&self, n: usize) -> Self {
        self.part(0..n.min(self.len()))
    }

    /// Some of its tokens.
    pub fn part(&self, range: Range<usize>) -> Self {
        Self {
            tokens: self.tokens[range.clone()].to_vec(),
            positions: self.positions[range.clone()].to_vec(),
            real: self.real.as_ref().map(|real| real[range].to_vec()),
            picture: self.picture.clone(),
            sound: self.sound.clone(),
        }
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether a token is real, not padding.
    pub fn is_real(&self, position_idx: usize) -> bool {
        self.real.as_ref().is_none_or(|real| real[position_idx])
    }
}

/// Everything a model takes at once: its tokens, and those of its encoder where it has one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Input {
    /// The encoder's tokens.
    pub source: Option<Sequence>,
    /// The tokens of the only stack, or of the decoder.
    pub sequence: Sequence,
}
