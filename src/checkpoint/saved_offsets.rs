//! Parts of tensors in safetensors files that say where each belongs, as torch's Hugging Face storage saves them without joining them:
//! `shard-00001-model-00001-of-00001.safetensors`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};
use serde_json::Value as Json;

use super::made::{Joined, Piece};
use super::pytorch::StateDict;
use super::slices::gathered;
use super::tiling::{self, Chunk};

/// Key of a file's metadata with the offsets of its tensors.
const INFO: &str = "DCP_SHARDING_INFO";
const OFFSETS: &str = "saved_offsets";
/// Limit on the entries of a directory that are looked at.
const MOST_ENTRIES: usize = 10_000;

/// Offsets by file and name.
pub type Stated = Vec<BTreeMap<String, Vec<usize>>>;

/// Lists the shards in a directory, in order; `None` if there are none.
///
/// # Errors
/// When one is missing between others.
pub fn files_in(directory: &Path) -> Result<Option<Vec<PathBuf>>> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut found: Vec<(usize, PathBuf)> = entries
        .take(MOST_ENTRIES)
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?.strip_suffix(".safetensors")?;
            let (number, _) = name.strip_prefix("shard-")?.split_once("-model-")?;
            Some((number.parse().ok()?, entry.path()))
        })
        .collect();
    found.sort();
    let Some((last, file)) = found.last() else {
        return Ok(None);
    };
    let is_there = |number: &usize| found.iter().any(|(found, _)| found == number);
    if let Some(missing) = (1..=*last)
        .take(MOST_ENTRIES)
        .find(|number| !is_there(number))
    {
        let name = super::named_paths::file_name(file);
        let problem = format!("shard {missing} is missing, while {name} is there; copy it again");
        return Err(Error::file(directory, problem));
    }
    Ok(Some(found.into_iter().map(|(_, file)| file).collect()))
}

/// Returns the offsets that every file states; `None` if one does not.
pub fn stated(slices: &[StateDict]) -> Option<Stated> {
    let of_slice = |slice: &StateDict| {
        let text = slice.tensors.metadata.first()?.get(INFO)?;
        let json: Json = serde_json::from_str(text).ok()?;
        let of_tensor = |(name, info): (&String, &Json)| {
            let offsets = info.get(OFFSETS)?.as_array()?.iter();
            let offsets: Option<Vec<usize>> = offsets
                .map(|n| n.as_u64().and_then(|n| usize::try_from(n).ok()))
                .collect();
            Some((name.clone(), offsets?))
        };
        json.as_object()?.iter().map(of_tensor).collect()
    };
    slices.iter().map(of_slice).collect()
}

/// Joins parts at the offsets that the files state. The largest end of a part is taken for the end of the tensor.
///
/// # Errors
/// Names the tensor without offsets, or whose parts overlap or leave something out.
pub fn joined(slices: Vec<StateDict>, stated: Stated) -> Result<StateDict> {
    let (mut whole, parts_of) = gathered(slices);
    for (name, parts) in parts_of {
        let path = whole.tensors.files[parts[0].file_idx].path().to_path_buf();
        let refused = |problem: String| Error::tensor(&path, &name, problem);
        let mut shape = vec![0; parts[0].shape.len()];
        let (mut pieces, mut chunks) = (Vec::new(), Vec::new());
        for info in parts {
            let offsets = stated
                .get(info.file_idx)
                .and_then(|stated| stated.get(&name));
            let offsets = offsets.filter(|offsets| {
                offsets.len() == info.shape.len() && shape.len() == info.shape.len()
            });
            let offsets = offsets
                .ok_or_else(|| refused(format!("expected an offset for each axis in {INFO}")))?
                .clone();
            for ((end, first), n) in shape.iter_mut().zip(&offsets).zip(&info.shape) {
                *end = first.saturating_add(*n).max(*end);
            }
            chunks.push(Chunk {
                offsets: offsets.clone(),
                sizes: info.shape.clone(),
            });
            if info.n_elements() > 0 {
                pieces.push(Piece { offsets, info });
            }
        }
        tiling::check(&shape, &chunks).map_err(refused)?;
        if let Some(info) = Joined::whole(shape, pieces) {
            whole.tensors.index.insert(name, info);
        }
    }
    Ok(whole)
}
