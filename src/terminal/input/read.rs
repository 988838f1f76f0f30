//! What bytes of a terminal begin with.

use crossterm::event::Event;

/// What a terminal said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The colour of its background.
    Background([u8; 3]),
    /// Its kind: whoever gives no colour before that gives none.
    Attributes,
}

/// What some bytes begin with.
#[derive(Debug, PartialEq)]
pub(super) enum Read {
    /// More bytes are needed to tell.
    Half,
    /// So many bytes, and what they mean, if anything.
    Whole(usize, Option<Event>),
    /// So many bytes, in which the terminal says something of itself.
    Answer(usize, Answer),
    /// So many bytes, after which what is pasted follows.
    PasteBegins(usize),
}
