//! Waits until something changes in a directory: told by the system where it can tell, by time where it cannot.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

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
        let (sender, changes) = channel();
        let tell = move |_: notify::Result<notify::Event>| {
            // Nobody listens any more when the command ends.
            let _ = sender.send(());
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

    /// Waits for a change, at most so long. Changes that come close together are one.
    pub fn wait(&self, most: Duration) {
        /// Writers seldom write once.
        const TOGETHER: Duration = Duration::from_millis(20);
        match self.changes.recv_timeout(most) {
            Ok(()) => {
                std::thread::sleep(TOGETHER.min(most));
                while self.changes.try_recv().is_ok() {}
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Without a watcher nobody sends.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(most),
        }
    }
}
