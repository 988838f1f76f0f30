//! Runs library code that a file can make endless, huge or panicking, on a thread that can be abandoned.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use attnscope_checkpoint::caught::caught;

/// Time limit of any call, and extra time per byte.
const TIME: Duration = Duration::from_secs(4);
const TIME_PER_BYTE: Duration = Duration::from_micros(10);

/// Runs work over `n_bytes`, with a time limit.
///
/// Work that takes too long continues until it or the process ends, because a thread cannot be stopped from outside.
///
/// # Errors
/// One clause: that it took too long, that the library panicked, or the work's own error.
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
        // After a timeout, nobody receives the result.
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
    fn results_errors_and_panics_are_returned() {
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
    fn endless_work_is_abandoned() {
        let endless = within::<()>(Duration::from_millis(900), || {
            loop {
                thread::park();
            }
        });
        assert_eq!(endless, Err("took more than 1 s".to_owned()));
    }
}
