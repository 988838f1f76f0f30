//! What lies in the place of a file that is not there: pointers of git-lfs, and links that lead nowhere.

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};

use super::data_file::beginning;

/// How a git-lfs pointer begins, and its length at most.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
const LONGEST_POINTER: usize = 1024;

/// Refuses what git keeps in the place of a large file.
///
/// # Errors
/// When the file is a pointer of git-lfs.
pub fn refuse_pointer(file: &Path) -> Result<()> {
    let is_short = file
        .metadata()
        .is_ok_and(|about| about.is_file() && about.len() <= LONGEST_POINTER as u64);
    if is_short && beginning(file, POINTER.len()) == POINTER {
        let problem = "is a git-lfs pointer, not the file itself; git lfs pull fetches it";
        return Err(Error::file(file, problem));
    }
    Ok(())
}

/// Refuses a link whose file is not there: a copy or a download that was cut off.
///
/// # Errors
/// Names the file that is missing.
pub fn refuse_dangling(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let to: PathBuf = match path.read_link() {
        Ok(to) => to,
        Err(_) => return Ok(()),
    };
    let problem = format!(
        "is a symbolic link to {}, which is missing; download or copy it again",
        to.display()
    );
    Err(Error::file(path, problem))
}
