//! Output targets: standard output, or a file that appears complete or not at all.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use attnscope_checkpoint::was_read;
use attnscope_compute::error::{Error, Result};
use attnscope_system::signals::Temporary;

/// An open target.
#[derive(Debug)]
pub enum Output {
    Stdout,
    /// A device or a pipe, written to directly.
    Special {
        file: File,
        target: PathBuf,
    },
    /// Written next to the target under a temporary name, and renamed at the end.
    File {
        temporary: Temporary,
        target: PathBuf,
        /// Whether an existing file of that name may be replaced.
        replaces: bool,
    },
}

impl Output {
    /// Opens a target that this run may replace, such as a file that it wrote earlier. For targets that the user names, use
    /// [`Output::open_or_replace`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn replace(target: &Path) -> Result<Self> {
        if target == Path::new("-") {
            return Ok(Self::Stdout);
        }
        if target.is_dir() {
            return Err(Error::file(
                target,
                "expected a file to write to, found a directory",
            ));
        }
        Self::check_not_read(target)?;
        // Write to a device or a pipe directly; renaming a file over it would destroy it.
        if target.metadata().is_ok_and(|m| !m.is_file()) {
            let file = File::options().write(true).open(target);
            let file = file.map_err(|e| Error::file(target, format!("cannot be written ({e})")))?;
            return Ok(Self::Special {
                file,
                target: target.to_path_buf(),
            });
        }
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let temporary = Temporary::new_in(directory).map_err(|e| {
            Error::file(target, format!("cannot be written ({})", without_path(&e)))
        })?;
        Ok(Self::File {
            temporary,
            target: target.to_path_buf(),
            replaces: true,
        })
    }

    /// Opens a new file; an existing file is never replaced, even one that appears during the run.
    ///
    /// # Errors
    /// When it cannot be written, or the name is taken.
    pub fn open_new(target: &Path) -> Result<Self> {
        match Self::replace(target)? {
            Self::File { temporary, .. } => {
                // A dangling link counts as taken: renaming would replace it.
                if target.symlink_metadata().is_ok() {
                    return Err(Error::file(target, TAKEN));
                }
                let target = target.to_path_buf();
                Ok(Self::File {
                    temporary,
                    target,
                    replaces: false,
                })
            }
            other => Ok(other),
        }
    }

    /// Opens the target of `--output` before the long run, so that a path that cannot be written fails at once. `-` is
    /// standard output. A file that is not empty is replaced only with `--force`.
    ///
    /// # Errors
    /// When it cannot be written, or a file exists that may not be replaced.
    pub fn open_or_replace(target: &Path, is_forced: bool) -> Result<Self> {
        // An empty file may be replaced: `mktemp` makes one.
        let is_free = || {
            target
                .metadata()
                .is_ok_and(|m| m.len() == 0 || !m.is_file())
        };
        if is_forced || target == Path::new("-") || is_free() {
            return Self::replace(target);
        }
        Self::open_new(target).map_err(|e| match target.symlink_metadata() {
            Ok(about) if !about.is_dir() && !was_read(target) => {
                Error::file(target, format!("{TAKEN}; pass --force to replace it"))
            }
            _ => e,
        })
    }

    /// Refuses a target that this process has read: writing would destroy the input.
    ///
    /// # Errors
    /// When the process has read it.
    pub fn check_not_read(target: &Path) -> Result<()> {
        if was_read(target) {
            Err(Error::file(
                target,
                "expected a file to write to, found one that this run reads",
            ))
        } else {
            Ok(())
        }
    }

    /// Returns the file, for formats that seek; `None` for standard output.
    pub fn file(&self) -> Option<&File> {
        match self {
            Self::Stdout | Self::Special { .. } => None,
            Self::File { temporary, .. } => Some(temporary.as_file()),
        }
    }

    /// Writes everything and closes. A closed pipe is not an error.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write(mut self, content: &[u8]) -> Result<()> {
        self.put(content)?;
        self.close()
    }

    /// Writes, without renaming the file to its target.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn put(&mut self, content: &[u8]) -> Result<()> {
        let written = match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(content).and_then(|()| stdout.flush())
            }
            Self::Special { file, .. } => file.write_all(content),
            // Not through the temporary file's own methods, whose errors name its path.
            Self::File { temporary, .. } => temporary.as_file_mut().write_all(content),
        };
        match written {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
            Err(e) => Err(Error::file(self.name(), format!("cannot be written ({e})"))),
            Ok(()) => Ok(()),
        }
    }

    /// Renames the file to its target.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn close(self) -> Result<()> {
        match self {
            Self::Stdout | Self::Special { .. } => Ok(()),
            Self::File {
                temporary,
                target,
                replaces,
            } => {
                // The command may have read the target after it was opened: check again.
                Self::check_not_read(&target)?;
                let kept = temporary.persist(&target, replaces);
                kept.map_err(|e| match e.kind() {
                    ErrorKind::AlreadyExists => Error::file(&target, TAKEN),
                    _ => Error::file(&target, format!("cannot be written ({e})")),
                })
            }
        }
    }

    fn name(&self) -> &Path {
        match self {
            Self::Stdout => Path::new("standard output"),
            Self::Special { target, .. } | Self::File { target, .. } => target,
        }
    }
}

/// Error text for a name that is taken.
const TAKEN: &str = "already exists, and was left as it is";

/// Returns the error without the temporary path that tempfile adds, which means nothing to the user.
fn without_path(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::NotADirectory => "its parent is not a directory".to_owned(),
        kind => kind.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_complete_under_its_name_only_at_the_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("report.json");
        let output = Output::replace(&target).expect("opens");
        assert!(!target.exists());
        output.write(b"{}").expect("writes");
        assert_eq!(std::fs::read(&target).expect("reads"), b"{}");
        assert_eq!(
            std::fs::read_dir(directory.path()).expect("lists").count(),
            1
        );
    }

    #[test]
    fn a_file_that_exists_or_appears_during_the_run_is_not_overwritten() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("plot.svg");
        let output = Output::open_new(&target).expect("opens");
        std::fs::write(&target, "another's").expect("writes");
        let late = output.write(b"ours").expect_err("refused").to_string();
        let early = Output::open_new(&target).expect_err("refused").to_string();
        for said in [late, early] {
            assert!(said.contains("plot.svg: already exists"), "{said}");
        }
        assert_eq!(std::fs::read(&target).expect("reads"), b"another's");
        let n_files = std::fs::read_dir(directory.path()).expect("lists").count();
        assert_eq!(n_files, 1, "a temporary file was left behind");
    }

    #[test]
    fn a_failed_run_leaves_no_file_behind() {
        let directory = tempfile::tempdir().expect("a directory");
        drop(Output::replace(&directory.path().join("report.json")).expect("opens"));
        assert_eq!(
            std::fs::read_dir(directory.path()).expect("lists").count(),
            0
        );
    }

    #[test]
    fn a_directory_and_a_path_in_a_missing_directory_are_refused_before_the_run() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(
            Output::replace(directory.path())
                .expect_err("refused")
                .to_string()
                .contains("directory")
        );
        let missing =
            Output::replace(&directory.path().join("no/such/report.json")).expect_err("refused");
        assert!(
            missing.to_string().contains("no such directory"),
            "{missing}"
        );
    }
}
