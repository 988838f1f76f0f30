//! The thread that hears signals, and what it does about them.

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

/// A screen that cannot end within this time, since nobody reads what it draws, is ended.
const GRACE: Duration = Duration::from_secs(2);

const ENDS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// The signal that ends the program; 0 for none.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);
/// Whether SIGTERM ends the program with a code of its own.
static HAS_CODE: AtomicBool = AtomicBool::new(false);
static HANDLE: OnceLock<Handle> = OnceLock::new();

/// A screen that signals are told to.
struct Claimed {
    tell: Box<dyn Fn(Asked) + Send>,
    /// Restores what can be restored without waiting for anybody.
    at_last: fn(),
}

static CLAIMED: Mutex<Option<Claimed>> = Mutex::new(None);

/// Hears signals from here on. Those that whoever started the program has it ignore, as `nohup` does, stay ignored.
pub fn watch() {
    // A handler of any kind is enough: the system then fails the write instead.
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

/// Whether a signal was ignored when the program began, as far as the system says so.
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
        // Collected first: what they ask for may look for more of them.
        let came: Vec<i32> = signals.wait().collect();
        for signal in came {
            match signal {
                SIGWINCH => drop(tell(Asked::Resize)),
                SIGTSTP => drop(tell(Asked::Stop)),
                SIGCONT => drop(tell(Asked::Continue)),
                ends => end(ends, &mut signals),
            }
        }
    }
}

/// Tells a screen, if there is one.
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
        // Whoever asks again does not want to wait.
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

/// Ends the program as the signal does by itself, so that whoever waits for it sees which one it was.
fn die(signal: i32) {
    remove_all();
    if signal == SIGTERM && HAS_CODE.load(Ordering::SeqCst) {
        low_level::exit(128 + SIGTERM);
    }
    if let Err(e) = emulate_default_handler(signal) {
        log::error!("signal {signal}: {e}");
    }
}

/// Lets SIGTERM end the program with the code 143, which schedulers report where they preempt a job, instead of by the signal.
pub fn end_with_a_code() {
    HAS_CODE.store(true, Ordering::SeqCst);
}

/// Dies by the signal that a screen was ended by, if it was.
pub fn die_if_asked() {
    match ENDED_BY.load(Ordering::SeqCst) {
        0 => {}
        signal => die(signal),
    }
}

/// What a screen holds while signals are told to it.
#[derive(Debug)]
pub struct Claim(());

impl Drop for Claim {
    fn drop(&mut self) {
        *CLAIMED.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Has signals told to a screen; `at_last` restores what it can where the screen itself does not come to it.
pub fn claim(tell: impl Fn(Asked) + Send + 'static, at_last: fn()) -> Claim {
    *CLAIMED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Claimed {
        tell: Box::new(tell),
        at_last,
    });
    // Not before: a command without a screen stops by itself.
    if let Some(handle) = HANDLE.get() {
        for signal in [SIGWINCH, SIGTSTP, SIGCONT] {
            if let Err(e) = handle.add_signal(signal) {
                log::warn!("signal {signal} cannot be heard: {e}");
            }
        }
    }
    Claim(())
}

/// Whether there is a shell that could continue the program once it has stopped.
///
/// In a container a session may have begun outside: its leader is then process 0, which `rustix` takes for impossible.
pub fn can_stop() -> bool {
    let own = getsid(None);
    own != Ok(getpid()) && own == getsid(Some(getppid()))
}

/// Stops the program, and those that were started together with it, until a shell continues them.
pub fn stop() {
    if let Err(e) = kill_current_process_group(Signal::STOP) {
        log::warn!("cannot stop: {e}");
    }
}
