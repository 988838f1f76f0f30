//! A thread that does one job at a time: one running, one waiting, the newest wins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use attnscope_compute::pace::Pace;

use super::caught::caught;

/// A thread with one job running and at most one waiting; it ends when this is dropped, and the running job is stopped.
pub(super) struct Lane<J>(Arc<Shared<J>>);

/// What a lane and its thread share.
struct Shared<J> {
    waiting: Mutex<Waiting<J>>,
    changed: Condvar,
    newest: AtomicU64,
}

/// What the thread does next.
enum Waiting<J> {
    Nothing,
    Job(u64, J),
    /// Nothing any more.
    Over,
}

impl<J: Send + 'static> Lane<J> {
    pub fn spawn<W>(name: &str, mut work: W) -> Self
    where
        W: FnMut(u64, J, &dyn Pace) + Send + 'static,
    {
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Waiting::Nothing),
            changed: Condvar::new(),
            newest: AtomicU64::new(0),
        });
        let ours = shared.clone();
        let body = move || {
            while let Some((id, job)) = ours.next() {
                let pace = || ours.newest.load(Ordering::Relaxed) != id;
                // Whoever listens is told by the work itself; the thread is there for the next job in any case.
                if let Err(said) = caught(|| work(id, job, &pace)) {
                    log::error!("job {id}: {said}");
                }
            }
        };
        if let Err(e) = thread::Builder::new().name(name.to_owned()).spawn(body) {
            log::error!("no thread for {name}: {e}");
        }
        Self(shared)
    }

    /// Puts a job next, in place of one that waits; the running one sees that it is no longer the newest.
    pub fn submit(&self, job: J) {
        let mut waiting = lock(&self.0.waiting);
        let id = self.0.newest.fetch_add(1, Ordering::Relaxed) + 1;
        *waiting = Waiting::Job(id, job);
        self.0.changed.notify_one();
    }

    pub fn cancel(&self) {
        self.0.newest.fetch_add(1, Ordering::Relaxed);
    }
}

impl<J> Drop for Lane<J> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.0.waiting);
        self.0.newest.fetch_add(1, Ordering::Relaxed);
        *waiting = Waiting::Over;
        self.0.changed.notify_one();
    }
}

impl<J> Shared<J> {
    /// Waits for the next job; `None` once there will be none.
    fn next(&self) -> Option<(u64, J)> {
        let mut waiting = lock(&self.waiting);
        loop {
            match std::mem::replace(&mut *waiting, Waiting::Nothing) {
                Waiting::Job(id, job) => return Some((id, job)),
                Waiting::Over => return None,
                Waiting::Nothing => {
                    waiting = self
                        .changed
                        .wait(waiting)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Locks, whatever happened to others who held it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is held is replaced whole: a panic elsewhere leaves nothing half-done in it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_job_that_panics_leaves_the_thread_to_the_next_one() {
        let (done, is_done) = mpsc::channel();
        let lane = Lane::spawn("test", move |_, job: u32, _: &dyn Pace| {
            assert_ne!(job, 1, "a job that breaks");
            done.send(job).expect("a listener");
        });
        lane.submit(1);
        // Another job takes the place of one that waits: this one is to be begun first.
        while matches!(*lock(&lane.0.waiting), Waiting::Job(..)) {
            thread::yield_now();
        }
        lane.submit(2);
        assert_eq!(is_done.recv(), Ok(2));
    }

    #[test]
    fn the_thread_ends_with_its_lane_and_so_does_the_job_it_does() {
        let (entered, has_entered) = mpsc::channel();
        let lane = Lane::spawn("test", move |_, job: u32, pace: &dyn Pace| {
            entered.send(job).expect("a listener");
            while !pace.stops() {
                thread::yield_now();
            }
        });
        lane.submit(1);
        assert_eq!(has_entered.recv(), Ok(1));
        lane.submit(2);
        assert_eq!(has_entered.recv(), Ok(2));
        drop(lane);
        // Its sender is gone, which the thread held.
        assert!(has_entered.recv().is_err());
    }

    #[test]
    fn of_many_jobs_only_the_running_and_the_newest_are_done() {
        let (entered, has_entered) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let lane = Lane::spawn("test", move |_, job: u32, pace: &dyn Pace| {
            entered.send((job, false)).expect("a listener");
            released.recv().expect("a release");
            entered.send((job, pace.stops())).expect("a listener");
        });
        lane.submit(1);
        assert_eq!(has_entered.recv().expect("job 1"), (1, false));
        for job in 2..=9 {
            lane.submit(job);
        }
        release.send(()).expect("sent");
        assert_eq!(
            has_entered.recv().expect("job 1"),
            (1, true),
            "job 1 saw that it is outdated"
        );
        assert_eq!(
            has_entered.recv().expect("job 9"),
            (9, false),
            "jobs 2 to 8 were never begun"
        );
        release.send(()).expect("sent");
        assert_eq!(has_entered.recv().expect("job 9"), (9, false));
    }
}
