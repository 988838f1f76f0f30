//! Identity of an open file (device, inode, size and times), to detect later changes.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Upper bound on the duration of a single write, which is at most 2 GiB.
const FRESH_SECONDS: i64 = 60;

/// A file's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    /// Modification time: seconds and nanoseconds since 1970.
    modified: (i64, i64),
    /// Time of the last change to content, links or permissions; it cannot be reset.
    changed: (i64, i64),
    n_links: u64,
    rights: (u32, u32, u32),
}

impl Identity {
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Self::from(&file.metadata()?))
    }

    /// Whether the file changed so recently that a write may still be in progress.
    pub fn is_fresh(&self) -> bool {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let age = now.as_secs() as i64 - self.changed.0;
        // Another machine's clock may be some seconds ahead.
        (-FRESH_SECONDS..=FRESH_SECONDS).contains(&age)
    }

    /// Returns how long to wait until a further write will show in the file's times; `None` if it already will.
    ///
    /// The system's clock for file times ticks every few milliseconds: a second write within the same tick leaves the time
    /// unchanged.
    pub fn unsettled(&self) -> Option<Duration> {
        clock::now().and_then(|now| unsettled_for(self.changed, now))
    }

    pub fn len(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    /// Whether a path's metadata are those of this file.
    pub fn is_of(&self, about: &Metadata) -> bool {
        (self.device, self.inode) == (about.dev(), about.ino())
    }

    /// Describes the difference that shows a possible change of content; `None` if there is none.
    pub fn difference(&self, now: &Self) -> Option<String> {
        if self.len != now.len {
            return Some(format!("it went from {} to {} bytes", self.len, now.len));
        }
        if self.modified != now.modified {
            return Some("it was written to".to_owned());
        }
        // Links and permissions also change this time. If neither differs, the file was written and its modification time reset.
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

/// Returns how long a further write could go unnoticed; times are in seconds and nanoseconds.
fn unsettled_for(changed: (i64, i64), now: (i64, i64)) -> Option<Duration> {
    /// Most clocks tick every 4 ms; a shorter step wastes little of the wait.
    const STEP: Duration = Duration::from_millis(1);
    let (seconds, nanoseconds) = changed;
    let is_coarse = nanoseconds == 0;
    // A time far in the future comes from another machine's clock: waiting would not help.
    let is_foreign = seconds > now.0 + 1;
    // On file systems with whole seconds, all writes of a second have the same time.
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

/// The system's clock for file times.
mod clock {
    /// Linux: the time of the last tick. Any later change of a file has this time or a later one.
    #[cfg(target_os = "linux")]
    pub fn now() -> Option<(i64, i64)> {
        use rustix::time::{ClockId, clock_gettime};
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Some((now.tv_sec, now.tv_nsec))
    }

    /// Elsewhere, file times have their full resolution.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Option<(i64, i64)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_written_within_the_current_tick_is_waited_for() {
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
