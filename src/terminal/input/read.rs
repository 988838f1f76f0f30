//! Result of parsing the beginning of terminal bytes.

use crossterm::event::Event;

use crate::theme::Ground;

/// A terminal's answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Background colour.
    Background([u8; 3]),
    /// Terminal attributes. A terminal that has not reported a colour before this will not.
    Attributes { has_sixel: bool },
    /// The terminal or its system changed between dark and light.
    Scheme(Ground),
}

/// Beginning of some bytes.
#[derive(Debug, PartialEq)]
pub(super) enum Read {
    /// Incomplete: more bytes are needed.
    Half,
    /// Number of bytes, and their event, if any.
    Whole(usize, Option<Event>),
    /// Number of bytes, and the terminal's answer in them.
    Answer(usize, Answer),
    /// Number of bytes of a paste's start marker; the pasted text follows.
    PasteBegins(usize),
}
