//! The dictionaries that a state dict consisted of before its names were joined with dots, so that weights are found in it as in a
//! file of `torch.save`.

use std::collections::BTreeMap;

use super::index::{Index, Listed};
use super::values::STEPS;
use crate::data_file::DataFile;
use crate::pytorch::json::Writer;
use crate::pytorch::several;
use crate::pytorch::state_dict::{DEEPEST_NEST, Problem, nest_of};
use crate::pytorch::value::{DictKind, Heap, StoredTensor, Value};

/// What words begin with under which optimisers, and schedules of their step sizes, are saved.
const OPTIMISERS: [&str; 4] = ["optim", "scheduler", "lr_scheduler", "opt_param_scheduler"];

/// Finds the weights: pairs of a name and an index in what is listed, in the order of the model.
///
/// # Errors
/// When nothing is called `part`, or several models are there and none is named.
pub fn weights(
    index: &mut Index<'_>,
    file: &DataFile,
    part: Option<&str>,
) -> Result<Vec<(String, usize)>, Problem> {
    let root_idx = nested(&mut index.pickled.heap, &index.listed);
    index.pickled.root = Value::Dict(root_idx);
    let pickled = &index.pickled;
    let chosen = several::chosen(pickled, file, part)?;
    let nest = chosen.or_else(|| nest_of(pickled, &pickled.root, DEEPEST_NEST));
    let inside = nest.map_or(&pickled.root, |(_, inside)| inside);
    let Value::Dict(idx) = inside else {
        return Ok(Vec::new());
    };
    let no_tensors = |_: &_| Err("expected a name".to_owned());
    let mut writer = Writer::new(pickled, &no_tensors);
    let mut found = Vec::new();
    for (key, value) in &pickled.heap.dicts[*idx].entries {
        if let Value::Tensor(idx) = value {
            let name = writer.key(key).map_err(Problem::File)?;
            found.push((name, pickled.heap.tensors[*idx].storage_idx));
        }
    }
    Ok(found)
}

/// Whether a name, or a key before a value, is that of an optimiser's state.
pub fn is_of_optimiser(name: &str) -> bool {
    let mut words = name.split('.').take(2);
    words.any(|word| OPTIMISERS.iter().any(|known| word.starts_with(known)))
}

fn is_key_of_optimiser(key: &Value<'_>) -> bool {
    matches!(key, Value::Text(text) if is_of_optimiser(text))
}

/// Adds the dictionaries to the heap and returns the outermost; states of optimisers are left out. Each tensor's storage is its place in the list.
fn nested<'a>(heap: &mut Heap<'a>, listed: &[Listed<'a>]) -> usize {
    let root = heap.add_dict(DictKind::Plain, Vec::new());
    let mut dicts: BTreeMap<(usize, String), usize> = BTreeMap::new();
    for (listed_idx, value) in listed.iter().enumerate() {
        let (Some(tensor), Some((last, above))) = (&value.tensor, value.path.split_last()) else {
            continue;
        };
        // A step beside the model does not make it one of the weights.
        let is_step = above.is_empty() && STEPS.contains(&&*value.name);
        if is_step || value.path.iter().any(is_key_of_optimiser) {
            continue;
        }
        let mut at = root;
        for key in above {
            let text = match key {
                Value::Text(text) => text.to_string(),
                Value::Int(n) => n.to_string(),
                _ => String::new(),
            };
            at = match dicts.get(&(at, text.clone())) {
                Some(inside) => *inside,
                None => {
                    let inside = heap.add_dict(DictKind::Plain, Vec::new());
                    heap.dicts[at]
                        .entries
                        .push((key.clone(), Value::Dict(inside)));
                    dicts.insert((at, text), inside);
                    inside
                }
            };
        }
        heap.tensors.push(StoredTensor {
            storage_idx: listed_idx,
            offset: 0,
            shape: tensor.shape.clone(),
            strides: Vec::new(),
        });
        let tensor = Value::Tensor(heap.tensors.len() - 1);
        heap.dicts[at].entries.push((last.clone(), tensor));
    }
    root
}
