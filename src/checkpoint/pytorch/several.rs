//! Files with several state dicts: which one is opened, and how a person names one (`file.pt#name`).

use super::distributed::METADATA;
use super::modules;
use super::pickle::Pickled;
use super::state_dict::{Problem, holds_tensors, nest_of};
use super::value::Value;
use crate::data_file::DataFile;

/// Keys of one of several networks that are trained together.
const TRAINED_TOGETHER: [&str; 3] = ["generator", "policy", "actor"];
/// Limit on dictionaries around a model.
const DEEPEST: usize = 2;
/// Limit on names in a message.
const MOST_NAMED: usize = 12;

/// A state dict or module of the file.
struct Inside<'p, 'a> {
    /// The key in the outermost dictionary.
    key: &'p str,
    /// All keys on the way, joined with dots.
    name: String,
    value: &'p Value<'a>,
}

/// The model called `part`; without one, the only model of a file that names it in its own way.
///
/// # Errors
/// Lists the models if none is called so, or if there are several.
pub fn chosen<'p, 'a>(
    pickled: &'p Pickled<'a>,
    file: &DataFile,
    part: Option<&str>,
) -> Result<Option<(&'p str, &'p Value<'a>)>, Problem> {
    let mut all = Vec::new();
    add_inside(pickled, &pickled.root, None, DEEPEST, &mut all);
    let names = || {
        let names: Vec<&str> = all
            .iter()
            .take(MOST_NAMED)
            .map(|inside| inside.name.as_str())
            .collect();
        let more = if all.len() > MOST_NAMED { ", …" } else { "" };
        format!("{}{more}", names.join(", "))
    };
    let path = file.path();
    let own = match path.parent() {
        // The directory stands for the index in it.
        Some(directory) if path.ends_with(METADATA) => directory.file_name(),
        _ => path.file_name(),
    };
    let own = own.unwrap_or_default().to_string_lossy();
    if let Some(part) = part {
        let found = all.iter().find(|inside| inside.name == part);
        return match (found, all.first()) {
            (Some(found), _) => Ok(Some((found.key, found.value))),
            (None, None) => Err(Problem::File(format!(
                "holds one state dict and no model called {part:?}; leave out #{part}"
            ))),
            (None, Some(_)) => Err(Problem::File(format!(
                "holds no model called {part:?}; found {}",
                names()
            ))),
        };
    }
    let usual = nest_of(pickled, &pickled.root, DEEPEST);
    let is_one_of_several = usual.is_some_and(|(key, _)| TRAINED_TOGETHER.contains(&key));
    if (usual.is_some() && !is_one_of_several) || holds_tensors(pickled, &pickled.root) {
        return Ok(None);
    }
    match all.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((one.key, one.value))),
        several => Err(Problem::File(format!(
            "holds {} models: {}; name one, as in {own}#{}",
            several.len(),
            names(),
            several[0].name
        ))),
    }
}

fn add_inside<'p, 'a>(
    pickled: &'p Pickled<'a>,
    value: &'p Value<'a>,
    above: Option<(&'p str, &str)>,
    depth: usize,
    all: &mut Vec<Inside<'p, 'a>>,
) {
    let Value::Dict(idx) = value else { return };
    for (key, value) in &pickled.heap.dicts[*idx].entries {
        let Value::Text(word) = key else { continue };
        let word: &'p str = word;
        let (outermost, name) = match above {
            None => (word, word.to_owned()),
            Some((outermost, above)) => (outermost, format!("{above}.{word}")),
        };
        let is_module = matches!(value, Value::Object(_))
            && matches!(modules::tensors_of(pickled, value), Ok(Some(_)));
        if is_module || holds_matrices(pickled, value) {
            all.push(Inside {
                key: outermost,
                name,
                value,
            });
        } else if depth > 0 {
            add_inside(pickled, value, Some((outermost, &name)), depth - 1, all);
        }
    }
}

/// Whether a dictionary holds a matrix under a name, as a model does and the state of a random generator does not.
fn holds_matrices(pickled: &Pickled<'_>, value: &Value<'_>) -> bool {
    let Value::Dict(idx) = value else {
        return false;
    };
    pickled.heap.dicts[*idx]
        .entries
        .iter()
        .any(|(key, value)| match value {
            Value::Tensor(idx) => {
                matches!(key, Value::Text(_)) && pickled.heap.tensors[*idx].shape.len() > 1
            }
            _ => false,
        })
}
