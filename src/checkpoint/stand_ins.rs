//! Placeholders of missing files: git-lfs pointers, dangling links, and downloads that are not complete.

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};

use super::data_file::beginning;

/// Prefix of a git-lfs pointer, and the limit on its length.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
const LONGEST_POINTER: usize = 1024;

/// Extension under which the tools of the hub keep a download that is not complete.
pub const INCOMPLETE: &str = "incomplete";

/// Whether a path leads to a download that is not complete.
pub fn is_partly_downloaded(path: &Path) -> bool {
    let real = path.canonicalize();
    real.is_ok_and(|real| real.extension().is_some_and(|ending| ending == INCOMPLETE))
}

/// Refuses a git-lfs pointer in place of the file.
///
/// # Errors
/// When the file is a git-lfs pointer.
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

/// Refuses a link whose target is missing, as after an interrupted copy or download.
///
/// # Errors
/// Names the missing file.
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
