//! Whose a temporary file is, by its name: where processes can be asked after, the name holds the machine and the process.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

/// What begins the name of every temporary file.
const BEGINNING: &str = ".tmp";

/// What this system is among all others that may write to one directory: a start of a machine, and the processes that are seen there
/// (a container sees others). `None` where the system does not say.
static HERE: LazyLock<Option<String>> = LazyLock::new(|| {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let seen = fs::read_link("/proc/self/ns/pid").ok()?;
    let mut hasher = DefaultHasher::new();
    (host, start, seen).hash(&mut hasher);
    Some(format!("{:016x}", hasher.finish()))
});

/// What is known of the process that made a temporary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A process of its number runs on this system.
    Alive,
    Ended,
    /// It is on another machine, in another container, or was before a restart.
    Unknown,
}

/// What the name of this process's temporary files begins with.
pub(super) fn prefix() -> String {
    prefix_of(std::process::id())
}

/// What the name of a process's temporary files begins with.
pub fn prefix_of(process: u32) -> String {
    match HERE.as_ref() {
        Some(here) => format!("{BEGINNING}-{here}-{process}-"),
        None => BEGINNING.to_owned(),
    }
}

/// Whether names of temporary files tell whose they are.
pub fn knows_owners() -> bool {
    HERE.is_some()
}

/// What is known of the process that made a temporary file, by the file's name.
pub fn owner_of(name: &str) -> Owner {
    let parts = name
        .strip_prefix(BEGINNING)
        .and_then(|name| name.strip_prefix('-'))
        .and_then(|name| name.split_once('-'));
    let Some((system, rest)) = parts else {
        return Owner::Unknown;
    };
    let process = rest.split_once('-').and_then(|(n, _)| n.parse().ok());
    match process {
        Some(process) if HERE.as_deref() == Some(system) => of_process(process),
        _ => Owner::Unknown,
    }
}

/// Whether a process of this system runs. A file of this process's number that it does not know is of one before it.
#[cfg(unix)]
fn of_process(process: i32) -> Owner {
    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};
    if process == std::process::id() as i32 {
        return Owner::Ended;
    }
    match Pid::from_raw(process).map(test_kill_process) {
        Some(Err(Errno::SRCH)) => Owner::Ended,
        Some(_) => Owner::Alive,
        None => Owner::Unknown,
    }
}

#[cfg(not(unix))]
fn of_process(_: i32) -> Owner {
    Owner::Unknown
}
