//! Whether a file is still the one that was opened: device, inode, size and times.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// No single write takes longer than this: at most 2 GiB are written at once.
const FRESH_SECONDS: i64 = 60;

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

    /// Whether the file was changed so lately that a write may still be under way.
    pub fn is_fresh(&self) -> bool {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let age = now.as_secs() as i64 - self.changed.0;
        // The clock of another machine may be some seconds ahead.
        (-FRESH_SECONDS..=FRESH_SECONDS).contains(&age)
    }

    /// How long a further write could still go unnoticed.
    ///
    /// The system's clock of file times ticks every few milliseconds: a file that was written within the present tick can be
    /// written again and have the same time.
    pub fn unsettled(&self) -> Option<Duration> {
        clock::now().and_then(|now| unsettled_for(self.changed, now))
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

/// How long a further write could still go unnoticed: times in seconds and nanoseconds.
fn unsettled_for(changed: (i64, i64), now: (i64, i64)) -> Option<Duration> {
    /// Most clocks tick every 4 ms; asked more often, little of the wait is lost.
    const STEP: Duration = Duration::from_millis(1);
    let (seconds, nanoseconds) = changed;
    let is_coarse = nanoseconds == 0;
    // A time far in the future is another machine's clock: waiting for it would not help.
    let is_foreign = seconds > now.0 + 1;
    // File systems that keep whole seconds have one time for all of a second.
    let is_past = if is_coarse {
        now.0 > seconds
    } else {
        now > changed
    };
    (!is_past && !is_foreign).then(|| {
        if is_coarse {
            Duration::from_secs(1)
        } else {
            STEP
        }
    })
}

/// The clock that the system takes the times of files from.
mod clock {
    /// Linux: the last tick. A file that was changed since then has a time that is not before it.
    #[cfg(target_os = "linux")]
    pub fn now() -> Option<(i64, i64)> {
        use rustix::time::{ClockId, clock_gettime};
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Some((now.tv_sec, now.tv_nsec))
    }

    /// Elsewhere times of files are as fine as they are written down.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Option<(i64, i64)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_written_within_the_present_tick_is_waited_for() {
        let tick = (100, 4_000_000);
        assert!(
            unsettled_for((100, 4_000_000), tick).is_some(),
            "in the tick"
        );
        assert!(
            unsettled_for((100, 4_000_001), tick).is_some(),
            "a finer time"
        );
        assert_eq!(unsettled_for((100, 3_999_999), tick), None);
        assert_eq!(unsettled_for((99, 999_999_999), tick), None);
        assert_eq!(unsettled_for((900, 1), tick), None, "a clock that is ahead");
        let coarse = unsettled_for((100, 0), tick);
        assert_eq!(coarse, Some(Duration::from_secs(1)), "whole seconds");
        assert_eq!(unsettled_for((99, 0), tick), None);
    }
}
