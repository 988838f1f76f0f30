//! Panics of libraries that a file can make stumble, turned into messages.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread ends as an ordinary error, so that a hook need not tell of it.
pub fn panics_are_caught() -> bool {
    IS_CAUGHT.get()
}

/// Does the work of a library on input that may be damaged. What the work changed must not be used after a panic.
///
/// # Errors
/// What the panic said, on one line.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(before);
    result.map_err(|panic| said_by(&*panic))
}

/// What a panic says, on one line.
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
    fn a_panic_is_one_line_and_told_only_while_it_is_caught() {
        assert_eq!(caught(|| 3), Ok(3));
        let said = caught(|| -> () {
            assert!(panics_are_caught());
            panic!("two\nlines, {}", 2)
        });
        assert_eq!(said, Err("two lines, 2".to_owned()));
        assert!(!panics_are_caught());
    }
}
