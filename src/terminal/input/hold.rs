//! Stops the reading of terminal input, so that another program can read it.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the reader may take to stop. It only takes longer if its thread has ended, and then nothing is read anyway.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shared by the thread that reads and the one that lends the terminal.
#[derive(Debug, Clone)]
pub struct InputHold(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    wake: PipeWriter,
    woken: PipeReader,
}

#[derive(Debug, Default)]
struct State {
    is_held: bool,
    /// Whether the reader has stopped.
    has_stopped: bool,
}

/// While this lives, no terminal input is read.
#[derive(Debug)]
pub struct Held<'a>(&'a InputHold);

impl InputHold {
    /// # Errors
    /// When the system gives no pipe.
    pub fn new() -> io::Result<Self> {
        let (woken, wake) = io::pipe()?;
        Ok(Self(Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            wake,
            woken,
        })))
    }

    /// Waits until the reader has stopped.
    ///
    /// # Errors
    /// When the reader cannot be woken.
    pub fn hold(&self) -> io::Result<Held<'_>> {
        self.state().is_held = true;
        let held = Held(self);
        (&self.0.wake).write_all(&[0])?;
        let runs = |state: &mut State| !state.has_stopped;
        let waited = self
            .0
            .changed
            .wait_timeout_while(self.state(), PATIENCE, runs);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        Ok(held)
    }

    /// Becomes readable when the reader is to stop.
    pub(super) fn woken(&self) -> &PipeReader {
        &self.0.woken
    }

    /// Called by the reader when it was woken: returns when it may read again.
    pub(super) fn wait(&self) {
        // One byte per hold: with none left there would be a hold without a wake.
        if let Err(e) = (&self.0.woken).read_exact(&mut [0]) {
            log::warn!("the terminal's reader was woken, and {e}");
        }
        let mut state = self.state();
        state.has_stopped = true;
        self.0.changed.notify_all();
        let is_held = |state: &mut State| state.is_held;
        let waited = self.0.changed.wait_while(state, is_held);
        waited.unwrap_or_else(PoisonError::into_inner).has_stopped = false;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state().is_held = false;
        self.0.0.changed.notify_all();
    }
}
