//! Whole pickled modules: finds their tensors in the attributes that `torch.nn.Module` and TorchScript use. No class is
//! imported, instantiated or run: an object is only its class's name and the attributes that the pickle lists.

use super::globals::Scope;
use super::pickle::{Pickled, read};
use super::subclasses::is_subclass;
use super::value::Value;

/// Limit on nested modules.
const DEEPEST: usize = 64;
/// Limit on the modules and tensors of a file.
const MOST: usize = 1 << 20;

/// Names and values of tensors, including tensor subclasses.
pub type Named<'p, 'a> = Vec<(String, &'p Value<'a>)>;

/// Collects the tensors of a module; `None` for any other value.
///
/// # Errors
/// When there are too many modules, or they nest too deeply.
pub fn tensors_of<'p, 'a>(
    pickled: &'p Pickled<'a>,
    value: &'p Value<'a>,
) -> Result<Option<Named<'p, 'a>>, String> {
    let Value::Object(_) = value else {
        return Ok(None);
    };
    let mut walk = Walk {
        pickled,
        found: Vec::new(),
        n_seen: 0,
    };
    walk.object(value, "", 0)?;
    Ok((!walk.found.is_empty()).then_some(walk.found))
}

/// Reads the pickle at the start of `bytes`: tensors and plain values, or else modules that contain tensors.
///
/// # Errors
/// As for [`read`] of a pickle without modules.
pub fn read_weights(bytes: &[u8]) -> Result<Pickled<'_>, String> {
    let refusal = match read(bytes, Scope::Tensors) {
        Ok(pickled) => return Ok(pickled),
        Err(refusal) => refusal,
    };
    match read(bytes, Scope::Modules) {
        Ok(pickled) => Ok(Pickled {
            refusal: Some(refusal),
            ..pickled
        }),
        Err(_) => Err(refusal),
    }
}

struct Walk<'p, 'a> {
    pickled: &'p Pickled<'a>,
    found: Named<'p, 'a>,
    n_seen: usize,
}

impl<'p, 'a> Walk<'p, 'a> {
    fn object(&mut self, value: &Value<'a>, prefix: &str, depth: usize) -> Result<(), String> {
        let Value::Object(idx) = value else {
            return Ok(());
        };
        self.n_seen += 1;
        if depth > DEEPEST || self.n_seen > MOST {
            return Err("too many modules, or modules nested too deeply".to_owned());
        }
        let heap = &self.pickled.heap;
        let state = Value::Dict(heap.objects[*idx].state);
        let is_module = heap.entry(&state, "_modules").is_some();
        if !is_module {
            // TorchScript stores tensors and modules as attributes.
            let mut attributes: Vec<(String, &'p Value<'a>)> = Vec::new();
            for (key, value) in &heap.dicts[heap.objects[*idx].state].entries {
                if let Value::Text(key) = key {
                    attributes.push((key.to_string(), value));
                }
            }
            for (key, value) in attributes {
                match value {
                    Value::Tensor(_) => self.add(prefix, &key, value)?,
                    Value::Object(_) => {
                        self.object(value, &format!("{prefix}{key}."), depth + 1)?
                    }
                    _ => {}
                }
            }
            return Ok(());
        }
        let passing = heap.entry(&state, "_non_persistent_buffers_set");
        let is_passing = |name: &str| {
            let Some(Value::Set(idx)) = passing else {
                return false;
            };
            heap.lists[*idx]
                .iter()
                .any(|item| matches!(item, Value::Text(text) if text.as_ref() == name))
        };
        for part in ["_parameters", "_buffers"] {
            for (key, value) in self.entries(&state, part) {
                let is_tensor =
                    matches!(value, Value::Tensor(_)) || is_subclass(self.pickled, value);
                if is_tensor && !(part == "_buffers" && is_passing(&key)) {
                    self.add(prefix, &key, value)?;
                }
            }
        }
        for (key, value) in self.entries(&state, "_modules") {
            self.object(value, &format!("{prefix}{key}."), depth + 1)?;
        }
        Ok(())
    }

    fn entries(&self, state: &Value<'a>, part: &str) -> Vec<(String, &'p Value<'a>)> {
        let heap = &self.pickled.heap;
        let Some(Value::Dict(idx)) = heap.entry(state, part) else {
            return Vec::new();
        };
        let named = heap.dicts[*idx]
            .entries
            .iter()
            .filter_map(|(key, value)| match key {
                Value::Text(text) => Some((text.to_string(), value)),
                _ => None,
            });
        named.collect()
    }

    fn add(&mut self, prefix: &str, key: &str, tensor: &'p Value<'a>) -> Result<(), String> {
        self.n_seen += 1;
        if self.n_seen > MOST {
            return Err("too many tensors".to_owned());
        }
        self.found.push((format!("{prefix}{key}"), tensor));
        Ok(())
    }
}
