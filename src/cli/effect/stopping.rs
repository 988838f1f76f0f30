//! Lets Ctrl-C stop the work; what was done so far is then written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attnscope_compute::pace::Pace;
#[cfg(unix)]
use attnscope_system::signals::Asked;

/// Whether a stop was requested; Ctrl-C is handled as long as this value exists.
pub struct Stopping {
    stops: Arc<AtomicBool>,
    #[cfg(unix)]
    _claim: attnscope_system::signals::SignalClaim,
}

impl Stopping {
    /// Starts to handle Ctrl-C.
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

    /// Whether a stop was requested.
    pub fn is_asked(&self) -> bool {
        self.stops.load(Ordering::SeqCst)
    }
}

impl Pace for Stopping {
    fn stops(&self) -> bool {
        self.is_asked()
    }
}
