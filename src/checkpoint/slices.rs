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
use super::{ranks, saved_offsets};

/// Limit on the slices of a model.
const MOST_SLICES: usize = 100;

/// Finds a model's slices in a directory: as Meta publishes them (`consolidated.00.pth`, `consolidated.01.pth`, …), of several ranks
/// of Megatron, or of torch's Hugging Face storage.
///
/// # Errors
/// When one in the sequence is missing.
pub fn slices_in(directory: &Path) -> Result<Option<Weights>> {
    if let Some(files) = ranks::files_in(directory) {
        return Ok(Some(Weights::Slices(files)));
    }
    if let Some(files) = saved_offsets::files_in(directory)? {
        return Ok(Some(Weights::Slices(files)));
    }
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

/// How the slices of a tensor make the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Division {
    /// Each slice is the whole.
    Same,
    /// They follow each other along an axis.
    Along(usize),
    /// Each is two halves, by rows: all first halves come before all second ones.
    Halves,
}

/// Joins the slices of a model: as Megatron or torch's Hugging Face storage say how they follow each other, or else as Meta's code
/// splits them, matrices that read the residual by rows, those that write to it by columns.
///
/// # Errors
/// When a tensor is missing in a slice, or has a different shape there.
pub fn joined(files: &[PathBuf], slices: Vec<StateDict>) -> Result<StateDict> {
    if let Some(offsets) = saved_offsets::stated(&slices) {
        return saved_offsets::joined(slices, offsets);
    }
    if let Some(grid) = ranks::grid(files)? {
        return ranks::joined(&grid, slices);
    }
    let n_slices = slices.len();
    let width = slices.first().and_then(|slice| {
        let norm = slice.tensors.index.get("norm.weight")?;
        norm.shape.first().copied()
    });
    put_together(slices, n_slices, |name, part| match part.shape.as_slice() {
        [_, columns] => slice_axis(name, *columns, width).map(Division::Along),
        // Norms and rotary frequencies are the same in all slices.
        _ => Some(Division::Same),
    })
}

/// The files of all slices as those of one model, and the parts of each tensor in order.
pub(super) fn gathered(slices: Vec<StateDict>) -> (StateDict, BTreeMap<String, Vec<TensorInfo>>) {
    let mut whole = StateDict::default();
    let mut parts_of: BTreeMap<String, Vec<TensorInfo>> = BTreeMap::new();
    for slice in slices {
        let n_files = whole.tensors.files.len();
        for (name, mut info) in slice.tensors.index {
            info.file_idx += n_files;
            parts_of.entry(name).or_default().push(info);
        }
        whole.tensors.files.extend(slice.tensors.files);
        whole.tensors.metadata.extend(slice.tensors.metadata);
        for (key, value) in slice.plain_values {
            whole.plain_values.entry(key).or_insert(value);
        }
    }
    (whole, parts_of)
}

/// Joins slices of which `n_parts` hold each tensor, and `division` says how they do.
pub(super) fn put_together(
    slices: Vec<StateDict>,
    n_parts: usize,
    division: impl Fn(&str, &TensorInfo) -> Option<Division>,
) -> Result<StateDict> {
    let (mut whole, parts_of) = gathered(slices);
    for (name, parts) in parts_of {
        let file = whole
            .tensors
            .files
            .first()
            .map_or(Path::new(""), DataFile::path);
        let refused = |problem: String| Error::tensor(file, &name, problem);
        let first = parts[0].clone();
        if parts.len() != n_parts
            || parts
                .iter()
                .any(|part| part.shape != first.shape || !part.dtype.is_float())
        {
            return Err(refused(format!(
                "expected a slice of one shape in each of {n_parts} files"
            )));
        }
        let division = division(&name, &first).ok_or_else(|| {
            refused("is in several slices, and how they follow each other is not known".to_owned())
        })?;
        let axis = match division {
            Division::Same => {
                whole.tensors.index.insert(name, first);
                continue;
            }
            Division::Along(axis) => axis,
            Division::Halves => 0,
        };
        let mut shape = first.shape.clone();
        shape[axis] = shape[axis]
            .checked_mul(n_parts)
            .ok_or_else(|| refused("has more elements than can be counted".to_owned()))?;
        let parts = match division {
            Division::Halves => halves(&parts).ok_or_else(|| {
                refused("expected rows in two halves, one after the other".to_owned())
            })?,
            _ => parts,
        };
        let info = TensorInfo {
            shape,
            strides: None,
            scales: None,
            made: Some(Arc::new(ComputedTensor::Joined(Joined::along(axis, parts)))),
            ..first
        };
        whole.tensors.index.insert(name, info);
    }
    Ok(whole)
}

/// Returns the first halves of all parts, then the second ones; `None` if they cannot be cut there.
fn halves(parts: &[TensorInfo]) -> Option<Vec<TensorInfo>> {
    let half = |part: &TensorInfo, idx: usize| {
        let n = part.shape.first()? / 2;
        part.rows(idx * n..(idx + 1) * n)
    };
    let both = [0, 1].into_iter();
    both.flat_map(|idx| parts.iter().map(move |part| half(part, idx)))
        .collect()
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
