//! A worker thread with one running job and at most one waiting; the newest wins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use attnscope_compute::pace::Pace;

use super::caught::caught;

/// A thread with one running job and at most one waiting. Dropping it stops the running job and ends the thread.
pub(super) struct Lane<J>(Arc<Shared<J>>);

/// State shared by a lane and its thread.
struct Shared<J> {
    waiting: Mutex<Waiting<J>>,
    changed: Condvar,
    newest: AtomicU64,
}

/// The thread's next step.
enum Waiting<J> {
    Nothing,
    Job(u64, J),
    /// The lane was dropped.
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
                // The work itself reports to listeners; the thread stays available for the next job in any case.
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

    /// Queues a job, replacing a waiting one; the running job sees that it is no longer the newest.
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
    /// Waits for the next job; `None` when the lane was dropped.
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

/// Locks a mutex; ignores poison.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Values are replaced as a whole, so a panic elsewhere leaves nothing half-done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_panicking_job_does_not_stop_the_next_one() {
        let (done, is_done) = mpsc::channel();
        let lane = Lane::spawn("test", move |_, job: u32, _: &dyn Pace| {
            assert_ne!(job, 1, "a job that breaks");
            done.send(job).expect("a listener");
        });
        lane.submit(1);
        // A new job would replace a waiting one, so wait until this one has started.
        while matches!(*lock(&lane.0.waiting), Waiting::Job(..)) {
            thread::yield_now();
        }
        lane.submit(2);
        assert_eq!(is_done.recv(), Ok(2));
    }

    #[test]
    fn dropping_a_lane_ends_its_thread_and_running_job() {
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
        // The thread's sender was dropped.
        assert!(has_entered.recv().is_err());
    }

    #[test]
    fn only_the_running_and_the_newest_job_are_done() {
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
