//! Suggestions for a model type that no family reads: similar families, by name and by tensors.

use attnscope_checkpoint::nearest::nearest;
use attnscope_checkpoint::{Checkpoint, Config, Origin, Reader, is_silent};
use attnscope_compute::error::Error;
use serde_json::Value;

use super::{FAMILIES, Family, aliases, described};

/// Upper limit of suggested families, among those that read every tensor.
const MOST_NAMED: usize = 3;

/// Advice for a checkpoint of unknown type: the nearest name, families that fit its tensors, and how to find out more.
pub(super) fn suggestions(name: &str, checkpoint: &Checkpoint, config: &Config) -> String {
    let known = FAMILIES.iter().map(|family| family.model_type);
    let known = known.chain(aliases::all().map(|(name, _)| name));
    let mut said = Vec::new();
    let meant = nearest(name, known);
    if let Some(meant) = meant {
        said.push(format!("the nearest name is {meant}"));
    }
    let fitting = fitting(checkpoint, config, meant);
    if let Some(first) = fitting.first() {
        said.push(format!(
            "its tensors and sizes are those of {}: --set family={first} reads it so, which is right only where both compute the same",
            fitting.join(", ")
        ));
    }
    said.push("attnscope guess finds out from text what weights are".to_owned());
    said.join("; ")
}

/// Families that find every tensor they need and leave the fewest unread: first the one that may be meant, then by the number of
/// unread keys.
fn fitting(checkpoint: &Checkpoint, config: &Config, meant: Option<&str>) -> Vec<&'static str> {
    let mut found: Vec<(usize, bool, usize, &'static str)> = Vec::new();
    for family in FAMILIES {
        if family.model_type != described::FAMILY.model_type
            && let Some((n_tensors, n_keys)) = left_unread(family, checkpoint, config)
        {
            let name = family.model_type;
            found.push((n_tensors, meant != Some(name), n_keys, name));
        }
    }
    found.sort_unstable();
    let fewest = found.first().map(|(n_tensors, ..)| *n_tensors);
    let best = found.into_iter().take_while(|(n, ..)| Some(*n) == fewest);
    best.take(MOST_NAMED).map(|(.., name)| name).collect()
}

/// Number of tensors and keys that a family leaves unread; `None` if it cannot read the checkpoint, or reads hardly any of it.
fn left_unread(
    family: &Family,
    checkpoint: &Checkpoint,
    config: &Config,
) -> Option<(usize, usize)> {
    let mut config = config.clone();
    let origin = Origin::Derived("tensor names".to_owned());
    config.put("model_type", family.model_type, origin);
    let mut reader = Reader::new(&config);
    let spec = family.read(checkpoint, &mut reader).ok()?;
    let tensors = &checkpoint.tensors;
    spec.check_tensors(tensors).ok()?;
    let n_unread = spec.unused_tensors(tensors).len();
    (n_unread * 2 < tensors.len()).then(|| (n_unread, reader.finish().1.len()))
}

/// The remark for a family set by the user that differs from the configuration's.
pub(super) fn overruled(
    stated: Option<&str>,
    (family, place): (&str, &str),
    unread: &[String],
) -> Option<String> {
    let stated =
        stated.filter(|stated| *stated != family && aliases::family_of(stated) != Some(family))?;
    let unread: Vec<&str> = unread
        .iter()
        .map(String::as_str)
        .filter(|key| !is_silent(key))
        .collect();
    let keys = match unread.as_slice() {
        [] => String::new(),
        keys => format!("; {family} does not read {}", keys.join(", ")),
    };
    Some(format!(
        "model_type {stated} is read as {family}, as {place} says: right only where both compute the same{keys}"
    ))
}

/// Explains that a wrapper is not supported, if its text part is known but its tensors are not where that part expects them.
pub(super) fn unknown_wrapper(config: &Config, refused: Error) -> Error {
    let Error::Tensor {
        file,
        tensor,
        problem,
    } = refused
    else {
        return refused;
    };
    let word = |config: &Config| {
        let name = config.get("model_type").and_then(Value::as_str);
        name.map(str::to_owned)
    };
    let text = config.text_part().as_ref().and_then(word);
    match (word(config), text) {
        (Some(outer), Some(text)) if problem.starts_with("missing") && outer != text => {
            let problem = format!(
                "{outer} is not read as a whole: its text part is a {text}, whose tensor {tensor} is missing in {}; \
                 attnscope tensors lists what the file holds, and [rename] in attnscope.toml gives tensors other names",
                file.display()
            );
            Error::config(config.path(), "model_type", problem)
        }
        _ => Error::Tensor {
            file,
            tensor,
            problem,
        },
    }
}
