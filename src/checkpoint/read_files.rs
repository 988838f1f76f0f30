//! The files that this process has read: no command may overwrite them.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

/// Files by device and inode, so that a link counts as its target.
static READ: LazyLock<Mutex<HashMap<(u64, u64), Entry>>> = LazyLock::new(Mutex::default);

struct Entry {
    path: PathBuf,
    modified: Option<SystemTime>,
}

/// Records a file that was opened for reading.
pub(super) fn remember(path: &Path, about: &Metadata) {
    let entry = Entry {
        path: path.to_path_buf(),
        modified: about.modified().ok(),
    };
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    read.insert(key(about), entry);
}

/// Records a file that a command will read, so that writing to it is refused before the work starts.
pub fn will_read(path: &Path) {
    if let Ok(about) = path.metadata()
        && about.is_file()
    {
        remember(path, &about);
    }
}

/// Whether a path leads, also through links, to a file that this process has read.
pub fn was_read(path: &Path) -> bool {
    let Ok(about) = path.metadata() else {
        return false;
    };
    let read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    // The inode of a removed file may be reused; then this is another file.
    read.get(&key(&about)).is_some_and(|entry| {
        about.modified().ok() == entry.modified
            || entry
                .path
                .metadata()
                .is_ok_and(|now| key(&now) == key(&about))
    })
}

fn key(about: &Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::read_text;
    use super::*;

    #[test]
    fn a_file_that_was_read_is_recognised_under_every_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        for name in ["read", "other"] {
            fs::write(path(name), "text").expect("writes");
        }
        fs::hard_link(path("read"), path("hard")).expect("links");
        std::os::unix::fs::symlink("read", path("soft")).expect("links");
        assert!(!was_read(&path("read")));
        read_text(&path("soft"), 100).expect("reads");
        for name in ["read", "hard", "soft"] {
            assert!(was_read(&path(name)), "{name}");
        }
        for name in ["other", "none"] {
            assert!(!was_read(&path(name)), "{name}");
        }
    }
}
