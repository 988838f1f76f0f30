//! Checks every two seconds whether the open files changed on disk, even when nothing runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use attnscope_compute::error::Error;
use attnscope_run::Subject;

use super::context::Context;
use super::event::{Event, Sink};
use super::lane::lock;
use super::told::tell_of_change;

/// Interval between checks; each asks the system for file times and reads nothing.
const EVERY: Duration = Duration::from_secs(2);

/// Watcher that checks until it is dropped.
pub(super) struct Watch(Option<JoinHandle<()>>, Arc<AtomicBool>);

impl Watch {
    pub fn begin(context: &Arc<Mutex<Context>>, sink: Sink) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (context, ends) = (context.clone(), is_over.clone());
        let body = move || {
            let mut told = Vec::new();
            loop {
                thread::park_timeout(EVERY);
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                look(&context, &sink, &mut told);
            }
        };
        let thread = thread::Builder::new().name("files".to_owned()).spawn(body);
        if let Err(e) = &thread {
            log::error!("no thread for files: {e}");
        }
        Self(thread.ok(), is_over)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.0 {
            thread.thread().unpark();
        }
    }
}

/// Reports once for each open or compared subject that its files changed.
fn look(context: &Mutex<Context>, sink: &Sink, told: &mut Vec<Subject>) {
    let (open, live) = {
        let context = lock(context);
        (context.subjects(), context.live.clone())
    };
    if let Some(file) = live.and_then(|live| live.changed_file()) {
        sink(Event::Changed(format!("{} was edited", file.display())));
    }
    told.retain(|told| open.iter().any(|subject| subject.is(told)));
    for subject in open {
        if told.iter().any(|told| told.is(&subject)) {
            continue;
        }
        if let Err(error @ Error::Changed { .. }) = subject.unchanged() {
            // Locked while reporting, so that a subject opened next is not blamed for this one's files.
            let context = lock(context);
            if context.subjects().iter().any(|open| open.is(&subject)) {
                told.push(subject);
                tell_of_change(sink, &error);
            }
        }
    }
}
