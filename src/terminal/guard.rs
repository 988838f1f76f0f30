//! The terminal while the program has it: taken, taken again after the shell had it, and given back whatever happens.

use std::io::{self, Stdout, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{panic, thread};

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};

/// Whether there is something to give back.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Holds the terminal; dropping it gives the terminal back.
pub struct Guard {
    takes_mouse: bool,
}

impl Guard {
    pub fn take(takes_mouse: bool) -> io::Result<Self> {
        // From here on, whatever fails is undone by the drop.
        let guard = Self { takes_mouse };
        guard.begin()?;
        Ok(guard)
    }

    /// Takes it once more, after the shell had it.
    pub fn take_again(&self) -> io::Result<()> {
        if !is_raw() {
            // What the shell left is what to go back to.
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
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether the system gives us keys as they come: a shell that had the terminal took that back.
#[cfg(unix)]
fn is_raw() -> bool {
    use rustix::termios::{LocalModes, tcgetattr};
    tcgetattr(io::stdin()).is_ok_and(|modes| !modes.local_modes.contains(LocalModes::ICANON))
}

#[cfg(not(unix))]
fn is_raw() -> bool {
    false
}

/// Decides what a panic prints while there is a screen.
///
/// One on the thread that draws ends the program: the terminal is given back first, since a message on the alternate screen
/// would be lost with it. Others end a job that the screen tells of: they print nothing.
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

/// Gives the terminal back, if it was taken.
pub fn restore() {
    if !IS_TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out: Stdout = stdout();
    // Each step is worth trying even when another failed.
    let _ = execute!(
        out,
        DisableBracketedPaste,
        DisableMouseCapture,
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = disable_raw_mode();
    let _ = out.flush();
}
