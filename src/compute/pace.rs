//! Work under way: how much of it is done, and whether somebody wants it stopped.

/// Hears of work as it is done, and can stop it. Asked often enough that a stop takes effect within 50 ms.
pub trait Pace: Sync {
    /// Whether to stop.
    fn stops(&self) -> bool;
    /// So many multiplications and additions have been done.
    fn did(&self, _multiply_adds: u64) {}
}

/// A question alone counts nothing.
impl<F: Fn() -> bool + Sync> Pace for F {
    fn stops(&self) -> bool {
        self()
    }
}
