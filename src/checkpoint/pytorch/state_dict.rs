//! Finds the dictionary of weights in a parsed pickle, and separates its tensors from the values beside them.

use std::collections::BTreeMap;
use std::ops::Range;

use attnscope_compute::error::Error;
use serde_json::{Map, Value as Json};

use super::json::{self, Writer};
use super::pickle::Pickled;
use super::place::{Place, place};
use super::value::{StoredTensor, Value, quote};
use super::{module_settings, modules, several, subclasses};
use crate::data_file::DataFile;
use crate::dtype::Dtype;
use crate::packed_bits::Parts;
use crate::stored::Stored;
use crate::tensor_info::TensorInfo;

/// Keys under which trainers store the weights.
const NESTS: &[&str] = &[
    "model",
    "state_dict",
    "model_state_dict",
    "module",
    "net",
    "network",
    "weights",
    "params",
    "model_state",
    "state",
    "app",
    "policy",
    "actor",
    "student",
    "generator",
    "ema",
    "model_ema",
    "ema_model",
    "ema_state_dict",
];
/// Limit on dictionaries around the weights, besides the outermost one.
pub(super) const DEEPEST_NEST: usize = 2;
/// Key of the configuration that a pickled module contains.
pub const MODULE_CONFIG: &str = "module.config";
/// Key of the settings that a pickled module keeps in its attributes.
const MODULES: &str = "module attributes";
/// Prefix that `torch.compile` puts before a name.
const COMPILED: &str = "_orig_mod.";
/// Prefix that data-parallel wrappers put before every name.
const PARALLEL: &str = "module.";
/// Limit on nested wrappers.
const MOST_WRAPPERS: usize = 8;

/// Why a file or one of its tensors is refused.
#[derive(Debug)]
pub enum Problem {
    File(String),
    Tensor(String, String),
    /// The file could not be read.
    Read(Error),
}

impl From<String> for Problem {
    fn from(problem: String) -> Self {
        Self::File(problem)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

/// Finds the byte range of a storage in the file.
pub type FindStorage<'f> = &'f dyn Fn(&str) -> Result<Range<usize>, String>;

/// The tensors of one file and the plain values beside them.
pub struct Found {
    pub tensors: BTreeMap<String, TensorInfo>,
    /// The first byte of each tensor, in the order of the state dict.
    pub order: Vec<usize>,
    /// Quantised matrices by name, with the tensors that each one consists of.
    pub quantised: Vec<(String, Parts)>,
    pub plain_values: Map<String, Json>,
}

/// Collects the state dict of one file, or the one that is called `part`.
pub fn collect(
    pickled: &Pickled<'_>,
    file: &DataFile,
    find: FindStorage<'_>,
    file_idx: usize,
    part: Option<&str>,
) -> Result<Found, Problem> {
    let heap = &pickled.heap;
    let root_idx = match pickled.root {
        Value::Dict(idx) => Some(idx),
        _ => None,
    };
    let chosen = several::chosen(pickled, file, part)?;
    let nest = chosen.or_else(|| nest_of(pickled, &pickled.root, DEEPEST_NEST));
    let (nest_name, weights) = match nest {
        Some((name, inside)) => (Some(name), inside),
        None => (None, &pickled.root),
    };
    let module = modules::tensors_of(pickled, weights)?;
    // A pickle with other classes is accepted only if it holds a module, tensor subclasses, or weights under a key of their own.
    let is_apart = nest_name.is_some() && holds_tensors(pickled, weights);
    let is_known = is_apart || holds_subclasses(pickled, weights);
    if let (Some(refusal), None, false) = (&pickled.refusal, &module, is_known) {
        return Err(Problem::File(refusal.clone()));
    }
    let weights_idx = match (weights, &module) {
        (Value::Dict(idx), _) => Some(*idx),
        (_, Some(_)) => None,
        (other, None) => {
            let kind = other.kind();
            let problem =
                format!("expected a state dict, which is a dictionary of tensors, found {kind}");
            return Err(Problem::File(problem));
        }
    };

    let plain = |tensor: &StoredTensor| {
        let (dtype, place) = locate(pickled, tensor, find)?;
        Ok(plain_tensor(tensor, dtype, &place, file))
    };
    let mut writer = Writer::new(pickled, &plain);
    let mut tensors = BTreeMap::new();
    let mut plain_values = Map::new();
    let bad_plain_value = |problem| Problem::File(format!("a value beside the weights: {problem}"));
    if let (Some(nest_name), Some(root_idx)) = (nest_name, root_idx) {
        for (key, value) in &heap.dicts[root_idx].entries {
            let key = writer.key(key).map_err(bad_plain_value)?;
            if key != nest_name {
                let value = writer.value(value).map_err(|problem| {
                    Problem::File(format!("{}, beside the weights: {problem}", quote(&key)))
                })?;
                plain_values.insert(key, value);
            }
        }
    }
    let described = |tensor_idx: usize| described(pickled, tensor_idx, find, file_idx);
    let mut quantised = Vec::new();
    let mut order = Vec::new();
    let mut add = |name: String, value: &Value<'_>| {
        let of_tensor = |problem| Problem::Tensor(name.clone(), problem);
        if let Value::Tensor(idx) = value {
            let info = described(*idx).map_err(of_tensor)?;
            order.push(info.bytes.start);
            tensors.insert(name, info);
            return Ok::<_, Problem>(());
        }
        let of = subclasses::read(pickled, value).map_err(of_tensor)?;
        let parts = Parts {
            is_float: of.is_float,
            rounds_to: of.dtype.to_owned(),
            block: of.block,
            codes: described(of.codes).map_err(of_tensor)?,
            scales: described(of.scales).map_err(of_tensor)?,
            zeros: of.zeros.map(described).transpose().map_err(of_tensor)?,
        };
        quantised.push((name, parts));
        Ok(())
    };
    let entries = weights_idx.map(|idx| heap.dicts[idx].entries.as_slice());
    for (key, value) in entries.unwrap_or_default() {
        let name = writer.key(key).map_err(bad_plain_value)?;
        match value {
            Value::Tensor(_) => add(name, value)?,
            _ if subclasses::is_subclass(pickled, value) => add(name, value)?,
            _ if !plain_values.contains_key(&name) => {
                let value = writer.value(value).map_err(bad_plain_value)?;
                plain_values.insert(name, value);
            }
            _ => {}
        }
    }
    if module.is_some() {
        let settings = module_settings::of(pickled, weights);
        if !settings.is_empty() {
            plain_values.insert(MODULES.to_owned(), Json::Object(settings));
        }
    }
    for (name, value) in module.into_iter().flatten() {
        add(name, value)?;
    }
    if let Value::Object(idx) = weights
        && let Some(Value::Object(config)) =
            heap.entry(&Value::Dict(heap.objects[*idx].state), "config")
        && let Ok(Json::Object(mut config)) =
            writer.value(&Value::Dict(heap.objects[*config].state))
    {
        let class = heap.objects[*idx]
            .class
            .rsplit('.')
            .next()
            .unwrap_or_default();
        config.insert("architectures".to_owned(), Json::from(vec![class]));
        plain_values.insert(MODULE_CONFIG.to_owned(), Json::Object(config));
    }
    if tensors.is_empty() && quantised.is_empty() {
        let problem = format!(
            "holds no tensors: expected a state dict, alone or as one of {}",
            NESTS.join(", ")
        );
        return Err(Problem::File(problem));
    }
    Ok(Found {
        tensors,
        order,
        quantised,
        plain_values,
    })
}

/// Locates a tensor in the file.
fn locate(
    pickled: &Pickled<'_>,
    tensor: &StoredTensor,
    find: FindStorage<'_>,
) -> Result<(Dtype, Place), String> {
    let storage = &pickled.heap.storages[tensor.storage_idx];
    place(tensor, storage, &find(&storage.key)?).map(|place| (storage.dtype, place))
}

/// Describes a tensor of the pickle as a place in the file.
///
/// # Errors
/// When its storage is missing, or it reaches beyond it.
pub(super) fn described(
    pickled: &Pickled<'_>,
    tensor_idx: usize,
    find: FindStorage<'_>,
    file_idx: usize,
) -> Result<TensorInfo, String> {
    let tensor = &pickled.heap.tensors[tensor_idx];
    let (dtype, place) = locate(pickled, tensor, find)?;
    Ok(TensorInfo {
        stored: Stored::AsIs,
        scales: None,
        made: None,
        dtype,
        shape: tensor.shape.clone(),
        strides: place.strides,
        file_idx,
        bytes: place.bytes,
    })
}

/// Finds the part of a checkpoint that contains its weights, with its key in the outermost dictionary.
pub(super) fn nest_of<'p, 'a>(
    pickled: &'p Pickled<'a>,
    value: &'p Value<'a>,
    depth: usize,
) -> Option<(&'p str, &'p Value<'a>)> {
    let known = NESTS.iter().filter_map(|name| {
        let inside = pickled.heap.entry(value, name)?;
        Some((*name, inside))
    });
    for (name, inside) in known {
        // A module inside a dictionary, or the weights themselves.
        let is_module = matches!(inside, Value::Object(_))
            && matches!(modules::tensors_of(pickled, inside), Ok(Some(_)));
        if is_module || holds_tensors(pickled, inside) {
            return Some((name, inside));
        }
        if depth > 0
            && let Some((_, weights)) = nest_of(pickled, inside, depth - 1)
        {
            return Some((name, weights));
        }
    }
    None
}

pub(super) fn holds_tensors(pickled: &Pickled<'_>, value: &Value<'_>) -> bool {
    let Value::Dict(idx) = value else {
        return false;
    };
    let mut entries = pickled.heap.dicts[*idx].entries.iter();
    entries.any(|(_, value)| {
        matches!(value, Value::Tensor(_)) || subclasses::is_subclass(pickled, value)
    })
}

/// Whether a dictionary holds tensor subclasses, and otherwise only tensors and plain values.
fn holds_subclasses(pickled: &Pickled<'_>, value: &Value<'_>) -> bool {
    let Value::Dict(idx) = value else {
        return false;
    };
    let is_other = |value: &Value<'_>| subclasses::is_subclass(pickled, value);
    let entries = &pickled.heap.dicts[*idx].entries;
    let is_object = |value: &Value<'_>| matches!(value, Value::Object(_) | Value::Name(..));
    entries.iter().any(|(_, value)| is_other(value))
        && entries
            .iter()
            .all(|(_, value)| is_other(value) || !is_object(value))
}

/// Converts a tensor among plain values: its only number, or a text with its type and shape.
fn plain_tensor(tensor: &StoredTensor, dtype: Dtype, place: &Place, file: &DataFile) -> Json {
    if tensor.shape.iter().all(|n| *n == 1)
        // A read error is ignored here: a later check of the file reports it.
        && let Ok(bytes) = file.read(place.bytes.clone())
        && let Some(value) = dtype.widen(&bytes)
        && let Some(value) = value.first()
    {
        return json::of_float(f64::from(*value));
    }
    Json::from(format!("{dtype} tensor {:?}", tensor.shape))
}

/// Removes the prefixes of wrappers from the names.
///
/// # Errors
/// Names the tensor when two would then have the same name.
pub fn strip_prefixes(
    mut index: BTreeMap<String, TensorInfo>,
) -> Result<BTreeMap<String, TensorInfo>, Problem> {
    for _ in 0..MOST_WRAPPERS {
        let is_parallel = !index.is_empty() && index.keys().all(|name| name.starts_with(PARALLEL));
        let is_compiled = index.keys().any(|name| name.starts_with(COMPILED));
        let prefix = match (is_compiled, is_parallel) {
            (true, _) => COMPILED,
            (false, true) => PARALLEL,
            (false, false) => return Ok(index),
        };
        let mut stripped = BTreeMap::new();
        for (name, info) in index {
            let short = name.strip_prefix(prefix).unwrap_or(&name).to_owned();
            if stripped.insert(short.clone(), info).is_some() {
                let problem = format!("stands twice, with and without {prefix}");
                return Err(Problem::Tensor(short, problem));
            }
        }
        index = stripped;
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(names: &[&str]) -> Result<Vec<String>, Problem> {
        let info = TensorInfo {
            stored: Stored::AsIs,
            scales: None,
            made: None,
            dtype: Dtype::F32,
            shape: vec![0],
            strides: None,
            file_idx: 0,
            bytes: 0..0,
        };
        let index = names.iter().map(|n| ((*n).to_owned(), info.clone()));
        Ok(strip_prefixes(index.collect())?.into_keys().collect())
    }

    #[test]
    fn wrapper_prefixes_are_removed() {
        for names in [
            ["_orig_mod.a.w", "_orig_mod.b"],
            ["module.a.w", "module.b"],
            ["module._orig_mod.a.w", "module._orig_mod.b"],
            ["_orig_mod.module.a.w", "_orig_mod.module.b"],
            ["_orig_mod.a.w", "b"],
        ] {
            assert_eq!(stripped(&names).expect("names"), ["a.w", "b"], "{names:?}");
        }
    }

    #[test]
    fn a_part_that_is_called_module_keeps_its_name() {
        let names = ["lm_head.w", "module.w"];
        assert_eq!(stripped(&names).expect("names"), names);
        assert!(stripped(&[]).expect("names").is_empty());
    }

    #[test]
    fn a_name_both_with_and_without_prefix_is_refused() {
        let refused = stripped(&["_orig_mod.a", "a"]);
        assert!(matches!(refused, Err(Problem::Tensor(name, _)) if name == "a"));
    }
}
