//! `file.pt#name`: one of several models in a file.

use std::path::{Path, PathBuf};

/// Splits `file.pt#name` into the file and the name of a model in it; a path that exists is left as it is.
pub fn part_of(path: &Path) -> (PathBuf, Option<String>) {
    let whole = (path.to_path_buf(), None);
    if path.symlink_metadata().is_ok() {
        return whole;
    }
    match path.to_str().and_then(|text| text.rsplit_once('#')) {
        Some((file, part)) if Path::new(file).is_file() && !part.is_empty() => {
            (PathBuf::from(file), Some(part.to_owned()))
        }
        _ => whole,
    }
}
