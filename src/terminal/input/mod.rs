//! What a person does at the terminal, as events: read by ourselves where crossterm can leave keys unread.
//!
//! crossterm's own reader waits for edges and returns in the middle of a batch at a resize: what it left unread waits for the next
//! key. And it blocks in a half sequence. Here the terminal is asked whether there is something to read, sizes come another way, and a
//! half sequence is given up after a moment.

mod answer;
mod control;
mod parser;
mod read;
#[cfg(unix)]
mod reader;

use crossterm::event::Event;

pub use self::read::Answer;

/// What comes from a terminal.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// What a person did.
    Event(Event),
    /// What the terminal says of itself, because it was asked.
    Answer(Answer),
}

/// Reads until the terminal is gone, or `tell` says that nobody listens.
#[cfg(unix)]
pub fn read_input(tell: impl FnMut(Input) -> bool) {
    reader::read_from(std::io::stdin(), tell);
}

/// Reads until the terminal is gone, or `tell` says that nobody listens.
#[cfg(not(unix))]
pub fn read_input(mut tell: impl FnMut(Input) -> bool) {
    while let Ok(event) = crossterm::event::read() {
        if !tell(Input::Event(event)) {
            return;
        }
    }
}
