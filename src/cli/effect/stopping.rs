//! Work that can be stopped with Ctrl-C, after which what was done so far is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(unix)]
use crate::signals::{self, Asked};
use attnscope_compute::pace::Pace;

/// Asked to stop, or not; signals are heard as long as this is held.
pub struct Stopping {
    stops: Arc<AtomicBool>,
    #[cfg(unix)]
    _claim: signals::Claim,
}

impl Stopping {
    /// Hears signals from here on.
    pub fn begin() -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        #[cfg(unix)]
        let told = stops.clone();
        Self {
            #[cfg(unix)]
            _claim: signals::claim(
                move |asked| match asked {
                    Asked::End => told.store(true, Ordering::SeqCst),
                    Asked::Stop if signals::can_stop() => signals::stop(),
                    _ => {}
                },
                || {},
            ),
            stops,
        }
    }

    /// Whether it was asked to stop.
    pub fn is_asked(&self) -> bool {
        self.stops.load(Ordering::SeqCst)
    }
}

impl Pace for Stopping {
    fn stops(&self) -> bool {
        self.is_asked()
    }
}
