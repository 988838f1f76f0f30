//! An earlier report, read back for comparison.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_checkpoint::{DOCUMENT, read_text};
use attnscope_checks::{Baseline, BaselineValues};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::Stack;
use serde_json::Value;

use super::document::VERSION;

/// Reads a report; the result is keyed by prompt id.
///
/// # Errors
/// When the file cannot be read, or is not a report of a known version.
pub fn read_baseline(path: &Path) -> Result<BTreeMap<String, Baseline>> {
    let text = read_text(path, DOCUMENT)?;
    let wrong = |what: &str| {
        Error::file(
            path,
            format!("expected a report of attnscope report --format json: {what}"),
        )
    };
    let document: Value =
        serde_json::from_str(&text).map_err(|e| wrong(&format!("is not JSON ({e})")))?;
    // Reports of version 1 have "NaN" where later ones have null.
    let known = [1, u64::from(VERSION)];
    if !document["version"]
        .as_u64()
        .is_some_and(|version| known.contains(&version))
    {
        return Err(wrong(&format!(
            "expected version {VERSION}, found {}",
            document["version"]
        )));
    }
    let prompts = document["prompts"]
        .as_array()
        .ok_or_else(|| wrong("no prompts"))?;
    let mut all = BTreeMap::new();
    for prompt in prompts {
        let id = prompt["id"]
            .as_str()
            .ok_or_else(|| wrong("a prompt without an id"))?;
        let mut baseline = Baseline {
            loss: number(&prompt["loss"]),
            places: BTreeMap::new(),
        };
        for layer in prompt["layers"]
            .as_array()
            .ok_or_else(|| wrong("a prompt without layers"))?
        {
            let stack = stack(&layer["stack"])
                .ok_or_else(|| wrong(&format!("an unknown stack {}", layer["stack"])))?;
            let layer_idx =
                whole(&layer["layer"]).ok_or_else(|| wrong("a layer without a number"))?;
            baseline
                .places
                .insert((stack, layer_idx, None), statistics(&layer["stats"]));
            for head in layer["heads"].as_array().into_iter().flatten() {
                let head_idx =
                    whole(&head["head"]).ok_or_else(|| wrong("a head without a number"))?;
                baseline.places.insert(
                    (stack, layer_idx, Some(head_idx)),
                    statistics(&head["stats"]),
                );
            }
        }
        all.insert(id.to_owned(), baseline);
    }
    Ok(all)
}

fn whole(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

fn stack(value: &Value) -> Option<Stack> {
    let all = [Stack::Only, Stack::Encoder, Stack::Decoder, Stack::Cross];
    all.into_iter()
        .find(|stack| stack.label() == value.as_str())
}

fn statistics(values: &Value) -> BaselineValues {
    let values = values.as_object().into_iter().flatten();
    values
        .filter_map(|(id, value)| Some((id.clone(), number(value)?)))
        .collect()
}

/// Parses a number, or the word that stands for a number that JSON lacks (NaN, infinity).
fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}
