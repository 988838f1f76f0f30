//! Reports the completed share of a run's arithmetic, a few hundred times at most.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use attnscope_compute::pace::Pace;

use super::event::{Event, Sink};
use super::run_id::RunId;

/// Number of progress steps of a run: finer than any gauge, and cheap for listeners.
const STEPS: u64 = 200;

/// A run's pace that also sends progress events.
pub(super) struct ProgressPace<'a> {
    run: RunId,
    sink: &'a Sink,
    pace: &'a dyn Pace,
    all: u64,
    done: AtomicU64,
    /// Number of steps reported.
    told: AtomicU64,
    began: Instant,
}

impl<'a> ProgressPace<'a> {
    pub fn new(run: RunId, sink: &'a Sink, pace: &'a dyn Pace, all: u64) -> Self {
        Self {
            run,
            sink,
            pace,
            all: all.max(1),
            done: AtomicU64::new(0),
            told: AtomicU64::new(0),
            began: Instant::now(),
        }
    }
}

impl Pace for ProgressPace<'_> {
    fn stops(&self) -> bool {
        self.pace.stops()
    }

    fn did(&self, multiply_adds: u64) {
        let done = self.done.fetch_add(multiply_adds, Ordering::Relaxed) + multiply_adds;
        let step = (done.saturating_mul(STEPS) / self.all).min(STEPS);
        if self.told.fetch_max(step, Ordering::Relaxed) < step {
            (self.sink)(Event::Work {
                run: self.run,
                share: step as f32 / STEPS as f32,
                passed: self.began.elapsed(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn progress_only_grows_and_ends_at_1() {
        let shares: Arc<Mutex<Vec<f32>>> = Arc::default();
        let heard = shares.clone();
        let sink: Sink = Arc::new(move |event| {
            if let Event::Work { share, .. } = event {
                heard.lock().expect("a lock").push(share);
            }
        });
        let told = ProgressPace::new(1, &sink, &|| false, 10_000);
        (0..10_500).for_each(|_| told.did(1));
        let shares = shares.lock().expect("a lock");
        assert_eq!((shares.len() as u64, shares.last()), (STEPS, Some(&1.0)));
        assert!(shares.is_sorted());
    }
}
