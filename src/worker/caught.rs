//! A panic of some work, turned into a message: a thread that serves the screen goes on after it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use attnscope_checkpoint::caught::said_by;

/// Does some work; a panic ends the work alone.
///
/// It is a mistake of ours, not of a file: hooks tell of it, unlike of those that `attnscope_checkpoint::caught` catches.
///
/// What the work changed must be usable after a panic: state that is replaced whole, and locks that ignore poison.
///
/// # Errors
/// What the panic said, on one line.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|panic| format!("internal error: {}", said_by(&*panic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_one_line_and_the_result_stays_a_result() {
        assert_eq!(caught(|| 3), Ok(3));
        let said = caught(|| -> () { panic!("two\nlines, {}", 2) });
        assert_eq!(said, Err("internal error: two lines, 2".to_owned()));
        let said = caught(|| -> () { std::panic::panic_any(7) }).expect_err("a panic");
        assert!(said.contains("without a message"), "{said}");
    }

    #[test]
    fn a_panic_of_parallel_work_is_caught_where_it_was_begun() {
        let said = caught(|| rayon::join(|| (), || panic!("in a part")));
        assert_eq!(said.err().as_deref(), Some("internal error: in a part"));
    }
}
