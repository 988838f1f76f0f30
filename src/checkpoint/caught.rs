//! Turns panics of libraries on malformed files into error messages.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether panics of this thread are caught and become errors, so that a panic hook need not report them.
pub fn panics_are_caught() -> bool {
    IS_CAUGHT.get()
}

/// Calls a library on input that may be damaged. After a panic, do not use anything that `work` has changed.
///
/// # Errors
/// The panic's message, on one line.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(before);
    result.map_err(|panic| said_by(&*panic))
}

/// Extracts the message of a panic, on one line.
pub fn said_by(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("a panic without a message");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caught_panic_becomes_a_one_line_error() {
        assert_eq!(caught(|| 3), Ok(3));
        let said = caught(|| -> () {
            assert!(panics_are_caught());
            panic!("two\nlines, {}", 2)
        });
        assert_eq!(said, Err("two lines, 2".to_owned()));
        assert!(!panics_are_caught());
    }
}
