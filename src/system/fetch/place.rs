//! Where a model lies in the cache.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::hub::Address;
use attnscope_compute::error::{Error, Result};

/// Where a model lies in the cache.
pub struct Place {
    pub repository: PathBuf,
}

impl Place {
    /// Notes which commit a branch or tag stands for.
    pub fn write_reference(&self, address: &Address, commit: &str) -> Result<()> {
        if address.revision == commit {
            return Ok(());
        }
        let path = self.repository.join("refs").join(&address.revision);
        make_directory_of(&path)?;
        write_whole(&path, commit.as_bytes())
    }
}

/// Makes the directory that a file is to lie in.
pub fn make_directory_of(path: &Path) -> Result<()> {
    let Some(directory) = path.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(directory)
        .map_err(|e| Error::file(directory, format!("cannot be made ({e})")))
}

/// Writes a short file under a temporary name, and renames it.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let written =
        std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|e| Error::file(path, format!("cannot be written ({e})")))
}
