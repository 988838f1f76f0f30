//! Whether another process holds a file open to write to it.
//!
//! A write sets the file's times when it begins, and its bytes arrive afterwards: of a file that is opened in between, times alone
//! do not tell that half of its bytes are still to come.

use std::fs::File;

/// What the system says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writers {
    None,
    Some,
    /// The file system, or the file's owner, does not let us ask.
    Unknown,
}

/// Asks whether anybody could be writing to a file.
///
/// Linux gives a read lease only for files that nobody has open to write. It is given back at once: whoever opens the file to
/// write while it is held waits for some microseconds.
#[cfg(target_os = "linux")]
pub(super) fn writers_of(file: &File) -> Writers {
    use std::os::fd::AsRawFd;

    /// From the kernel's `fcntl.h`; which signal a descriptor sends.
    const F_SETSIG: libc::c_int = 10;

    // SAFETY: plain system calls on a descriptor that lives as long as `file`; none of them takes a pointer.
    #[expect(unsafe_code)]
    let command = |name: libc::c_int, value: libc::c_int| unsafe {
        libc::fcntl(file.as_raw_fd(), name, value)
    };
    // A lease that is broken sends SIGIO, which ends a process; this signal is ignored unless somebody listens.
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
    fn a_file_that_somebody_has_open_to_write_is_told_from_one_that_nobody_has() {
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
