//! Finds the owner of a temporary file by its name, which holds machine and process where processes can be checked.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

/// Prefix of every temporary file's name.
const BEGINNING: &str = ".tmp";

/// Identity of this system among all that may write to one directory: the boot of a machine, and its process namespace
/// (a container has its own). `None` if the system does not provide it.
static HERE: LazyLock<Option<String>> = LazyLock::new(|| {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let seen = fs::read_link("/proc/self/ns/pid").ok()?;
    let mut hasher = DefaultHasher::new();
    (host, start, seen).hash(&mut hasher);
    Some(format!("{:016x}", hasher.finish()))
});

/// State of the process that made a temporary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A process with its id runs on this system.
    Alive,
    Ended,
    /// On another machine, in another container, or before a restart.
    Unknown,
}

/// Returns the prefix of this process's temporary file names.
pub(super) fn prefix() -> String {
    prefix_of(std::process::id())
}

/// Returns the prefix of a process's temporary file names.
pub fn prefix_of(process: u32) -> String {
    match HERE.as_ref() {
        Some(here) => format!("{BEGINNING}-{here}-{process}-"),
        None => BEGINNING.to_owned(),
    }
}

/// Whether names of temporary files identify their owner.
pub fn knows_owners() -> bool {
    HERE.is_some()
}

/// Returns the state of the process that made a temporary file, by the file's name.
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

/// Whether a process runs on this system. A file with this process's own id that it did not make is from an earlier process.
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
