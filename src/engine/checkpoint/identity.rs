//! Whether a file is still the one that was opened: device, inode, size and times.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Two writes within one tick of the kernel's clock have one time: a tick is at most 10 ms (CONFIG_HZ=100).
const TICK: Duration = Duration::from_millis(20);
/// File systems that keep whole seconds, or pairs of them.
const COARSE_TICK: Duration = Duration::from_secs(2);
/// How often a file that is being written is waited for; afterwards its changes show when it is read.
const MOST_WAITS: u32 = 3;

/// What the system says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, i64),
    /// When content, name or rights last changed; nobody can put it back.
    changed: (i64, i64),
    n_links: u64,
    rights: (u32, u32, u32),
}

impl Identity {
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Self::from(&file.metadata()?))
    }

    /// The identity of an open file, taken when a later write must show in its times.
    ///
    /// Of a file that was written a moment ago a further write could have the same time: that moment is waited for.
    pub fn settled(file: &File) -> io::Result<Self> {
        let mut identity = Self::of(file)?;
        for _ in 0..MOST_WAITS {
            let Some(rest) = identity.unsettled_for(SystemTime::now()) else {
                break;
            };
            thread::sleep(rest);
            identity = Self::of(file)?;
        }
        Ok(identity)
    }

    /// How long a further write could still go unnoticed.
    fn unsettled_for(&self, now: SystemTime) -> Option<Duration> {
        let (seconds, nanoseconds) = self.changed;
        let tick = if nanoseconds == 0 { COARSE_TICK } else { TICK };
        let changed = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        // A time in the future is another machine's clock: waiting for it would not help.
        let age = now.duration_since(UNIX_EPOCH).ok()?.checked_sub(changed)?;
        tick.checked_sub(age).filter(|rest| !rest.is_zero())
    }

    pub fn len(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    /// Whether a path leads to this file.
    pub fn is_of(&self, about: &Metadata) -> bool {
        (self.device, self.inode) == (about.dev(), about.ino())
    }

    /// What shows that the content may be another now; `None` where nothing does.
    pub fn difference(&self, now: &Self) -> Option<String> {
        if self.len != now.len {
            return Some(format!("it went from {} to {} bytes", self.len, now.len));
        }
        if self.modified != now.modified {
            return Some("it was written to".to_owned());
        }
        // New names and rights move this time as well; a file that has neither was written to, and its time put back.
        let is_told = self.n_links != now.n_links || self.rights != now.rights;
        (self.changed != now.changed && !is_told).then(|| "it was written to".to_owned())
    }
}

impl From<&Metadata> for Identity {
    fn from(about: &Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
            len: about.len(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
            n_links: about.nlink(),
            rights: (about.mode(), about.uid(), about.gid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed_at(seconds: i64, nanoseconds: i64) -> Identity {
        Identity {
            device: 1,
            inode: 2,
            len: 3,
            modified: (seconds, nanoseconds),
            changed: (seconds, nanoseconds),
            n_links: 1,
            rights: (0o644, 0, 0),
        }
    }

    #[test]
    fn a_file_written_a_moment_ago_is_waited_for() {
        let at = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        let fine = changed_at(100, 5_000_000);
        assert_eq!(fine.unsettled_for(at(100_005)), Some(TICK));
        assert_eq!(
            fine.unsettled_for(at(100_020)),
            Some(Duration::from_millis(5))
        );
        assert_eq!(fine.unsettled_for(at(100_025)), None);
        assert_eq!(
            fine.unsettled_for(at(99_000)),
            None,
            "a clock that is behind"
        );
        let coarse = changed_at(100, 0);
        assert_eq!(
            coarse.unsettled_for(at(101_500)),
            Some(Duration::from_millis(500))
        );
    }
}
