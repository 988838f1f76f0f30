//! Signals that end or stop the program, and temporary files that must be removed when it ends.
//!
//! Batch commands remove their temporary files and then die by the signal. A screen is asked to end, restores the terminal, and
//! then dies by the signal. Exceeding a limit of file sizes is an ordinary error, not a signal.

mod owner;
mod temporary;
#[cfg(unix)]
mod watch;

pub use owner::{Owner, owner_of};
pub use owner::{knows_owners, prefix_of};
pub use temporary::{Temporary, is_live, undisturbed};
#[cfg(unix)]
pub use watch::{
    Lent, SignalClaim, can_stop, claim, die_if_asked, end_with_a_code, lend, stop, watch,
};

/// What a signal asks of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    End,
    Stop,
    /// The process was stopped by anyone and continues: the terminal is in the shell's state.
    Continue,
    Resize,
}

/// On other systems, signals keep their default handling.
#[cfg(not(unix))]
pub fn watch() {}

#[cfg(not(unix))]
pub fn die_if_asked() {}

#[cfg(not(unix))]
pub fn end_with_a_code() {}
