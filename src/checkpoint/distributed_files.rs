//! Finds distributed checkpoints of PyTorch on disk: the index, its parts, and the directories that trainers put them in.

use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};

use super::pytorch::METADATA;

/// Extension of the parts.
const PART: &str = "distcp";
/// The index of one rank, where ranks were saved without a common one.
const OF_RANK: &str = "__0.metadata";
/// Directories of a step that hold its weights: of OLMo-core, and of NeMo.
const INSIDE: [&str; 3] = ["model_and_optim", "model_weights", "weights"];
/// What accelerate's directories of weights begin with; the number of the model follows.
const ACCELERATE: &str = "pytorch_model_fsdp_";
/// Limit on the entries of a directory that are looked at.
const MOST_ENTRIES: usize = 10_000;

/// Whether a file is by its name a part or the index of a distributed checkpoint.
pub fn is_distributed_file(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == PART)
        || file.file_name().is_some_and(|name| name == METADATA)
}

/// Whether a directory holds parts or the index of a distributed checkpoint.
pub fn holds_distributed(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut paths = entries
        .take(MOST_ENTRIES)
        .flatten()
        .map(|entry| entry.path());
    paths.any(|path| is_distributed_file(&path))
}

/// Returns the directory of a distributed checkpoint at a path: itself, or the one in which a trainer keeps the weights of a step.
pub fn distributed_at(directory: &Path) -> Option<PathBuf> {
    if holds_distributed(directory) {
        return Some(directory.to_path_buf());
    }
    inside(directory)
        .into_iter()
        .find(|inside| holds_distributed(inside))
}

/// Lists the directories in which trainers keep the weights of a step.
pub(super) fn inside(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .take(MOST_ENTRIES)
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(ACCELERATE) || INSIDE.contains(&&*name)
        })
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

/// Finds the index in a directory of parts; `None` if there are neither.
///
/// # Errors
/// When there are parts without an index that covers all of them.
pub(super) fn index_in(directory: &Path) -> Result<Option<PathBuf>> {
    let index = directory.join(METADATA);
    if index.is_file() {
        return Ok(Some(index));
    }
    if !holds_distributed(directory) {
        return Ok(None);
    }
    let problem = if directory.join(OF_RANK).is_file() {
        "holds a torch distributed checkpoint whose ranks were saved without a common index (use_collectives=False), which is not \
         read; save it with use_collectives=True"
    } else {
        "holds parts of a torch distributed checkpoint without their index .metadata, which is written last: it is still being \
         saved, was not saved whole, or was not copied whole"
    };
    Err(Error::file(directory, problem))
}
