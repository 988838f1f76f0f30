//! What a person does at the terminal, as events: read by ourselves where crossterm can leave keys unread.
//!
//! crossterm's own reader waits for edges and returns in the middle of a batch at a resize: what it left unread waits for the next
//! key. And it blocks in a half sequence. Here the terminal is asked whether there is something to read, sizes come another way, and a
//! half sequence is given up after a moment.

mod control;
mod parser;
#[cfg(unix)]
mod reader;

use crossterm::event::Event;

/// Reads until the terminal is gone, or `tell` says that nobody listens.
#[cfg(unix)]
pub fn read_events(tell: impl FnMut(Event) -> bool) {
    reader::read_from(std::io::stdin(), tell);
}

/// Reads until the terminal is gone, or `tell` says that nobody listens.
#[cfg(not(unix))]
pub fn read_events(mut tell: impl FnMut(Event) -> bool) {
    while let Ok(event) = crossterm::event::read() {
        if !tell(event) {
            return;
        }
    }
}
