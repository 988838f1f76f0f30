//! Terminal input as events, read without crossterm's reader, which can leave keys unread.
//!
//! crossterm's reader is edge-triggered and returns in the middle of a batch on a resize, so the rest waits for the next key.
//! It also blocks in an incomplete sequence. This reader polls the terminal, gets sizes another way, and gives up an incomplete
//! sequence after a short time.

mod answer;
mod control;
#[cfg(unix)]
mod hold;
mod parser;
mod read;
#[cfg(unix)]
mod reader;

use crossterm::event::Event;

#[cfg(unix)]
pub use self::hold::{Held, InputHold};
pub use self::read::Answer;

/// Input from a terminal.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Key, mouse, paste or focus event.
    Event(Event),
    /// The terminal's answer to a question.
    Answer(Answer),
}

/// Reads until the terminal is gone, or `tell` returns false. Nothing is read while `hold` is held.
#[cfg(unix)]
pub fn read_input(hold: &InputHold, tell: impl FnMut(Input) -> bool) {
    reader::read_from(std::io::stdin(), hold, tell);
}

/// Reads until the terminal is gone, or `tell` returns false.
#[cfg(not(unix))]
pub fn read_input(mut tell: impl FnMut(Input) -> bool) {
    while let Ok(event) = crossterm::event::read() {
        if !tell(Input::Event(event)) {
            return;
        }
    }
}
