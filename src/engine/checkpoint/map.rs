//! The bytes of one weight file: memory-mapped, or compiled into the program.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};

/// A weight file whose bytes can be borrowed for as long as the checkpoint is open; clones share one map.
#[derive(Debug, Clone)]
pub struct Bytes {
    path: PathBuf,
    held: Held,
}

#[derive(Debug, Clone)]
enum Held {
    Mapped(Arc<memmap2::Mmap>),
    Static(&'static [u8]),
}

impl Bytes {
    /// Maps the file; nothing is read until it is touched.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped.
    pub fn map(path: &Path) -> Result<Self> {
        // Asked before it is opened: opening a pipe would wait for whoever writes to it.
        if let Ok(about) = path.metadata()
            && !about.is_file()
        {
            let found = match about.is_dir() {
                true => "a directory",
                false => "a pipe or a device",
            };
            let problem = format!("expected a weight file, found {found}");
            return Err(Error::file(path, problem));
        }
        let file =
            File::open(path).map_err(|e| Error::file(path, format!("cannot be opened ({e})")))?;
        // SAFETY: the map is read-only and private to this process. Another process may truncate the file
        // while we read, which no reader of mapped files can exclude; a checkpoint on disk is not written
        // in place (trainers write to a new file), and its bytes are never trusted as anything but numbers.
        #[expect(unsafe_code)]
        let map = unsafe { memmap2::Mmap::map(&file) }
            .map_err(|e| Error::file(path, format!("cannot be mapped ({e})")))?;
        Ok(Self {
            path: path.to_path_buf(),
            held: Held::Mapped(Arc::new(map)),
        })
    }

    /// Bytes that are part of the program; `path` is only what messages call them.
    pub fn compiled_in(path: &str, bytes: &'static [u8]) -> Self {
        Self {
            path: PathBuf::from(path),
            held: Held::Static(bytes),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn as_slice(&self) -> &[u8] {
        match &self.held {
            Held::Mapped(map) => map,
            Held::Static(bytes) => bytes,
        }
    }
}
