//! Weights in several files: shards that an index or their own names tell, and slices of the same tensors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use super::data_file::DataFile;
use super::kinds::{refuse_dangling, refuse_pointer};
use super::locate::Weights;
use super::made::{Joined, Made};
use super::pytorch::StateDict;
use super::tensors::{TensorInfo, Tensors};
use crate::{VOCABULARY, read_text};

/// Shards of one model at most, and slices of one.
const MOST_SHARDS: usize = 10_000;
const MOST_SLICES: usize = 100;

/// The files that an index names, each once, in order.
///
/// # Errors
/// When it is not an index, or names a file outside its directory.
pub fn files_of(index_path: &Path) -> Result<Vec<String>> {
    let files: BTreeSet<String> = places(index_path)?.into_values().collect();
    Ok(files.into_iter().collect())
}

/// Which file holds each tensor, as an index says it.
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

/// Opens every shard that an index names through `add`, which reads one file of the format.
///
/// # Errors
/// When the index is not an index, names a file outside its directory, or a shard or tensor is missing.
pub fn open(
    index_path: &Path,
    add: impl FnMut(&mut Tensors, DataFile) -> Result<()>,
) -> Result<Tensors> {
    open_named(index_path, str::to_owned, add)
}

/// Opens every shard that an index names, where the index has other names for tensors than those they are given: `name_of` turns
/// one into the other.
///
/// # Errors
/// As for [`open`].
pub fn open_named(
    index_path: &Path,
    name_of: impl Fn(&str) -> String,
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
        if !tensors.contains(&name_of(&tensor)) {
            let problem = format!("missing; {} says it is here", file_name(index_path));
            return Err(Error::tensor(directory.join(file), tensor, problem));
        }
    }
    Ok(tensors)
}

/// Opens shards that no index names.
///
/// # Errors
/// When one of them cannot be read, or a tensor stands in two.
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

/// A name that says which of how many shards a file is: `STEM-00001-of-00003.ENDING`.
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
        let holds_weights = ["safetensors", "bin", "gguf", "pt", "pth", "h5"].contains(&ending);
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

/// All files of the set that a shard belongs to by its name, in order; `None` for a file that is none.
///
/// # Errors
/// When one of them is missing.
pub fn set_of(file: &Path) -> Result<Option<Vec<PathBuf>>> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let Some(own) = Numbered::of(&name).filter(|own| own.n <= MOST_SHARDS) else {
        return Ok(None);
    };
    // Some count from 1, some from 0.
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

/// Slices of one model in a directory, as Meta publishes them: `consolidated.00.pth`, `consolidated.01.pth`, ….
///
/// # Errors
/// When one between others is missing.
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

/// Puts slices of one model together by the rules of Meta's program: columns of what reads the residual, rows of what writes to it.
///
/// # Errors
/// When a tensor is missing in one of them, or has another shape there.
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
        whole.beside.extend(slice.beside);
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
            // Norms and frequencies are the same in all.
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
            made: Some(Arc::new(Made::Joined(Joined { parts, axis }))),
            ..first
        };
        whole.tensors.index.insert(name, info);
    }
    Ok(whole)
}

/// Along which axis slices of a matrix follow each other.
fn slice_axis(name: &str, n_columns: usize, width: Option<usize>) -> Option<usize> {
    let module = name.strip_suffix(".weight")?.rsplit('.').next()?;
    match module {
        "wq" | "wk" | "wv" | "w1" | "w3" | "output" => Some(0),
        "wo" | "w2" => Some(1),
        // By words since Llama 3, by features before.
        "tok_embeddings" => Some(usize::from(width? != n_columns)),
        _ => None,
    }
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
