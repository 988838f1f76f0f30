//! Waits until something changes in a directory: told by the system where it can tell, by time where it cannot.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

/// Hears of changes. Network file systems tell of none: whoever waits looks after every wait, however it ended.
#[derive(Debug)]
pub struct Wake {
    changes: Receiver<()>,
    /// Watches as long as it is held; `None` where the system lets nobody watch.
    _watcher: Option<RecommendedWatcher>,
}

impl Wake {
    /// Listens to directories, and to the directories of files.
    pub fn on(paths: &[PathBuf]) -> Self {
        // One message is enough to wake: a writer that is busy while a checkpoint is read would fill a queue.
        let (sender, changes) = sync_channel(1);
        let tell = move |event: notify::Result<Event>| {
            if event.as_ref().is_ok_and(is_reading) {
                return;
            }
            // Nobody listens any more when the command ends, and a message that was not taken yet does for this one too.
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

    /// Waits for a change of files, at least `least` and at most `most`. Changes that come close together are one.
    pub fn wait(&self, least: Duration, most: Duration) {
        /// Writers seldom write once.
        const TOGETHER: Duration = Duration::from_millis(20);
        std::thread::sleep(least.min(most));
        match self.changes.recv_timeout(most.saturating_sub(least)) {
            Ok(()) => {
                std::thread::sleep(TOGETHER.min(most));
                while self.changes.try_recv().is_ok() {}
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Without a watcher nobody sends.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(most.saturating_sub(least)),
        }
    }
}

/// Whether an event tells only that files were looked at. Whoever looks after every event would otherwise wake itself.
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
    fn looking_at_files_wakes_nobody() {
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
