//! Turns a panic into a message, so that a thread serving the screen survives it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use attnscope_checkpoint::caught::said_by;

/// Runs some work; a panic ends only this work.
///
/// Such a panic is a bug of attnscope and not of a file, so panic hooks report it, unlike those that
/// `attnscope_checkpoint::caught` catches.
///
/// State that the work changes must be usable after a panic: replaced as a whole, with locks that ignore poison.
///
/// # Errors
/// The panic's message, on one line.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|panic| format!("internal error: {}", said_by(&*panic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_one_line_error_and_a_result_is_passed_through() {
        assert_eq!(caught(|| 3), Ok(3));
        let said = caught(|| -> () { panic!("two\nlines, {}", 2) });
        assert_eq!(said, Err("internal error: two lines, 2".to_owned()));
        let said = caught(|| -> () { std::panic::panic_any(7) }).expect_err("a panic");
        assert!(said.contains("without a message"), "{said}");
    }

    #[test]
    fn a_panic_in_parallel_work_is_caught_by_its_caller() {
        let said = caught(|| rayon::join(|| (), || panic!("in a part")));
        assert_eq!(said.err().as_deref(), Some("internal error: in a part"));
    }
}
