//! A thread that does one job at a time: one running, one waiting, the newest wins.

use super::caught::caught;
use attnscope_engine::pace::Pace;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A thread with one job running and at most one waiting.
pub(super) struct Lane<J> {
    waiting: Mutex<Option<(u64, J)>>,
    changed: Condvar,
    newest: AtomicU64,
}

impl<J: Send + 'static> Lane<J> {
    pub fn spawn<W>(name: &str, mut work: W) -> Arc<Self>
    where
        W: FnMut(u64, J, &dyn Pace) + Send + 'static,
    {
        let lane = Arc::new(Self {
            waiting: Mutex::new(None),
            changed: Condvar::new(),
            newest: AtomicU64::new(0),
        });
        let ours = lane.clone();
        let body = move || {
            loop {
                let (id, job) = ours.next();
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
        lane
    }

    /// Puts a job next, in place of one that waits; the running one sees that it is no longer the newest.
    pub fn submit(&self, job: J) {
        let mut waiting = lock(&self.waiting);
        let id = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
        *waiting = Some((id, job));
        self.changed.notify_one();
    }

    pub fn cancel(&self) {
        self.newest.fetch_add(1, Ordering::Relaxed);
    }

    fn next(&self) -> (u64, J) {
        let mut waiting = lock(&self.waiting);
        loop {
            match waiting.take() {
                Some(job) => return job,
                None => {
                    waiting = self
                        .changed
                        .wait(waiting)
                        .unwrap_or_else(PoisonError::into_inner)
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
        while lock(&lane.waiting).is_some() {
            thread::yield_now();
        }
        lane.submit(2);
        assert_eq!(is_done.recv(), Ok(2));
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
