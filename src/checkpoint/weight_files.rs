//! The weight files of a checkpoint.

use std::path::{Path, PathBuf};

/// The weights of a checkpoint, and the directory of the files that describe them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    pub directory: PathBuf,
    pub weights: Weights,
}

/// The files that hold weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weights {
    /// One file, or the index of several.
    File(PathBuf),
    /// Shards without an index, in order.
    Shards(Vec<PathBuf>),
    /// Slices of the same tensors, as tensor-parallel programs save them.
    Slices(Vec<PathBuf>),
}

impl Weights {
    /// Returns the only file, or the first.
    pub fn first(&self) -> &Path {
        match self {
            Self::File(file) => file,
            Self::Shards(files) | Self::Slices(files) => {
                files.first().map_or(Path::new("."), PathBuf::as_path)
            }
        }
    }
}
