//! Kinds of tokens, told from their pieces of text: disagreements that follow the tokenizer show as one of them.

use std::collections::HashMap;

use attnscope_prompt::Tokenizer;

use super::scored::{LogProbs, ScoredPrompt};

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenKind {
    /// A token that stands for no text.
    Special,
    Whitespace,
    /// The first piece of a word.
    WordStart,
    /// Any later piece of a word.
    WordInside,
    Digits,
    /// Punctuation and other signs.
    Punctuation,
    /// Text with a character beyond ASCII.
    NonAscii,
    /// A byte of a character.
    Byte,
}

impl TokenKind {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Special,
        Self::Whitespace,
        Self::WordStart,
        Self::WordInside,
        Self::Digits,
        Self::Punctuation,
        Self::NonAscii,
        Self::Byte,
    ];

    /// Its name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Self::Special => "special",
            Self::Whitespace => "whitespace",
            Self::WordStart => "word-start",
            Self::WordInside => "word-inside",
            Self::Digits => "digits",
            Self::Punctuation => "punctuation",
            Self::NonAscii => "non-ascii",
            Self::Byte => "byte",
        }
    }

    /// Its name in tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::Special => "special",
            Self::Whitespace => "whitespace",
            Self::WordStart => "beginning of a word",
            Self::WordInside => "inside a word",
            Self::Digits => "digits",
            Self::Punctuation => "punctuation",
            Self::NonAscii => "not ASCII",
            Self::Byte => "byte of a character",
        }
    }

    /// The kind of a piece that is not special. `before` is the text of the token in front of it; in a vocabulary that marks
    /// continuations (`##ing`), what has no mark begins a word.
    fn of(text: &str, before: &str, marks_inside: bool) -> Self {
        let is_byte = text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        if is_byte || text.contains('\u{fffd}') {
            return Self::Byte;
        }
        let bare = text.strip_prefix(INSIDE).filter(|_| marks_inside);
        let is_marked = bare.is_some();
        let bare = bare.unwrap_or(text).trim();
        if bare.is_empty() {
            return Self::Whitespace;
        }
        if !bare.is_ascii() {
            return Self::NonAscii;
        }
        if bare.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::Digits;
        }
        if !bare.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
            return Self::Punctuation;
        }
        let follows_word = before.ends_with(char::is_alphanumeric);
        let is_inside = if marks_inside {
            is_marked
        } else {
            follows_word && !text.starts_with(char::is_whitespace)
        };
        if is_inside {
            Self::WordInside
        } else {
            Self::WordStart
        }
    }
}

/// What WordPiece writes before a piece inside a word.
const INSIDE: &str = "##";

impl LogProbs {
    /// Gives every token the text that a tokenizer has for its id.
    pub fn spell(&mut self, tokenizer: &Tokenizer) {
        let mut known: HashMap<u32, (String, bool)> = HashMap::new();
        let prompts = self.prompts.iter_mut();
        for token in prompts.flat_map(|prompt| &mut prompt.tokens) {
            let Some(id) = token.id else { continue };
            let read = || (tokenizer.label(id), tokenizer.is_special(id));
            let (label, is_special) = known.entry(id).or_insert_with(read);
            token.piece = Some(label.clone());
            token.is_special = *is_special;
        }
    }

    /// The kinds of all tokens; `None` where their pieces of text are not known. // [prompt][token]
    pub(super) fn kinds(&self) -> Option<Vec<Vec<TokenKind>>> {
        let tokens = || self.prompts.iter().flat_map(|prompt| &prompt.tokens);
        let is_text = tokens().any(|token| {
            let id = token.id.map(|id| id.to_string());
            let piece = token.piece.as_deref();
            piece.is_some_and(|piece| id.is_none_or(|id| piece != id))
        });
        let marks_inside = tokens().any(|token| {
            let piece = token.piece.as_deref();
            piece.is_some_and(|piece| piece.len() > INSIDE.len() && piece.starts_with(INSIDE))
        });
        let has_all = tokens().all(|token| token.piece.is_some());
        let of = |prompt: &ScoredPrompt| of_prompt(prompt, marks_inside);
        (is_text && has_all).then(|| self.prompts.iter().map(of).collect())
    }
}

fn of_prompt(prompt: &ScoredPrompt, marks_inside: bool) -> Vec<TokenKind> {
    let mut before = String::new();
    let mut kinds = Vec::with_capacity(prompt.tokens.len());
    for token in &prompt.tokens {
        let text = spaced(token.piece.as_deref().unwrap_or_default());
        kinds.push(if token.is_special {
            TokenKind::Special
        } else {
            TokenKind::of(&text, &before, marks_inside)
        });
        before = if token.is_special {
            String::new()
        } else {
            text
        };
    }
    kinds
}

/// A piece with the blanks that vocabularies write as letters.
fn spaced(piece: &str) -> String {
    piece.replace(['▁', 'Ġ'], " ").replace('Ċ', "\n")
}

#[cfg(test)]
mod tests {
    use super::super::scored::ScoredToken;
    use super::*;

    fn kinds(pieces: &[&str]) -> Option<Vec<TokenKind>> {
        let token = |(idx, piece): (usize, &&str)| ScoredToken {
            id: Some(idx as u32),
            piece: Some((*piece).to_owned()),
            is_special: piece.starts_with("<s"),
            ..ScoredToken::default()
        };
        let prompt = ScoredPrompt {
            tokens: pieces.iter().enumerate().map(token).collect(),
            ..ScoredPrompt::default()
        };
        let table = LogProbs {
            prompts: vec![prompt],
            ..LogProbs::default()
        };
        Some(table.kinds()?.remove(0))
    }

    #[test]
    fn kinds_are_told_from_pieces_and_what_stands_before_them() {
        use TokenKind::*;
        let found = kinds(&[
            "<s>",
            "Token",
            "izer",
            "Ġ19",
            "42",
            ",",
            "▁naïve",
            "<0xE2>",
            "Ċ",
            "(",
            "a",
            "1b",
        ]);
        let expected = [
            Special,
            WordStart,
            WordInside,
            Digits,
            Digits,
            Punctuation,
            NonAscii,
            Byte,
            Whitespace,
            Punctuation,
            WordStart,
            WordInside,
        ];
        assert_eq!(found.as_deref(), Some(expected.as_slice()));
        // Pieces of WordPiece have no blanks.
        let found = kinds(&["un", "##told", "story", "##6", "."]);
        let expected = [WordStart, WordInside, WordStart, Digits, Punctuation];
        assert_eq!(found.as_deref(), Some(expected.as_slice()));
    }

    #[test]
    fn ids_as_text_are_no_pieces() {
        assert_eq!(kinds(&["0", "1", "2"]), None);
    }
}
