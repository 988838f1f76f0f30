//! A token of a text, and what it stands for there.

use std::ops::Range;

/// A token of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: u32,
    /// The bytes of the text that it stands for; none where it was put around the text.
    pub bytes: Range<usize>,
    /// Whether it is no text: put around one, or found in it as a special token.
    pub is_special: bool,
    /// Whether it says what the text is, and not that this is unknown.
    pub is_known: bool,
}
