//! Signals that end or stop the program, and the temporary files that must not outlive it.
//!
//! Batch commands die by the signal once their temporary files are gone. A screen is asked to end, and dies by the signal once the
//! terminal is given back. Writing beyond a limit of file sizes is an ordinary error, not a signal.

mod owner;
mod temporary;
#[cfg(unix)]
mod watch;

pub use owner::{Owner, owner_of};
pub use owner::{knows_owners, prefix_of};
pub use temporary::{Temporary, forgotten, is_live, removed_at_end, undisturbed};
#[cfg(unix)]
pub use watch::{Claim, can_stop, claim, die_if_asked, end_with_a_code, stop, watch};

/// What a signal asks of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    End,
    Stop,
    /// It was stopped, by whomever: the terminal is as the shell left it.
    Continue,
    Resize,
}

/// Elsewhere the system ends programs its own way.
#[cfg(not(unix))]
pub fn watch() {}

#[cfg(not(unix))]
pub fn die_if_asked() {}

#[cfg(not(unix))]
pub fn end_with_a_code() {}
