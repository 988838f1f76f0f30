//! Plain values that trainers save beside the weights: the step, settings of the model, arguments.

use std::path::Path;

use serde_json::{Map, Value as Json};

use super::index::{Listed, Places};
use super::nest::is_of_optimiser;
use super::parts::{Parts, plain_value};
use crate::data_file::DataFile;
use crate::pytorch::json::of_float;
use crate::pytorch::value::Value;
use crate::section::Section;

/// Limit on the values that are read.
const MOST: usize = 256;
/// Limit on the keys on the way to a value.
const DEEPEST: usize = 3;
/// Megatron's file of what all ranks share.
const COMMON: &str = "common.pt";
/// Limit on the bytes of that file.
const LONGEST_COMMON: usize = 64 << 20;
/// Megatron's arguments that say how many files the weights were divided into; the index puts them together.
pub const DIVISIONS: [&str; 2] = ["tensor_model_parallel_size", "pipeline_model_parallel_size"];
/// Keys that hold a step.
pub const STEPS: [&str; 5] = [
    "step",
    "global_step",
    "iteration",
    "iter_num",
    "current_step",
];

/// Lists the values beside the weights that are small and not an optimiser's.
pub fn beside<'i, 'a>(
    listed: &'i [Listed<'a>],
    is_weight: impl Fn(&str) -> bool,
) -> Vec<&'i Listed<'a>> {
    let is_small = |value: &Listed<'a>| match &value.tensor {
        Some(tensor) => tensor.shape.iter().all(|n| *n == 1),
        None => true,
    };
    let is_value = |value: &&Listed<'a>| {
        let keys: Vec<&str> = value.path.iter().filter_map(text).collect();
        is_small(value)
            && value.path.len() <= DEEPEST
            && keys.len() == value.path.len()
            && !keys.iter().any(|key| is_of_optimiser(key))
            && !is_weight(&value.name)
    };
    listed.iter().filter(is_value).take(MOST).collect()
}

fn text<'v>(key: &'v Value<'_>) -> Option<&'v str> {
    match key {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// Reads values and adds them under their keys. Those that are not plain are left out: no model needs them.
pub fn add(
    values: &[&Listed<'_>],
    places: &Places,
    parts: &mut Parts<'_>,
    to: &mut Map<String, Json>,
) {
    for value in values {
        let offsets = value
            .tensor
            .as_ref()
            .map(|tensor| vec![0; tensor.shape.len()]);
        let Some(place) = places.get(&(value.name.clone(), offsets)) else {
            continue;
        };
        let read = match &value.tensor {
            Some(tensor) => parts
                .number(&value.name, place, &tensor.shape)
                .map(of_float),
            None => parts.value(&value.name, place),
        };
        let keys: Vec<&str> = value.path.iter().filter_map(text).collect();
        if let (Some(read), Some((last, above))) = (read, keys.split_last()) {
            let mut at = Some(&mut *to);
            for key in above {
                at = at.and_then(|map| {
                    let inside = map.entry(*key).or_insert_with(|| Map::new().into());
                    inside.as_object_mut()
                });
            }
            if let Some(map) = at {
                map.insert((*last).to_owned(), read);
            }
        }
    }
}

/// Adds the training arguments that Megatron keeps in a file beside the parts.
pub fn add_arguments(directory: &Path, to: &mut Map<String, Json>) {
    let path = directory.join(COMMON);
    if !path.is_file() {
        return;
    }
    let Ok(file) = DataFile::open(&path) else {
        return;
    };
    if file.len() > LONGEST_COMMON {
        return;
    }
    match plain_value(Section::whole(&file)) {
        Ok(Json::Object(values)) => {
            for (key, value) in values {
                to.entry(key).or_insert(value);
            }
            put_together(to);
        }
        Ok(_) => {}
        Err(problem) => log::debug!("{}: {problem:?}", path.display()),
    }
}

/// Corrects Megatron's arguments for weights that are no longer divided.
pub fn put_together(plain_values: &mut Map<String, Json>) {
    if let Some(Json::Object(args)) = plain_values.get_mut("args") {
        for key in DIVISIONS {
            if let Some(n) = args.get_mut(key) {
                *n = Json::from(1);
            }
        }
    }
}

/// Returns the step among plain values, at the top or in a dictionary.
pub fn step(values: &Map<String, Json>) -> Option<u64> {
    let here = |map: &Map<String, Json>| {
        let mut found = STEPS.iter().filter_map(|key| map.get(*key));
        found.find_map(whole)
    };
    here(values).or_else(|| values.values().filter_map(Json::as_object).find_map(here))
}

/// Returns a whole number, also one that was stored as a float.
fn whole(value: &Json) -> Option<u64> {
    let of_float = |x: f64| (x >= 0.0 && x.fract() == 0.0 && x < 1e15).then_some(x as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(of_float))
}
