//! PyTorch checkpoints (`.bin`, `.pt`, `.pth`) in both layouts of `torch.save`, read without running any pickle code.

mod arrays;
mod distributed;
mod globals;
mod json;
mod legacy;
mod memo;
mod module_settings;
mod modules;
mod pickle;
mod pickle_objects;
mod place;
mod saved;
mod scan;
mod several;
pub(super) mod state_dict;
mod subclasses;
mod value;
pub(super) mod zip;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

pub use self::arrays::{SavedArrays, open_arrays};
pub(super) use self::distributed::{DIVISIONS, put_together};
pub use self::distributed::{METADATA, lacking, open as open_distributed, saved_step};
use self::globals::Scope;
use self::saved::{PICKLE, Saved};
pub use self::state_dict::MODULE_CONFIG;
use self::state_dict::{Found, Problem};
use self::value::Value;
use super::data_file::DataFile;
use super::section::Section;
use super::tensors::Tensors;
use super::{packed_bits, shards};
use attnscope_compute::error::{Error, Result};

/// Magic bytes of a zip archive.
const ZIP: &[u8] = b"PK";

/// The weights of a checkpoint, and the values that a trainer stores with them.
#[derive(Debug, Default)]
pub struct StateDict {
    pub tensors: Tensors,
    /// Plain values beside the weights (`model_args`, `iter_num`, …); a tensor of one element becomes a number, a larger one a
    /// text with its type and shape.
    pub plain_values: Map<String, Json>,
}

/// Opens one file that `torch.save` wrote.
///
/// # Errors
/// When the file cannot be read, is no state dict, or its pickle asks for anything but tensors and plain values.
pub fn open_file(path: &Path) -> Result<StateDict> {
    open_part(path, None)
}

/// Opens one of the models in a file that `torch.save` wrote.
///
/// # Errors
/// As for [`open_file`], and when the file has no such model.
pub fn open_part(path: &Path, part: Option<&str>) -> Result<StateDict> {
    let mut state = StateDict::default();
    add(
        &mut state.tensors,
        &mut state.plain_values,
        DataFile::open(path)?,
        part,
    )?;
    finish(state)
}

/// Opens every shard that a `pytorch_model.bin.index.json` names.
///
/// # Errors
/// As for [`open_file`], and when the index and the shards do not fit together.
pub fn open_sharded(index: &Path) -> Result<StateDict> {
    let mut plain_values = Map::new();
    let tensors = shards::open(index, |tensors, file| {
        add(tensors, &mut plain_values, file, None)
    })?;
    finish(StateDict {
        tensors,
        plain_values,
    })
}

/// Opens shards that have no index.
///
/// # Errors
/// As for [`open_file`], and when two of them contain the same tensor.
pub fn open_files(files: &[PathBuf]) -> Result<StateDict> {
    let mut plain_values = Map::new();
    let tensors = shards::open_all(files, |tensors, file| {
        add(tensors, &mut plain_values, file, None)
    })?;
    finish(StateDict {
        tensors,
        plain_values,
    })
}

/// Reads a pickle of plain containers, numbers and texts; keys that are not text are converted to text.
///
/// # Errors
/// When the pickle contains anything else; `path` is only used in the message.
pub fn plain_pickle(bytes: &[u8], path: &Path) -> Result<Json> {
    let refused = |problem| Error::file(path, problem);
    let pickled = pickle::read(bytes, Scope::Plain).map_err(refused)?;
    let no_tensors = |_: &_| Err("expected plain values, found a tensor".to_owned());
    let mut writer = json::Writer::new(&pickled, &no_tensors);
    writer.value(&pickled.root).map_err(refused)
}

/// Reads a pickled dictionary of texts and integers, entry by entry; refuses a pickle that names any class or function.
///
/// # Errors
/// One clause that names the opcode, or the value that is not a text or an integer.
pub(super) fn pickled_numbers(bytes: &[u8]) -> std::result::Result<Vec<(String, i64)>, String> {
    let pickled = pickle::read(bytes, Scope::Data)?;
    if pickled.n_bytes < bytes.len() {
        let n = bytes.len() - pickled.n_bytes;
        return Err(format!("{n} bytes follow the end of the pickle"));
    }
    let Value::Dict(idx) = pickled.root else {
        let found = pickled.root.kind();
        return Err(format!("expected a dictionary, found {found}"));
    };
    let number = |(key, value): &(Value<'_>, Value<'_>)| match (key, value) {
        (Value::Text(word), Value::Int(row)) => Ok((word.to_string(), *row)),
        (Value::Text(word), other) => Err(format!(
            "{}: expected a whole number, found {}",
            value::quote(word),
            other.kind()
        )),
        (other, _) => Err(format!("expected texts as keys, found {}", other.kind())),
    };
    pickled.heap.dicts[idx].entries.iter().map(number).collect()
}

/// Reads one file and adds its tensors.
fn add(
    tensors: &mut Tensors,
    plain_values: &mut Map<String, Json>,
    file: DataFile,
    part: Option<&str>,
) -> Result<()> {
    let path = file.path();
    let file_idx = tensors.files.len();
    let found = if file.read(0..ZIP.len())?.as_ref() == ZIP {
        of_zip(&file, file_idx, part)
    } else {
        of_legacy(&file, file_idx, part)
    };
    let found = found.map_err(|problem| in_file(path, problem))?;
    for first in found.order {
        let next = tensors.saved_order.len();
        tensors.saved_order.entry((file_idx, first)).or_insert(next);
    }
    for (name, info) in found.tensors {
        if tensors.index.insert(name.clone(), info).is_some() {
            return Err(Error::tensor(path, name, "stands in two shards"));
        }
    }
    for (key, value) in found.plain_values {
        plain_values.entry(key).or_insert(value);
    }
    tensors.files.push(file);
    for (name, parts) in found.quantised {
        let paired = packed_bits::of_parts(parts, &tensors.files);
        let paired = paired
            .map_err(|problem| Error::tensor(tensors.file_of(""), value::quote(&name), problem))?;
        if tensors.index.insert(name.clone(), paired).is_some() {
            return Err(Error::tensor(tensors.file_of(&name), name, "stands twice"));
        }
    }
    Ok(())
}

fn finish(mut state: StateDict) -> Result<StateDict> {
    let index = std::mem::take(&mut state.tensors.index);
    state.tensors.index = state_dict::strip_prefixes(index)
        .map_err(|problem| in_file(state.tensors.file_of(""), problem))?;
    Ok(state)
}

fn in_file(path: &Path, problem: Problem) -> Error {
    match problem {
        Problem::File(problem) => Error::file(path, problem),
        Problem::Read(error) => error,
        Problem::Tensor(name, problem) => Error::tensor(path, value::quote(&name), problem),
    }
}

fn of_legacy(
    file: &DataFile,
    file_idx: usize,
    part: Option<&str>,
) -> std::result::Result<Found, Problem> {
    let beginning = legacy::beginning(file)?;
    let legacy = legacy::read(file, &beginning)?;
    let find = |key: &str| {
        let place = legacy.places.get(key).cloned();
        place.ok_or_else(|| format!("storage {} is not in the file", value::quote(key)))
    };
    state_dict::collect(&legacy.pickled, file, &find, file_idx, part)
}

fn of_zip(
    file: &DataFile,
    file_idx: usize,
    part: Option<&str>,
) -> std::result::Result<Found, Problem> {
    let saved = Saved::read(Section::whole(file))?;
    let bytes = saved.pickle()?;
    let pickled =
        modules::read_weights(&bytes).map_err(|problem| format!("{PICKLE}: {problem}"))?;
    let find = |key: &str| saved.storage(key);
    state_dict::collect(&pickled, file, &find, file_idx, part)
}
