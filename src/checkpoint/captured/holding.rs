//! Whether a file holds captured arrays, by the names in it.

use std::path::Path;

use super::{is_npz, is_torch, members};
use crate::data_file::DataFile;
use crate::pytorch::open_arrays;
use crate::safetensors::{open_file, open_with_metadata};
use crate::tensors::Tensors;

/// Endings of the names of weights in common frameworks.
const WEIGHTS: [&str; 8] = [
    "weight",
    "bias",
    "kernel",
    "embedding",
    "gamma",
    "beta",
    ".W_E",
    ".W_Q",
];

/// Whether a path may hold captured arrays, i.e. any name that `is_captured` accepts. An archive also qualifies if it has no name
/// of a weight.
pub fn holds(path: &Path, is_captured: impl Fn(&str) -> bool) -> bool {
    if !path.is_file() {
        return false;
    }
    if is_npz(path) {
        // A read error is reported when the file is opened as a trace.
        let names = DataFile::open(path).and_then(|file| members(&file));
        return names.map_or(true, |names| {
            let is_weight = |name: &String| WEIGHTS.iter().any(|end| name.ends_with(end));
            names.keys().any(|name| is_captured(name)) || !names.keys().any(is_weight)
        });
    }
    // A read error is reported when the file is opened as weights.
    if is_torch(path) {
        return open_arrays(path)
            .is_ok_and(|arrays| arrays.tensors.iter().any(|(name, _)| is_captured(name)));
    }
    is_safetensors(path)
        && open_file(path).is_ok_and(|tensors| tensors.iter().any(|(name, _)| is_captured(name)))
}

/// Whether the metadata of a safetensors file has a key that `is_stated` accepts.
pub fn states(path: &Path, is_stated: impl Fn(&str) -> bool) -> bool {
    // A read error is reported when the file is opened as weights.
    is_safetensors(path)
        && path.is_file()
        && open_with_metadata(path)
            .is_ok_and(|(_, metadata)| metadata.keys().any(|key| is_stated(key)))
}

/// Lists the names of the arrays of a file; none if it has another format or cannot be read.
pub fn names_in(path: &Path) -> Vec<String> {
    let owned = |tensors: &Tensors| tensors.iter().map(|(name, _)| name.to_owned()).collect();
    if !path.is_file() {
        Vec::new()
    } else if is_npz(path) {
        let names = DataFile::open(path).and_then(|file| members(&file));
        names.map_or_else(|_| Vec::new(), |names| names.into_keys().collect())
    } else if is_torch(path) {
        open_arrays(path).map_or_else(|_| Vec::new(), |arrays| owned(&arrays.tensors))
    } else if is_safetensors(path) {
        open_file(path).map_or_else(|_| Vec::new(), |tensors| owned(&tensors))
    } else {
        Vec::new()
    }
}

fn is_safetensors(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "safetensors")
}
