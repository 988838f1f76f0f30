//! Slices of the same tensors, one file each, as tensor-parallel programs save them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use super::data_file::DataFile;
use super::made::{ComputedTensor, Joined};
use super::named_paths::file_name;
use super::pytorch::StateDict;
use super::tensor_info::TensorInfo;
use super::weight_files::Weights;

/// Limit on the slices of a model.
const MOST_SLICES: usize = 100;

/// Finds a model's slices in a directory, as Meta publishes them: `consolidated.00.pth`, `consolidated.01.pth`, ….
///
/// # Errors
/// When one in the sequence is missing.
pub fn slices_in(directory: &Path) -> Result<Option<Weights>> {
    for ending in ["pth", "safetensors"] {
        let path_of = |idx: usize| directory.join(format!("consolidated.{idx:02}.{ending}"));
        let n = (0..MOST_SLICES).rev().find(|idx| path_of(*idx).exists());
        let Some(last) = n else { continue };
        let files: Vec<PathBuf> = (0..=last).map(path_of).collect();
        if let Some(missing) = files.iter().find(|file| !file.exists()) {
            let problem = format!(
                "missing, while {} is there; download it again",
                file_name(&path_of(last))
            );
            return Err(Error::file(missing, problem));
        }
        return Ok(Some(match files.as_slice() {
            [only] => Weights::File(only.clone()),
            _ => Weights::Slices(files),
        }));
    }
    Ok(None)
}

/// Joins the slices of a model as Meta's code splits them: matrices that read the residual by rows, those that write to it by
/// columns.
///
/// # Errors
/// When a tensor is missing in a slice, or has a different shape there.
pub fn joined(slices: Vec<StateDict>) -> Result<StateDict> {
    let mut whole = StateDict::default();
    let mut parts_of: BTreeMap<String, Vec<TensorInfo>> = BTreeMap::new();
    let n_slices = slices.len();
    for slice in slices {
        let n_files = whole.tensors.files.len();
        for (name, mut info) in slice.tensors.index {
            info.file_idx += n_files;
            parts_of.entry(name).or_default().push(info);
        }
        whole.tensors.files.extend(slice.tensors.files);
        whole.tensors.metadata.extend(slice.tensors.metadata);
        whole.plain_values.extend(slice.plain_values);
    }
    let width = parts_of
        .get("norm.weight")
        .and_then(|parts| parts.first()?.shape.first().copied());
    for (name, parts) in parts_of {
        let file = whole
            .tensors
            .files
            .first()
            .map_or(Path::new(""), DataFile::path);
        let refused = |problem: String| Error::tensor(file, &name, problem);
        let first = parts[0].clone();
        if parts.len() != n_slices
            || parts
                .iter()
                .any(|part| part.shape != first.shape || !part.dtype.is_float())
        {
            return Err(refused(format!(
                "expected a slice of one shape in each of {n_slices} files"
            )));
        }
        let axis = match first.shape.as_slice() {
            [_, columns] => Some(slice_axis(&name, *columns, width).ok_or_else(|| {
                refused(
                    "is in several slices, and how they follow each other is not known".to_owned(),
                )
            })?),
            // Norms and rotary frequencies are the same in all slices.
            _ => None,
        };
        let Some(axis) = axis else {
            whole.tensors.index.insert(name, first);
            continue;
        };
        let mut shape = first.shape.clone();
        shape[axis] = shape[axis]
            .checked_mul(n_slices)
            .ok_or_else(|| refused("has more elements than can be counted".to_owned()))?;
        let info = TensorInfo {
            shape,
            strides: None,
            scales: None,
            made: Some(Arc::new(ComputedTensor::Joined(Joined { parts, axis }))),
            ..first
        };
        whole.tensors.index.insert(name, info);
    }
    Ok(whole)
}

/// Returns the axis along which the slices of a matrix are joined.
fn slice_axis(name: &str, n_columns: usize, width: Option<usize>) -> Option<usize> {
    let module = name.strip_suffix(".weight")?.rsplit('.').next()?;
    match module {
        "wq" | "wk" | "wv" | "w1" | "w3" | "output" => Some(0),
        "wo" | "w2" => Some(1),
        // By tokens since Llama 3, by features before.
        "tok_embeddings" => Some(usize::from(width? != n_columns)),
        _ => None,
    }
}
