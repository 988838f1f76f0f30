//! Hybrid models: some layers attend, others use another token mixer.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, LinearSource, Mixer, ModelSpec, Part, TokenMixer};
use serde_json::Value;

/// Names of attention layers in configurations: new, old, and with a window.
const ATTENDS: [&str; 3] = ["full_attention", "attention", "sliding_attention"];

const MIXES: [&str; 3] = ["linear_attention", "mamba", "conv"];

/// Turns a list of layer types into which layers attend.
///
/// # Errors
/// When a layer type is not known.
pub fn attending(reader: &Reader<'_>, key: &str, words: &[String]) -> Result<Vec<bool>> {
    let attends = |word: &String| {
        if ATTENDS.contains(&word.as_str()) {
            return Ok(true);
        }
        if MIXES.contains(&word.as_str()) {
            return Ok(false);
        }
        let problem = format!("expected full_attention or linear_attention, found {word:?}");
        Err(Error::config(reader.path(), key, problem))
    };
    words.iter().map(attends).collect()
}

/// The list of layers' types.
const TYPES: &str = "layer_types";

/// Which layers attend: those that `layer_types` says, or those of `default`, with where that comes from. `others` is what the other
/// layers do.
///
/// # Errors
/// When a layer type is not known, or `default` gives an error.
pub fn attending_layers(
    reader: &mut Reader<'_>,
    n_layers: usize,
    others: &str,
    default: impl FnOnce(&mut Reader<'_>) -> Result<(Vec<bool>, Origin)>,
) -> Result<Vec<bool>> {
    let (attends, origin) = match reader.words_by_layer(TYPES, n_layers)? {
        Some(words) => (
            attending(reader, TYPES, &words)?,
            Origin::Key(TYPES.to_owned()),
        ),
        None => default(reader)?,
    };
    note_attending(reader, &attends, others, origin);
    Ok(attends)
}

/// Layers that a rule names, which no key changes.
pub fn by_rule(attends: impl Iterator<Item = bool>) -> Result<(Vec<bool>, Origin)> {
    Ok((attends.collect(), Origin::Default(TYPES.to_owned())))
}

/// Notes how many layers attend, and what the other layers do.
pub fn note_attending(reader: &mut Reader<'_>, attends: &[bool], others: &str, origin: Origin) {
    let n = attends.iter().filter(|attends| **attends).count();
    let all = attends.len();
    let said = if n == all {
        format!("all {n}")
    } else {
        format!("{n} of {all}; {others} in the others")
    };
    reader.note("attending_layers", said, origin);
}

/// Replaces attention by a mixer in every layer that does not attend; `mixer` gets the layer's name. `suffix` ends the name of
/// the norm before attention.
pub fn replace(
    spec: &mut ModelSpec,
    attends: &[bool],
    suffix: &str,
    mixer: impl Fn(&str) -> TokenMixer,
) {
    for stack in &mut spec.stacks {
        let blocks = stack.blocks_mut().iter_mut().zip(attends);
        for (block, _) in blocks.filter(|(_, attends)| !**attends) {
            block.mixer = Mixer::Other(Box::new(mixer(&layer_of(block, suffix))));
        }
    }
}

/// The name of a layer, taken from the norm before its first branch.
pub fn layer_of(block: &BlockSpec, suffix: &str) -> String {
    let norm = block.attn_pre.as_ref().and_then(|norm| norm.gain.first());
    let norm = norm.map_or("", String::as_str);
    norm.strip_suffix(suffix).unwrap_or(norm).to_owned()
}

/// Splits a map into parts whose outputs are stored one after another.
pub fn split<const N: usize>(fused: &LinearSource, widths: [usize; N]) -> [LinearSource; N] {
    let group = widths.iter().sum();
    let mut offset = 0;
    widths.map(|len| {
        let part = fused.clone().part(Part { group, offset, len });
        offset += len;
        part
    })
}

/// A number, or one that JSON cannot express and transformers writes as an object.
pub fn number(value: &Value) -> Option<f64> {
    let tagged = value.get("__float__").and_then(Value::as_str);
    match tagged {
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => value.as_f64(),
    }
}

/// Checks that the number of layers divides a size evenly.
///
/// # Errors
/// When it does not.
pub fn check_divides(reader: &Reader<'_>, key: &str, n: usize, of: usize) -> Result<()> {
    if n > 0 && of.is_multiple_of(n) {
        return Ok(());
    }
    let problem = format!("expected a divisor of {of}, found {n}");
    Err(Error::config(reader.path(), key, problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_that_json_cannot_express_are_read_from_objects() {
        assert_eq!(
            number(&json!({"__float__": "Infinity"})),
            Some(f64::INFINITY)
        );
        assert_eq!(number(&json!(0.5)), Some(0.5));
        assert_eq!(number(&json!({"__float__": "NaN"})), None);
    }
}
