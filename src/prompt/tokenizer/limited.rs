//! Work of a library that a file can make endless, huge or broken: done on a thread that can be given up.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use attnscope_checkpoint::caught::caught;

/// Time for anything at all, and more for every byte.
const TIME: Duration = Duration::from_secs(4);
const TIME_PER_BYTE: Duration = Duration::from_micros(10);

/// Does some work that goes through `n_bytes`, unless it takes too long.
///
/// What takes too long goes on by itself until it ends or the process does: a thread cannot be stopped from outside.
///
/// # Errors
/// One clause: that it took too long, that the library stumbled, or what it says itself.
pub fn within_limits<T: Send + 'static>(
    n_bytes: usize,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let n_bytes = n_bytes.try_into().unwrap_or(u32::MAX);
    within(TIME + TIME_PER_BYTE.saturating_mul(n_bytes), work)
}

fn within<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, done) = mpsc::channel();
    let body = move || {
        let result = caught(work);
        // Nobody listens any more when it took too long.
        drop(sender.send(result));
    };
    thread::Builder::new()
        .name("tokenizer".to_owned())
        .spawn(body)
        .map_err(|e| format!("no thread for it: {e}"))?;
    match done.recv_timeout(time) {
        Ok(Ok(result)) => result,
        Ok(Err(said)) => Err(format!("the tokenizer stumbled: {said}")),
        Err(_) => Err(format!("took more than {:.0} s", time.as_secs_f32())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_checkpoint::caught::panics_are_caught;

    #[test]
    fn results_errors_and_panics_come_back() {
        assert_eq!(within_limits(0, || Ok(7)), Ok(7));
        let refused = within_limits::<()>(0, || Err("no".to_owned()));
        assert_eq!(refused, Err("no".to_owned()));
        let broken = within_limits::<()>(0, || {
            assert!(panics_are_caught());
            panic!("index {}\nout of range", 3)
        });
        let said = broken.expect_err("a panic");
        assert_eq!(said, "the tokenizer stumbled: index 3 out of range");
        assert!(!panics_are_caught());
    }

    #[test]
    fn what_does_not_end_is_given_up() {
        let endless = within::<()>(Duration::from_millis(900), || {
            loop {
                thread::park();
            }
        });
        assert_eq!(endless, Err("took more than 1 s".to_owned()));
    }
}
