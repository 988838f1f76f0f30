//! Digest of a checkpoint's files, part of the ids of all its units. It is stored next to the parts, so that one worker
//! reads the files and the others do not have to.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{CONFIGURATION, described_above, is_distributed_file, read_regular};
use attnscope_compute::error::{Error, Result};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use serde::{Deserialize, Serialize};

use super::digest;
use super::parts::WEIGHTS;
use super::whole_files::put;
use crate::is_weights;

/// Used instead of the digest of unreadable files: such units fail, and get new ids once the files can be read.
const UNREADABLE: &str = "unreadable";

/// Extensions of files in a checkpoint's directory that describe its weights.
const ENDINGS: [&str; 8] = [
    "json", "toml", "txt", "model", "jinja", "spm", "vocab", "pkl",
];
/// Names of files that describe a single file of weights next to them.
const DESCRIBING: [&str; 13] = [
    "added_tokens.json",
    "adapter_config.json",
    "attnscope.toml",
    "config.json",
    "merges.txt",
    "meta.pkl",
    "params.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "trainer_state.json",
    "vocab.json",
    "vocab.txt",
];

/// Identity of a checkpoint's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weights {
    /// The checkpoint as named in the plan.
    pub target: String,
    /// Digest of the names and bytes of all files.
    pub digest: String,
    /// Sizes and times of the files when they were read, to detect changes.
    seen: String,
}

impl Weights {
    /// Returns the stored digest, or reads the files if they changed or have not been read. `places` are their locations, empty
    /// if they cannot be found.
    ///
    /// # Errors
    /// When the digest cannot be stored.
    pub fn of(directory: &Path, target: &str, places: &[PathBuf]) -> Result<Self> {
        let seen = seen(places);
        if let Some(kept) = Self::kept(directory, target)
            && kept.seen == seen
            && kept.target == target
        {
            return Ok(kept);
        }
        let weights = Self {
            target: target.to_owned(),
            digest: digest_of(directory, places)?,
            seen,
        };
        let content = serde_json::to_vec(&weights).map_err(|e| {
            Error::file(directory, format!("a digest that cannot be written ({e})"))
        })?;
        put(&directory.join(WEIGHTS), &name_of(target), &content)?;
        Ok(weights)
    }

    /// Returns the stored entry of a checkpoint; `None` if no worker has started it.
    pub fn kept(directory: &Path, target: &str) -> Option<Self> {
        let path = directory.join(WEIGHTS).join(name_of(target));
        let content = read_regular(&path, CONFIGURATION).ok()?;
        serde_json::from_slice(&content).ok()
    }

    /// Whether the files are unchanged since they were read.
    pub fn are_unchanged(&self, places: &[PathBuf]) -> bool {
        seen(places) == self.seen
    }
}

fn name_of(target: &str) -> String {
    format!("{}.json", &digest::of_bytes(target.as_bytes())[..32])
}

/// Returns the digest of a checkpoint with files in several places. The digest of each further place, such as a base model that
/// many adapters share, is stored as if the place were a checkpoint.
fn digest_of(directory: &Path, places: &[PathBuf]) -> Result<String> {
    let Some((first, others)) = places.split_first() else {
        return Ok(UNREADABLE.to_owned());
    };
    let own = of_files(first).unwrap_or_else(|| UNREADABLE.to_owned());
    if others.is_empty() {
        return Ok(own);
    }
    let mut digests = vec![own];
    for place in others {
        let whole = place.canonicalize().unwrap_or_else(|_| place.clone());
        let target = whole.display().to_string();
        digests.push(Weights::of(directory, &target, &[whole])?.digest);
    }
    Ok(digest::of_parts(digests.iter().map(String::as_bytes)))
}

/// Returns names, sizes and times of all files; empty if there are none.
fn seen(places: &[PathBuf]) -> String {
    let all = places.iter().map(|place| seen_at(place));
    all.collect::<Option<String>>().unwrap_or_default()
}

fn seen_at(place: &Path) -> Option<String> {
    let mut seen = String::new();
    for path in files_of(place)? {
        let about = path.metadata().ok()?;
        let name = path.file_name()?.to_string_lossy();
        let times = (
            about.mtime(),
            about.mtime_nsec(),
            about.ctime(),
            about.ctime_nsec(),
        );
        let _ = writeln!(seen, "{name:?} {} {times:?}", about.len());
    }
    Some(seen)
}

/// Returns the files that define the weights: all such files of a directory, or a file with those that describe it.
fn files_of(found: &Path) -> Option<Vec<PathBuf>> {
    let is_file = found.is_file();
    let directory = if is_file { found.parent()? } else { found };
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        // Other checkpoints and unrelated files may be next to a file.
        let counts = if is_file {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            DESCRIBING.contains(&&*name) || name.ends_with(".model")
        } else {
            let ending = path.extension().unwrap_or_default().to_string_lossy();
            is_weights(&path) || is_distributed_file(&path) || ENDINGS.contains(&&*ending)
        };
        if counts && path.is_file() {
            files.push(path);
        }
    }
    if is_file {
        files.push(found.to_path_buf());
    }
    // Files in the directory above that describe all steps.
    files.extend(described_above(directory));
    files.sort();
    files.dedup();
    Some(files)
}

/// Returns the digest of all files, each read completely.
fn of_files(found: &Path) -> Option<String> {
    let files = files_of(found).filter(|files| !files.is_empty())?;
    let digests = files.into_par_iter().map(|path| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        Some([name, digest::of_file(&path).ok()?])
    });
    let digests: Option<Vec<[String; 2]>> = digests.collect();
    Some(digest::of_parts(
        digests?.iter().flatten().map(String::as_bytes),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_depends_on_every_byte_but_not_on_times_or_places() {
        let [batch, first, copied] = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        for (directory, byte) in [(&first, 0), (&copied, 0)] {
            let mut bytes = vec![7; 300_000];
            bytes[200_000] = byte;
            fs::write(directory.path().join("model.safetensors"), bytes).expect("writes");
            fs::write(directory.path().join("config.json"), "{}").expect("writes");
        }
        let of = |target: &str, path: &Path| {
            Weights::of(batch.path(), target, &[path.to_path_buf()]).expect("is kept")
        };
        let digest = of("first", first.path()).digest;
        assert_eq!(digest, of("copied", copied.path()).digest);
        assert_eq!(
            Weights::kept(batch.path(), "first"),
            Some(of("first", first.path()))
        );
        let mut bytes = vec![7; 300_000];
        bytes[200_000] = 1;
        fs::write(first.path().join("model.safetensors"), bytes).expect("writes");
        assert_ne!(digest, of("first", first.path()).digest);
        assert!(!of("copied", copied.path()).are_unchanged(&[first.path().to_path_buf()]));
    }

    #[test]
    fn missing_files_have_a_placeholder_digest_until_they_exist() {
        let [batch, later] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let missing = Weights::of(batch.path(), "later", &[]).expect("is kept");
        assert_eq!(missing.digest, UNREADABLE);
        fs::write(later.path().join("model.safetensors"), "bytes").expect("writes");
        let places = [later.path().to_path_buf()];
        let there = Weights::of(batch.path(), "later", &places).expect("is kept");
        assert_ne!(missing.digest, there.digest);
    }
}
