//! Waits for changes in a directory: by notification where the system supports it, by time otherwise.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

/// Listener for changes. Network file systems send no notifications, so callers have to look after every wait, however it ended.
#[derive(Debug)]
pub struct Wake {
    changes: Receiver<()>,
    /// The watcher, kept alive; `None` if the system does not support it.
    _watcher: Option<RecommendedWatcher>,
}

impl Wake {
    /// Listens to directories, and to the parent directories of files.
    pub fn on(paths: &[PathBuf]) -> Self {
        // A queue of one message is enough: writes during a long read would fill a larger one.
        let (sender, changes) = sync_channel(1);
        let tell = move |event: notify::Result<Event>| {
            if event.as_ref().is_ok_and(is_reading) {
                return;
            }
            // An error means that the command has ended, or that a message is already waiting.
            let _ = sender.try_send(());
        };
        let mut watcher = notify::recommended_watcher(tell)
            .map_err(|e| ::log::debug!("changes are looked for by time alone: {e}"))
            .ok();
        if let Some(watcher) = &mut watcher {
            for path in paths {
                let is_directory = path.is_dir();
                let parent = path
                    .parent()
                    .filter(|parent| !parent.as_os_str().is_empty());
                let directory = if is_directory {
                    path
                } else {
                    parent.unwrap_or(Path::new("."))
                };
                let mode = if is_directory {
                    RecursiveMode::Recursive
                } else {
                    RecursiveMode::NonRecursive
                };
                if let Err(e) = watcher.watch(directory, mode) {
                    ::log::debug!(
                        "{}: changes are looked for by time alone: {e}",
                        directory.display()
                    );
                }
            }
        }
        Self {
            changes,
            _watcher: watcher,
        }
    }

    /// Waits for a file change, at least `least` and at most `most`. Changes in quick succession count as one.
    pub fn wait(&self, least: Duration, most: Duration) {
        /// Writers usually write several times.
        const TOGETHER: Duration = Duration::from_millis(20);
        std::thread::sleep(least.min(most));
        match self.changes.recv_timeout(most.saturating_sub(least)) {
            Ok(()) => {
                std::thread::sleep(TOGETHER.min(most));
                while self.changes.try_recv().is_ok() {}
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Without a watcher there is no sender.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(most.saturating_sub(least)),
        }
    }
}

/// Whether an event only reports read access. Reacting to it would make the reader wake itself.
fn is_reading(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn reading_files_does_not_wake_the_waiter() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        std::fs::write(&file, "a").expect("writes");
        let wake = Wake::on(&[directory.path().to_path_buf()]);
        let most = Duration::from_millis(60);
        for _ in 0..4 {
            std::fs::read(&file).expect("reads");
            let entries = std::fs::read_dir(directory.path()).expect("lists");
            assert_eq!(entries.count(), 1);
            let begun = Instant::now();
            wake.wait(Duration::ZERO, most);
            assert!(begun.elapsed() >= most);
        }
    }
}
