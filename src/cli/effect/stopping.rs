//! Work that can be stopped with Ctrl-C, after which what was done so far is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attnscope_compute::pace::Pace;
#[cfg(unix)]
use attnscope_system::signals::Asked;

/// Asked to stop, or not; signals are heard as long as this is held.
pub struct Stopping {
    stops: Arc<AtomicBool>,
    #[cfg(unix)]
    _claim: attnscope_system::signals::Claim,
}

impl Stopping {
    /// Hears signals from here on.
    pub fn begin() -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        #[cfg(unix)]
        let told = stops.clone();
        Self {
            #[cfg(unix)]
            _claim: attnscope_system::signals::claim(
                move |asked| match asked {
                    Asked::End => told.store(true, Ordering::SeqCst),
                    Asked::Stop if attnscope_system::signals::can_stop() => {
                        attnscope_system::signals::stop()
                    }
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
