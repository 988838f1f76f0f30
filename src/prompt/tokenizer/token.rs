//! A token and the part of the text that it covers.

use std::ops::Range;

/// A token of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: u32,
    /// The bytes of the text that it covers; empty for a token added around the text.
    pub bytes: Range<usize>,
    /// Whether it is a special token, added around the text or found in it.
    pub is_special: bool,
    /// Whether it is not the unknown token.
    pub is_known: bool,
}
