//! Holds the terminal: acquires it, reacquires it after the shell had it, and restores it whatever happens.

use std::io::{self, Stdout, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{panic, thread};

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::style::Print;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};

/// Whether the terminal is held and must be restored.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Holds the terminal; dropping this restores it.
pub struct Guard {
    takes_mouse: bool,
    /// Whether the terminal is to tell when it changes between dark and light.
    follows_scheme: bool,
}

/// Mode 2031: the terminal tells when it changes between dark and light. Others ignore it.
const TELL_SCHEME: &str = "\x1b[?2031h";
const TELL_NO_SCHEME: &str = "\x1b[?2031l";

impl Guard {
    pub fn take(takes_mouse: bool, follows_scheme: bool) -> io::Result<Self> {
        // From here on, dropping the guard undoes a partial setup.
        let guard = Self {
            takes_mouse,
            follows_scheme,
        };
        guard.begin()?;
        Ok(guard)
    }

    /// Reacquires the terminal, after the shell had it.
    pub fn take_again(&self) -> io::Result<()> {
        if !is_raw() {
            // The shell's current mode is the one to restore later.
            disable_raw_mode()?;
        }
        self.begin()
    }

    fn begin(&self) -> io::Result<()> {
        IS_TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(
            stdout(),
            EnterAlternateScreen,
            EnableBracketedPaste,
            cursor::Hide
        )?;
        if self.takes_mouse {
            execute!(stdout(), EnableMouseCapture)?;
        }
        if self.follows_scheme {
            execute!(stdout(), Print(TELL_SCHEME))?;
        }
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether the terminal is in raw mode; a shell that had it may have ended that.
#[cfg(unix)]
fn is_raw() -> bool {
    use rustix::termios::{LocalModes, tcgetattr};
    tcgetattr(io::stdin()).is_ok_and(|modes| !modes.local_modes.contains(LocalModes::ICANON))
}

#[cfg(not(unix))]
fn is_raw() -> bool {
    false
}

/// Installs a panic hook that depends on the thread, while there is a screen.
///
/// A panic on the drawing thread ends the program: the terminal is restored first, since a message on the alternate screen
/// would be lost. A panic on another thread ends a job that the screen reports, so it prints nothing.
pub fn tell_panics_apart() {
    let drawing = thread::current().id();
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() == drawing {
            restore();
            before(info);
        } else {
            log::error!("{info}");
        }
    }));
}

/// Restores the terminal, if it is held.
pub fn restore() {
    if !IS_TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out: Stdout = stdout();
    // Try every step, even when another failed.
    let _ = execute!(
        out,
        Print(TELL_NO_SCHEME),
        DisableBracketedPaste,
        DisableMouseCapture,
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = disable_raw_mode();
    let _ = out.flush();
}
