//! Detects whether another process has a file open for writing.
//!
//! A write sets the file's times when it starts, but its bytes arrive later: for a file opened in between, the times alone do not
//! show that part of its bytes are still to come.

use std::fs::File;

/// Whether a file has writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux can be asked")
)]
pub(super) enum Writers {
    None,
    Some,
    /// Unknown: the file system, or the file's owner, does not let us ask.
    Unknown,
}

/// Finds out whether any process could be writing to a file.
///
/// Linux grants a read lease only if no process has the file open for writing. The lease is returned at once: a process that
/// opens the file for writing meanwhile waits for some microseconds.
#[cfg(target_os = "linux")]
pub(super) fn writers_of(file: &File) -> Writers {
    use std::os::fd::AsRawFd;

    /// Command number from the kernel's `fcntl.h`: chooses the signal that a descriptor sends.
    const F_SETSIG: libc::c_int = 10;

    // SAFETY: plain system calls on a descriptor that lives as long as `file`; none of them takes a pointer.
    #[expect(unsafe_code)]
    let command = |name: libc::c_int, value: libc::c_int| unsafe {
        libc::fcntl(file.as_raw_fd(), name, value)
    };
    // Breaking a lease sends SIGIO, which would end the process; SIGURG is ignored by default.
    if command(F_SETSIG, libc::SIGURG) == -1 {
        return Writers::Unknown;
    }
    if command(libc::F_SETLEASE, libc::F_RDLCK) == -1 {
        return match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN) => Writers::Some,
            _ => Writers::Unknown,
        };
    }
    command(libc::F_SETLEASE, libc::F_UNLCK);
    Writers::None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn writers_of(_: &File) -> Writers {
    Writers::Unknown
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_open_for_writing_is_told_from_one_that_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let writer = File::create(&path).expect("creates");
        let reader = File::open(&path).expect("opens");
        assert_eq!(writers_of(&reader), Writers::Some);
        drop(writer);
        let _other = File::open(&path).expect("opens");
        assert_eq!(writers_of(&reader), Writers::None);
        File::options()
            .write(true)
            .open(&path)
            .expect("the lease is gone");
    }
}
