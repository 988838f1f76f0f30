//! Files that have no name of their own yet: known in one place, so that whatever ends the program takes them away.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, NamedTempFile};

use super::owner::prefix;

/// Temporary files that are there.
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Held while files that belong together get their names.
static NAMING: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file under a temporary name; dropped, it is removed.
#[derive(Debug)]
pub struct Temporary {
    file: NamedTempFile,
    _live: Live,
}

/// The entry of a file in the list.
#[derive(Debug)]
struct Live(PathBuf);

impl Drop for Live {
    fn drop(&mut self) {
        lock(&LIVE).remove(&self.0);
    }
}

impl Temporary {
    /// Makes one beside the file that it is to become, as readable as any file that its owner makes.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn new_in(directory: &Path) -> io::Result<Self> {
        let prefix = prefix();
        let mut builder = Builder::new();
        builder.prefix(&prefix);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The system takes away what the umask forbids.
            builder.permissions(Permissions::from_mode(0o666));
        }
        // Made and noted in one step: nothing ends the program in between.
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

    /// Gives it a name, and the permissions of the file that it takes the place of.
    ///
    /// # Errors
    /// When it cannot be renamed, or a file is there that it may not replace.
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

/// Whether this process has a temporary file of this name.
pub fn is_live(path: &Path) -> bool {
    lock(&LIVE).contains(path)
}

/// Has a directory removed too when a signal ends the program.
pub fn removed_at_end(directory: &Path) {
    lock(&LIVE).insert(directory.to_path_buf());
}

/// Forgets a directory that was removed.
pub fn forgotten(directory: &Path) {
    lock(&LIVE).remove(directory);
}

/// Failing to change them leaves a file that its owner can read: no reason to lose what it holds.
fn keep_permissions(file: &File, before: Permissions) {
    #[cfg(unix)]
    let before = {
        use std::os::unix::fs::PermissionsExt;
        // Rights of other kinds were given to what was in the file.
        Permissions::from_mode(before.mode() & 0o777)
    };
    let _ = file.set_permissions(before);
}

/// Gives several files their names, all or none: a signal waits until it is done.
pub fn undisturbed<T>(name: impl FnOnce() -> T) -> T {
    let _naming = lock(&NAMING);
    name()
}

/// Removes all of them; from here on, none is made and none gets its name.
pub(super) fn remove_all() {
    let naming = lock(&NAMING);
    let live = lock(&LIVE);
    for path in live.iter() {
        // What cannot be removed stays: there is nobody left to tell.
        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
    }
    // For ever: the process ends.
    std::mem::forget((naming, live));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_until_it_has_its_name_or_is_dropped() {
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
    fn a_file_is_as_readable_as_any_other_and_keeps_the_mode_of_the_one_it_replaces() {
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
