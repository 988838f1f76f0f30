//! All tensors of a file that `torch.save` wrote, whatever containers hold them: recordings of activations are saved as
//! dictionaries, lists, or objects that keep a dictionary.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_compute::error::Result;

use super::pickle::Pickled;
use super::saved::{PICKLE, Saved};
use super::state_dict::{FindStorage, Problem, described};
use super::value::{Value, quote};
use super::{ZIP, in_file, legacy, modules};
use crate::data_file::DataFile;
use crate::section::Section;
use crate::tensors::Tensors;

/// Limit on nested containers.
const DEEPEST: usize = 8;
/// Limit on the values of a file: containers may be shared, so that a small pickle could list very many.
const MOST: usize = 1 << 20;
/// Limit on the characters of a name.
const LONGEST_NAME: usize = 1 << 12;
/// Attribute of TransformerLens's `ActivationCache` that holds its tensors.
const CACHE: &str = "cache_dict";

/// Tensors and plain values of a file, by the keys and indices that lead to them: `meta.rank`, `blocks.0.hook_resid_pre`.
#[derive(Debug, Default)]
pub struct SavedArrays {
    pub tensors: Tensors,
    /// Texts and numbers, as texts.
    pub texts: BTreeMap<String, String>,
}

/// Opens a file that `torch.save` wrote. A tensor that is no part of a container is called `value`.
///
/// # Errors
/// When the file cannot be read or is damaged, or has too many or too deeply nested values.
pub fn open_arrays(path: &Path) -> Result<SavedArrays> {
    let file = DataFile::open(path)?;
    let mut found = SavedArrays::default();
    let read = if file.read(0..ZIP.len().min(file.len()))?.as_ref() == ZIP {
        of_zip(&file, &mut found)
    } else {
        of_legacy(&file, &mut found)
    };
    read.map_err(|problem| in_file(path, problem))?;
    found.tensors.files.push(file);
    Ok(found)
}

fn of_zip(file: &DataFile, found: &mut SavedArrays) -> std::result::Result<(), Problem> {
    let saved = Saved::read(Section::whole(file))?;
    let bytes = saved.pickle()?;
    let pickled =
        modules::read_weights(&bytes).map_err(|problem| format!("{PICKLE}: {problem}"))?;
    walk(&pickled, &|key| saved.storage(key), found)
}

fn of_legacy(file: &DataFile, found: &mut SavedArrays) -> std::result::Result<(), Problem> {
    let beginning = legacy::beginning(file)?;
    let legacy = legacy::read(file, &beginning)?;
    let find = |key: &str| {
        let place = legacy.places.get(key).cloned();
        place.ok_or_else(|| format!("storage {} is not in the file", quote(key)))
    };
    walk(&legacy.pickled, &find, found)
}

fn walk(
    pickled: &Pickled<'_>,
    find: FindStorage<'_>,
    found: &mut SavedArrays,
) -> std::result::Result<(), Problem> {
    let mut walk = Walk {
        pickled,
        find,
        found,
        n_left: MOST,
    };
    walk.value(&pickled.root, "", 0)
}

struct Walk<'p, 'a> {
    pickled: &'p Pickled<'a>,
    find: FindStorage<'p>,
    found: &'p mut SavedArrays,
    n_left: usize,
}

impl<'p, 'a> Walk<'p, 'a> {
    fn value(
        &mut self,
        value: &'p Value<'a>,
        name: &str,
        depth: usize,
    ) -> std::result::Result<(), Problem> {
        if depth > DEEPEST || self.n_left == 0 || name.len() > LONGEST_NAME {
            let problem =
                "too many values, or values nested too deeply, for a file of recorded tensors";
            return Err(Problem::File(problem.to_owned()));
        }
        self.n_left -= 1;
        let heap = &self.pickled.heap;
        let text = match value {
            Value::Tensor(idx) => {
                let name = if name.is_empty() { "value" } else { name };
                let refused = |problem| Problem::Tensor(name.to_owned(), problem);
                let info = described(self.pickled, *idx, self.find, 0).map_err(refused)?;
                let index = &mut self.found.tensors.index;
                if index.insert(name.to_owned(), info).is_some() {
                    return Err(refused("stands twice".to_owned()));
                }
                return Ok(());
            }
            Value::Dict(idx) => {
                for (key, value) in &heap.dicts[*idx].entries {
                    let key = match key {
                        Value::Text(key) => key.to_string(),
                        Value::Int(key) => key.to_string(),
                        _ => continue,
                    };
                    self.value(value, &inside(name, &key), depth + 1)?;
                }
                return Ok(());
            }
            Value::List(idx) | Value::Tuple(idx) => {
                for (idx, value) in heap.lists[*idx].iter().enumerate() {
                    self.value(value, &inside(name, &idx.to_string()), depth + 1)?;
                }
                return Ok(());
            }
            Value::Object(idx) => {
                let state = heap.objects[*idx].state;
                let entries = &heap.dicts[state].entries;
                let is_cache = |(key, _): &&(Value<'a>, Value<'a>)| matches!(key, Value::Text(key) if key.as_ref() == CACHE);
                return match entries.iter().find(is_cache) {
                    Some((_, cache)) => self.value(cache, name, depth + 1),
                    None => Ok(()),
                };
            }
            Value::Text(text) => text.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Bool(is_so) => is_so.to_string(),
            _ => return Ok(()),
        };
        self.found.texts.insert(name.to_owned(), text);
        Ok(())
    }
}

fn inside(name: &str, key: &str) -> String {
    if name.is_empty() {
        key.to_owned()
    } else {
        format!("{name}.{key}")
    }
}
