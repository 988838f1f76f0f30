//! `file.pt#name`: one of several models in a file, or in a distributed checkpoint.

use std::path::{Path, PathBuf};

use super::pytorch::METADATA;

/// Splits `file.pt#name` into the file and the name of a model in it; a path that exists is left as it is.
pub fn part_of(path: &Path) -> (PathBuf, Option<String>) {
    let whole = (path.to_path_buf(), None);
    if path.symlink_metadata().is_ok() {
        return whole;
    }
    let holds_models =
        |file: &str| Path::new(file).is_file() || Path::new(file).join(METADATA).is_file();
    match path.to_str().and_then(|text| text.rsplit_once('#')) {
        Some((file, part)) if holds_models(file) && !part.is_empty() => {
            (PathBuf::from(file), Some(part.to_owned()))
        }
        _ => whole,
    }
}
