//! The same work again and again, on a pool of so many threads.

use std::time::Instant;

use crate::times::Times;

/// Calls once to warm up, then `n_times`, on a pool of so many threads.
pub fn repeat(n_threads: usize, n_times: usize, mut work: impl FnMut() + Send) -> Times {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(n_threads)
        .build()
        .expect("a pool of threads");
    pool.install(|| {
        work();
        let timed = |_| {
            let started = Instant::now();
            work();
            started.elapsed()
        };
        Times::of((0..n_times).map(timed).collect())
    })
}

/// As many threads as the machine has cores.
pub fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
