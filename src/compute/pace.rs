//! Progress and cancellation of running work.

/// Receives the progress of work, and can stop it. Checked often enough that a stop takes effect within 50 ms.
pub trait Pace: Sync {
    /// Whether to stop.
    fn stops(&self) -> bool;
    /// Called after this many multiply-adds.
    fn did(&self, _multiply_adds: u64) {}
}

/// A closure only answers whether to stop; progress is ignored.
impl<F: Fn() -> bool + Sync> Pace for F {
    fn stops(&self) -> bool {
        self()
    }
}
