//! Weights in several files: shards named by an index or by their numbering.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};

use super::data_file::DataFile;
use super::named_paths::{file_name, is_plain_name};
use super::stand_ins::{refuse_dangling, refuse_pointer};
use super::tensors::Tensors;
use crate::{VOCABULARY, read_text};

/// Limit on the shards of a model.
const MOST_SHARDS: usize = 10_000;

/// Lists the files that an index names, each once, sorted.
///
/// # Errors
/// When it is not an index, or names a file outside its directory.
pub fn files_of(index_path: &Path) -> Result<Vec<String>> {
    let files: BTreeSet<String> = places(index_path)?.into_values().collect();
    Ok(files.into_iter().collect())
}

/// Reads which file holds each tensor according to an index.
fn places(index_path: &Path) -> Result<BTreeMap<String, String>> {
    let text = read_text(index_path, VOCABULARY)?;
    let json: serde_json::Value = serde_json::from_str(&text)
        .map_err(|e| Error::file(index_path, format!("is not valid JSON ({e})")))?;
    let Some(weight_map) = json.get("weight_map").and_then(|m| m.as_object()) else {
        return Err(Error::file(
            index_path,
            "expected an object \"weight_map\" from tensor names to files",
        ));
    };
    let mut place_of = BTreeMap::new();
    for (tensor, file) in weight_map {
        let Some(file) = file.as_str() else {
            return Err(Error::tensor(
                index_path,
                tensor,
                format!("expected a file name, found {file}"),
            ));
        };
        if !is_plain_name(file) {
            let problem = format!("expected a file beside the index, found {file:?}");
            return Err(Error::tensor(index_path, tensor, problem));
        }
        place_of.insert(tensor.clone(), file.to_owned());
    }
    Ok(place_of)
}

/// Opens every shard that an index names with `add`, which reads a file of the format.
///
/// # Errors
/// When the index is invalid, names a file outside its directory, or a shard or tensor is missing.
pub fn open(
    index_path: &Path,
    mut add: impl FnMut(&mut Tensors, DataFile) -> Result<()>,
) -> Result<Tensors> {
    let place_of = places(index_path)?;
    let directory = index_path.parent().unwrap_or(Path::new("."));
    let mut tensors = Tensors::default();
    for file in place_of.values().collect::<BTreeSet<_>>() {
        let path: PathBuf = directory.join(file);
        refuse_dangling(&path)?;
        if !path.exists() {
            return Err(Error::file(
                &path,
                format!(
                    "missing; {} names it as a shard: download or copy it again",
                    file_name(index_path)
                ),
            ));
        }
        refuse_pointer(&path)?;
        add(&mut tensors, DataFile::open(&path)?)?;
    }
    for (tensor, file) in place_of {
        if !tensors.contains(&tensor) {
            let problem = format!("missing; {} says it is here", file_name(index_path));
            return Err(Error::tensor(directory.join(file), tensor, problem));
        }
    }
    Ok(tensors)
}

/// Opens shards that have no index.
///
/// # Errors
/// When one of them cannot be read, or two contain the same tensor.
pub fn open_all(
    files: &[PathBuf],
    mut add: impl FnMut(&mut Tensors, DataFile) -> Result<()>,
) -> Result<Tensors> {
    let mut tensors = Tensors::default();
    for path in files {
        refuse_pointer(path)?;
        add(&mut tensors, DataFile::open(path)?)?;
    }
    Ok(tensors)
}

/// A file name with the shard's number and the number of shards: `STEM-00001-of-00003.ENDING`.
struct Numbered<'a> {
    stem: &'a str,
    number: usize,
    n: usize,
    n_digits: usize,
    ending: &'a str,
}

impl<'a> Numbered<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let (before, after) = name.rsplit_once("-of-")?;
        let (n, ending) = after.split_once('.')?;
        let (stem, number) = before.rsplit_once('-')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let holds_weights = ["safetensors", "bin", "gguf", "pt", "pth"].contains(&ending);
        if !is_number(n) || !is_number(number) || n.len() > 6 || !holds_weights {
            return None;
        }
        Some(Self {
            stem,
            number: number.parse().ok()?,
            n: n.parse().ok()?,
            n_digits: number.len(),
            ending,
        })
    }
}

/// Lists all files of the set that a shard belongs to by its name, in order; `None` if the name is not numbered.
///
/// # Errors
/// When one of them is missing.
pub fn set_of(file: &Path) -> Result<Option<Vec<PathBuf>>> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let Some(own) = Numbered::of(&name).filter(|own| own.n <= MOST_SHARDS) else {
        return Ok(None);
    };
    // Numbering starts at 1 or at 0.
    let directory = file.parent().unwrap_or(Path::new(""));
    let path_of = |number: usize| {
        let (digits, n) = (own.n_digits, own.n);
        directory.join(format!(
            "{}-{number:0digits$}-of-{n:0digits$}.{}",
            own.stem, own.ending
        ))
    };
    let starts_at_0 = own.number == 0 || path_of(0).symlink_metadata().is_ok();
    let first = usize::from(!starts_at_0);
    let files: Vec<PathBuf> = (first..first + own.n).map(path_of).collect();
    for file in &files {
        refuse_dangling(file)?;
        if !file.exists() {
            let problem = format!(
                "missing: {} is one of {} shards; download or copy it again",
                name, own.n
            );
            return Err(Error::file(file, problem));
        }
    }
    Ok(Some(files))
}
