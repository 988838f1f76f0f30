//! The digest of a checkpoint's files, which all units of the checkpoint have in their ids. It is kept beside the parts, so that one
//! worker reads the files for it and the others do not.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{CONFIGURATION, described_above, read_regular};
use attnscope_compute::error::{Error, Result};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use serde::{Deserialize, Serialize};

use super::digest;
use super::parts::{WEIGHTS, put};
use crate::is_weights;

/// What stands for the digest of files that cannot be read: such units fail, and have new ids once the files can be read.
const UNREADABLE: &str = "unreadable";

/// Endings of files in a checkpoint's directory that say how its weights are read.
const ENDINGS: [&str; 8] = [
    "json", "toml", "txt", "model", "jinja", "spm", "vocab", "pkl",
];
/// Names of such files beside a single file of weights.
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

/// What the files of a checkpoint are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weights {
    /// As the plan names the checkpoint.
    pub target: String,
    /// Digest of the names and bytes of all files.
    pub digest: String,
    /// Sizes and times of the files that were read, by which a change is noticed.
    seen: String,
}

impl Weights {
    /// Reads the files of a checkpoint, unless that was done before and they have not changed since. `places` are where they lie, none
    /// where they cannot be found; `listed` tells by what a change is noticed, where the files are copies.
    ///
    /// # Errors
    /// When the digest cannot be kept.
    pub fn of(
        directory: &Path,
        target: &str,
        places: &[PathBuf],
        listed: Option<&str>,
    ) -> Result<Self> {
        let seen = listed.map_or_else(|| seen(places), str::to_owned);
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

    /// What is kept of a checkpoint; `None` where no worker has begun with it.
    pub fn kept(directory: &Path, target: &str) -> Option<Self> {
        let path = directory.join(WEIGHTS).join(name_of(target));
        attnscope_system::store::pull(&path);
        let content = read_regular(&path, CONFIGURATION).ok()?;
        serde_json::from_slice(&content).ok()
    }

    /// Whether the files are still those that were read.
    pub fn are_unchanged(&self, places: &[PathBuf], listed: Option<&str>) -> bool {
        match listed {
            Some(listed) => listed == self.seen,
            None => seen(places) == self.seen,
        }
    }
}

fn name_of(target: &str) -> String {
    format!("{}.json", &digest::of_bytes(target.as_bytes())[..32])
}

/// The digest of a checkpoint whose files lie in several places. That of each further place, as of a base that many adapters share, is
/// kept as if the place were a checkpoint.
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
        digests.push(Weights::of(directory, &target, &[whole], None)?.digest);
    }
    Ok(digest::of_parts(digests.iter().map(String::as_bytes)))
}

/// Names, sizes and times of all files; empty where there is none.
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

/// The files that say what the weights are: those of a directory, or a file and what describes it.
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
        // Beside a file lie other checkpoints, and files about anything.
        let counts = if is_file {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            DESCRIBING.contains(&&*name) || name.ends_with(".model")
        } else {
            let ending = path.extension().unwrap_or_default().to_string_lossy();
            is_weights(&path) || ENDINGS.contains(&&*ending)
        };
        if counts && path.is_file() {
            files.push(path);
        }
    }
    if is_file {
        files.push(found.to_path_buf());
    }
    // What a directory of steps says of all of them.
    files.extend(described_above(directory));
    files.sort();
    files.dedup();
    Some(files)
}

/// The digest of all files, each read whole.
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
    fn any_byte_counts_and_times_and_places_do_not() {
        let [batch, first, copied] = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        for (directory, byte) in [(&first, 0), (&copied, 0)] {
            let mut bytes = vec![7; 300_000];
            bytes[200_000] = byte;
            fs::write(directory.path().join("model.safetensors"), bytes).expect("writes");
            fs::write(directory.path().join("config.json"), "{}").expect("writes");
        }
        let of = |target: &str, path: &Path| {
            Weights::of(batch.path(), target, &[path.to_path_buf()], None).expect("is kept")
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
        assert!(!of("copied", copied.path()).are_unchanged(&[first.path().to_path_buf()], None));
    }

    #[test]
    fn files_that_are_not_there_have_a_digest_until_they_are() {
        let [batch, later] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let missing = Weights::of(batch.path(), "later", &[], None).expect("is kept");
        assert_eq!(missing.digest, UNREADABLE);
        fs::write(later.path().join("model.safetensors"), "bytes").expect("writes");
        let places = [later.path().to_path_buf()];
        let there = Weights::of(batch.path(), "later", &places, None).expect("is kept");
        assert_ne!(missing.digest, there.digest);
    }
}
