//! Files of a directory that may be a dump.

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};

/// Limit on the files of a directory that are looked at.
const MOST: usize = 1 << 18;

/// Lists the entries of a directory in order of their names.
///
/// # Errors
/// When it cannot be listed, or has too many entries.
pub(super) fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let cannot = |e: std::io::Error| Error::file(directory, format!("cannot be listed ({e})"));
    let mut found = Vec::new();
    for entry in directory.read_dir().map_err(cannot)? {
        found.push(entry.map_err(cannot)?.path());
        if found.len() > MOST {
            let problem = format!("expected at most {MOST} files, found more");
            return Err(Error::file(directory, problem));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether some entry of a directory has a name that `is_it` accepts.
pub(super) fn has(directory: &Path, is_it: impl Fn(&str) -> bool) -> bool {
    let Ok(entries) = directory.read_dir() else {
        return false;
    };
    let names = entries.take(MOST).flatten().map(|entry| entry.file_name());
    names
        .into_iter()
        .any(|name| name.to_str().is_some_and(&is_it))
}

/// The name of a file without its extension.
pub(super) fn stem(path: &Path) -> &str {
    path.file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default()
}
