//! Weights in several files that an index names: every shard is there, and every tensor is where the index says.

use crate::checkpoint::{VOCABULARY, read_text};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::data_file::DataFile;
use super::tensors::Tensors;
use crate::error::{Error, Result};

/// Opens every shard that an index names through `add`, which reads one file of the format.
///
/// # Errors
/// When the index is not an index, names a file outside its directory, or a shard or tensor is missing.
pub fn open(
    index_path: &Path,
    mut add: impl FnMut(&mut Tensors, DataFile) -> Result<()>,
) -> Result<Tensors> {
    let text = read_text(index_path, VOCABULARY)?;
    let json: serde_json::Value = serde_json::from_str(&text)
        .map_err(|e| Error::file(index_path, format!("is not valid JSON ({e})")))?;
    let Some(weight_map) = json.get("weight_map").and_then(|m| m.as_object()) else {
        return Err(Error::file(
            index_path,
            "expected an object \"weight_map\" from tensor names to files",
        ));
    };
    let mut place_of: BTreeMap<&str, &str> = BTreeMap::new();
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
        place_of.insert(tensor, file);
    }
    let directory = index_path.parent().unwrap_or(Path::new("."));
    let mut tensors = Tensors::default();
    for file in place_of.values().copied().collect::<BTreeSet<_>>() {
        let path: PathBuf = directory.join(file);
        if !path.exists() {
            return Err(Error::file(
                &path,
                format!("missing; {} names it as a shard", file_name(index_path)),
            ));
        }
        add(&mut tensors, DataFile::open(&path)?)?;
    }
    for (tensor, file) in place_of {
        if !tensors.contains(tensor) {
            let problem = format!("missing; {} says it is here", file_name(index_path));
            return Err(Error::tensor(directory.join(file), tensor, problem));
        }
    }
    Ok(tensors)
}

fn is_plain_name(file: &str) -> bool {
    let mut parts = Path::new(file).components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    )
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |n| n.to_string_lossy().into_owned(),
    )
}
