//! The scratch directory of this process: created when something is first staged, removed when the program ends.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use attnscope_compute::error::{Error, Result};
use tempfile::TempDir;

use crate::signals::{forgotten, removed_at_end};

/// Where to create the directory, and the directory.
static SCRATCH: Mutex<(Option<PathBuf>, Option<TempDir>)> = Mutex::new((None, None));
/// Bytes to leave free for output files and other programs.
const LEFT_FREE: u64 = 64 << 20;

fn scratch() -> MutexGuard<'static, (Option<PathBuf>, Option<TempDir>)> {
    SCRATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets where to create the directory, instead of the system's directory for temporary files (`TMPDIR`).
pub fn put_scratch_in(directory: PathBuf) {
    scratch().0 = Some(directory);
}

/// Returns the directory, which is created on first use.
///
/// # Errors
/// When it cannot be created.
pub fn directory() -> Result<PathBuf> {
    let mut scratch = scratch();
    if let Some(made) = &scratch.1 {
        return Ok(made.path().to_path_buf());
    }
    let parent = scratch.0.clone().unwrap_or_else(std::env::temp_dir);
    let prefix = format!("attnscope-s3-{}-", std::process::id());
    let made = tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in(&parent)
        .map_err(|e| Error::file(&parent, format!("cannot hold staged files ({e})")))?;
    removed_at_end(made.path());
    let path = made.path().to_path_buf();
    scratch.1 = Some(made);
    Ok(path)
}

/// Removes the directory and its content.
pub fn remove_scratch() {
    if let Some(made) = scratch().1.take() {
        forgotten(made.path());
        // Ignore errors: nobody is left to report them to.
        let _ = made.close();
    }
}

/// Refuses to stage more than fits on the disk.
///
/// # Errors
/// When too little space is free.
pub fn check_space(name: &str, n_bytes: u64) -> Result<()> {
    let directory = directory()?;
    let Ok(about) = rustix::fs::statvfs(&directory) else {
        return Ok(());
    };
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    if n_bytes.saturating_add(LEFT_FREE) <= free {
        return Ok(());
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let parent = directory.parent().unwrap_or(Path::new("/"));
    let problem = format!(
        "{} MiB are to be staged, and {} has {} MiB free; --scratch DIR or TMPDIR names another directory",
        mib(n_bytes),
        parent.display(),
        mib(free)
    );
    Err(Error::file(name, problem))
}
