//! Locating an adapter: its directory and its weight file.

use std::path::{Path, PathBuf};

use super::config::CONFIG;

/// Prefix of the names of adapter weight files.
const WEIGHTS: &str = "adapter_model";

/// Whether a file holds the weights of an adapter.
pub fn is_weights(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(WEIGHTS)
}

/// Finds the directory of an adapter, given that directory or its weight file.
pub fn directory_at(path: &Path) -> Option<PathBuf> {
    let directory = if path.is_dir() {
        path
    } else if is_weights(path) {
        path.parent()?
    } else {
        return None;
    };
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    directory
        .join(CONFIG)
        .is_file()
        .then(|| directory.to_path_buf())
}
