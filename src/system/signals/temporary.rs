//! Files under temporary names, listed in one place so that they are removed whenever the program ends.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, NamedTempFile};

use super::owner::prefix;

/// Existing temporary files.
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Locked while related files are renamed.
static NAMING: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file under a temporary name, removed when dropped.
#[derive(Debug)]
pub struct Temporary {
    file: NamedTempFile,
    _live: Live,
}

/// Entry of a file in the list.
#[derive(Debug)]
struct Live(PathBuf);

impl Drop for Live {
    fn drop(&mut self) {
        lock(&LIVE).remove(&self.0);
    }
}

impl Temporary {
    /// Creates a file in the target's directory, with the same permissions as any new file.
    ///
    /// # Errors
    /// When the directory is not writable.
    pub fn new_in(directory: &Path) -> io::Result<Self> {
        let prefix = prefix();
        let mut builder = Builder::new();
        builder.prefix(&prefix);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The system removes the permissions that the umask forbids.
            builder.permissions(Permissions::from_mode(0o666));
        }
        // Create and list it under one lock, so that the program cannot end in between.
        let mut live = lock(&LIVE);
        let file = builder.tempfile_in(directory)?;
        let path = file.path().to_path_buf();
        live.insert(path.clone());
        Ok(Self {
            file,
            _live: Live(path),
        })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn as_file(&self) -> &File {
        self.file.as_file()
    }

    pub fn as_file_mut(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Renames it to the target, with the permissions of the file that it replaces.
    ///
    /// # Errors
    /// When it cannot be renamed, or a file exists that it may not replace.
    pub fn persist(self, target: &Path, replaces: bool) -> io::Result<()> {
        let Self { file, _live } = self;
        if let Ok(before) = target.metadata().map(|m| m.permissions()) {
            keep_permissions(file.as_file(), before);
        }
        let kept = if replaces {
            file.persist(target)
        } else {
            file.persist_noclobber(target)
        };
        kept.map(|_| ()).map_err(|e| e.error)
    }
}

/// Whether this process has a temporary file at this path.
pub fn is_live(path: &Path) -> bool {
    lock(&LIVE).contains(path)
}

/// Errors are ignored: the owner can still read the file, and its content must not be lost.
fn keep_permissions(file: &File, before: Permissions) {
    #[cfg(unix)]
    let before = {
        use std::os::unix::fs::PermissionsExt;
        // Setuid and similar bits were granted to the previous content.
        Permissions::from_mode(before.mode() & 0o777)
    };
    let _ = file.set_permissions(before);
}

/// Renames several files without interruption: a signal waits until it is done.
pub fn undisturbed<T>(name: impl FnOnce() -> T) -> T {
    let _naming = lock(&NAMING);
    name()
}

/// Removes all temporary files; from here on, none is created or renamed.
pub(super) fn remove_all() {
    let naming = lock(&NAMING);
    let live = lock(&LIVE);
    for path in live.iter() {
        // Ignore errors: nobody is left to report them to.
        let _ = fs::remove_file(path);
    }
    // Keep the locks for ever: the process ends.
    std::mem::forget((naming, live));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_file_is_listed_until_it_is_renamed_or_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let dropped = Temporary::new_in(directory.path()).expect("opens");
        let named = Temporary::new_in(directory.path()).expect("opens");
        let paths = [&dropped, &named].map(|temporary| temporary.file.path().to_path_buf());
        assert!(paths.iter().all(|path| is_live(path)));
        drop(dropped);
        named
            .persist(&directory.path().join("report"), true)
            .expect("renames");
        assert!(!paths.iter().any(|path| is_live(path)));
        let n_files = fs::read_dir(directory.path()).expect("lists").count();
        assert_eq!(n_files, 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_has_default_permissions_or_those_of_the_file_it_replaces() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let mode = |name: &str| at(name).metadata().expect("a file").permissions().mode() & 0o777;
        fs::write(at("any"), "").expect("writes");
        let make = |name: &str| {
            let temporary = Temporary::new_in(directory.path()).expect("opens");
            temporary.persist(&at(name), true).expect("renames");
        };
        make("new");
        assert_eq!(mode("new"), mode("any"));
        for before in [0o600, 0o640, 0o664] {
            fs::set_permissions(at("new"), Permissions::from_mode(before)).expect("sets");
            make("new");
            assert_eq!(mode("new"), before);
        }
    }
}
