//! The thread that handles signals.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{getpid, getppid, getsid};
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::{self, emulate_default_handler};

use super::Asked;
use super::temporary::remove_all;

/// Time after which a screen is ended that cannot end by itself, for example because nobody reads its output.
const GRACE: Duration = Duration::from_secs(2);

const ENDS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// The signal that ended the program; 0 for none.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);
/// Whether SIGTERM ends the program with an exit code.
static HAS_CODE: AtomicBool = AtomicBool::new(false);
/// Whether another program has the terminal, so that its keys are not meant for this one.
static IS_LENT: AtomicBool = AtomicBool::new(false);
static HANDLE: OnceLock<Handle> = OnceLock::new();

/// The screen that receives signals.
struct Claimed {
    tell: Box<dyn Fn(Asked) + Send>,
    /// Restores what it can without blocking.
    at_last: fn(),
}

static CLAIMED: Mutex<Option<Claimed>> = Mutex::new(None);

/// Starts to handle signals. Signals that the parent process has set to be ignored, as `nohup` does, stay ignored.
pub fn watch() {
    // Any handler is enough: the system then fails the write instead.
    let too_large = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    if let Err(e) = too_large {
        log::warn!("limits of file sizes end the program: {e}");
    }
    let heard = ENDS.into_iter().filter(|signal| !is_ignored(*signal));
    match Signals::new(heard) {
        Ok(signals) => {
            let _ = HANDLE.set(signals.handle());
            let thread = thread::Builder::new().name("signals".to_owned());
            if let Err(e) = thread.spawn(move || attend(signals)) {
                log::error!("no thread for signals: {e}");
            }
        }
        Err(e) => log::warn!("signals cannot be heard: {e}"),
    }
}

/// Whether a signal was ignored when the program started, as far as the system reports it.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

fn attend(mut signals: Signals) {
    loop {
        // Collect first: handling them may poll for more signals.
        let came: Vec<i32> = signals.wait().collect();
        for signal in came {
            let is_lent = IS_LENT.load(Ordering::SeqCst);
            match signal {
                // Ctrl-C is the other program's. Ctrl-Z stops both, so that the shell gets the terminal.
                SIGINT | SIGQUIT if is_lent => {}
                SIGTSTP if is_lent => {
                    if let Err(e) = emulate_default_handler(SIGTSTP) {
                        log::warn!("cannot stop: {e}");
                    }
                }
                SIGWINCH => drop(tell(Asked::Resize)),
                SIGTSTP => drop(tell(Asked::Stop)),
                SIGCONT => drop(tell(Asked::Continue)),
                ends => end(ends, &mut signals),
            }
        }
    }
}

/// Passes a request to the screen; returns whether there is one.
fn tell(asked: Asked) -> bool {
    let claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(claimed) = &*claimed {
        (claimed.tell)(asked);
    }
    claimed.is_some()
}

fn end(signal: i32, signals: &mut Signals) {
    ENDED_BY.store(signal, Ordering::SeqCst);
    if tell(Asked::End) {
        let begun = Instant::now();
        // A second signal means: do not wait.
        let is_asked_again =
            |signals: &mut Signals| signals.pending().any(|signal| ENDS.contains(&signal));
        while begun.elapsed() < GRACE && !is_asked_again(signals) {
            thread::sleep(Duration::from_millis(10));
        }
        let claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(claimed) = &*claimed {
            (claimed.at_last)();
        }
    }
    die(signal);
}

/// Ends the program by the signal's default action, so that the parent sees which signal it was.
fn die(signal: i32) {
    remove_all();
    if signal == SIGTERM && HAS_CODE.load(Ordering::SeqCst) {
        low_level::exit(128 + SIGTERM);
    }
    if let Err(e) = emulate_default_handler(signal) {
        log::error!("signal {signal}: {e}");
    }
}

/// Makes SIGTERM end the program with exit code 143, which schedulers report when they preempt a job, instead of by the signal.
pub fn end_with_a_code() {
    HAS_CODE.store(true, Ordering::SeqCst);
}

/// Dies by the signal that ended a screen, if there was one.
pub fn die_if_asked() {
    match ENDED_BY.load(Ordering::SeqCst) {
        0 => {}
        signal => die(signal),
    }
}

/// Held while another program has the terminal.
#[derive(Debug)]
pub struct Lent(());

impl Drop for Lent {
    fn drop(&mut self) {
        IS_LENT.store(false, Ordering::SeqCst);
    }
}

/// Leaves the signals of keys (Ctrl-C, Ctrl-\, Ctrl-Z) to another program, to which the terminal is lent.
pub fn lend() -> Lent {
    IS_LENT.store(true, Ordering::SeqCst);
    Lent(())
}

/// Held by a screen while it receives signals.
#[derive(Debug)]
pub struct SignalClaim(());

impl Drop for SignalClaim {
    fn drop(&mut self) {
        *CLAIMED.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Sends signals to a screen; `at_last` restores the terminal if the screen itself cannot.
pub fn claim(tell: impl Fn(Asked) + Send + 'static, at_last: fn()) -> SignalClaim {
    *CLAIMED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Claimed {
        tell: Box::new(tell),
        at_last,
    });
    // Only now: a command without a screen stops by the default action.
    if let Some(handle) = HANDLE.get() {
        for signal in [SIGWINCH, SIGTSTP, SIGCONT] {
            if let Err(e) = handle.add_signal(signal) {
                log::warn!("signal {signal} cannot be heard: {e}");
            }
        }
    }
    SignalClaim(())
}

/// Whether there is a shell that could continue the program after it has stopped.
///
/// In a container a session may have begun outside: its leader then has process id 0, which `rustix` cannot represent.
pub fn can_stop() -> bool {
    let own = getsid(None);
    own != Ok(getpid()) && own == getsid(Some(getppid()))
}

/// Stops the program and its process group until a shell continues them.
pub fn stop() {
    if let Err(e) = kill_current_process_group(Signal::STOP) {
        log::warn!("cannot stop: {e}");
    }
}
