//! The files that hold the weights of one checkpoint.

use std::path::{Path, PathBuf};

/// The weights of a checkpoint, and the directory of the files that say what they are.
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
    /// Files of one model that no index names, in order.
    Shards(Vec<PathBuf>),
    /// Slices of the same tensors, as tensor-parallel programs keep them.
    Slices(Vec<PathBuf>),
}

impl Weights {
    /// The only file, or the first.
    pub fn first(&self) -> &Path {
        match self {
            Self::File(file) => file,
            Self::Shards(files) | Self::Slices(files) => {
                files.first().map_or(Path::new("."), PathBuf::as_path)
            }
        }
    }
}
