//! A history from a log that is compiled into the program.

use attnscope_compute::error::Result;

use super::log::batch_of;
use super::value::{History, Origin, Update};

/// Parses a log into a history.
///
/// # Errors
/// When its first line is not the header of a log.
pub fn of_text(name: &str, text: &str) -> Result<History> {
    let mut history = History::new(name.to_owned(), Origin::Log);
    history.apply(Update::Log(batch_of(name, text)?));
    Ok(history)
}
