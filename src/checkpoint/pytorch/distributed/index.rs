//! The index of a distributed checkpoint, `.metadata`: which tensors there are, which boxes each is divided into, and where each box is.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::dtype::Dtype;
use crate::pytorch::globals::{STATE, Scope, dtype_called, size, sizes};
use crate::pytorch::pickle::{self, Limits, Pickled};
use crate::pytorch::value::{Global, Heap, Value, quote};
use crate::tiling::Chunk;

/// Limit on the dictionaries around a value.
const DEEPEST: usize = 16;

/// Everything that the index lists, in the order in which it was saved.
#[derive(Debug)]
pub struct Index<'a> {
    /// The values of the pickle, which the listed ones refer to.
    pub pickled: Pickled<'a>,
    /// The object that is the index.
    metadata: Value<'a>,
    pub listed: Vec<Listed<'a>>,
}

/// One saved value.
#[derive(Debug)]
pub struct Listed<'a> {
    /// Its full name, with dots.
    pub name: Rc<str>,
    /// The keys on the way to it; only the name, where the index does not say them.
    pub path: Vec<Value<'a>>,
    /// What is known of it if it is a tensor; anything else is pickled.
    pub tensor: Option<Described<'a>>,
}

/// A tensor as the index describes it.
#[derive(Debug)]
pub struct Described<'a> {
    properties: Value<'a>,
    pub shape: Vec<usize>,
    chunks: Value<'a>,
}

/// Where a box of a tensor, or a pickled value, is stored.
#[derive(Debug, Clone)]
pub struct Place {
    /// The file's name, relative to the directory.
    pub file: Rc<str>,
    pub start: usize,
    pub n_bytes: usize,
    /// What was done to the bytes when they were written, such as compression.
    pub transforms: Vec<Rc<str>>,
}

/// Places by name and offsets; a pickled value has no offsets.
pub type Places = BTreeMap<(Rc<str>, Option<Vec<usize>>), Place>;

impl<'a> Index<'a> {
    /// Reads the pickle of an index.
    ///
    /// # Errors
    /// When it is damaged, or is no index of torch.distributed.checkpoint.
    pub fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let limits = Limits::of_bytes(bytes.len());
        let pickled = pickle::read_within(bytes, Scope::Modules, limits)?;
        let heap = &pickled.heap;
        let Some(entries) = entries(heap, attribute(heap, &pickled.root, "state_dict_metadata"))
        else {
            return Err(format!(
                "expected the metadata of torch.distributed.checkpoint, found {}",
                pickled.root.kind()
            ));
        };
        let mut described = BTreeMap::new();
        let mut order = Vec::new();
        for (key, value) in entries {
            let Value::Text(name) = key else {
                return Err(format!("expected names as keys, found {}", key.kind()));
            };
            let tensor = describe(heap, value).map_err(|e| format!("{}: {e}", quote(name)))?;
            if described.insert(name.clone(), tensor).is_none() {
                order.push(name.clone());
            }
        }
        // The plan has the keys, and the order of the state dict.
        let mut listed = Vec::with_capacity(order.len());
        let plan = entries_or_none(heap, attribute(heap, &pickled.root, "planner_data"));
        for (key, path) in plan {
            let (Value::Text(name), Some(path)) = (key, heap.items(path)) else {
                continue;
            };
            let is_path = |key: &Value<'_>| matches!(key, Value::Text(_) | Value::Int(_));
            if path.is_empty() || path.len() > DEEPEST || !path.iter().all(is_path) {
                continue;
            }
            if let Some(tensor) = described.remove(name) {
                let (name, path) = (name.clone(), path.to_vec());
                listed.push(Listed { name, path, tensor });
            }
        }
        for name in order {
            if let Some(tensor) = described.remove(&name) {
                let path = vec![Value::Text(name.clone())];
                listed.push(Listed { name, path, tensor });
            }
        }
        let metadata = pickled.root.clone();
        Ok(Self {
            pickled,
            metadata,
            listed,
        })
    }

    /// Returns the element type of a tensor.
    ///
    /// # Errors
    /// When it is a type that is not read.
    pub fn dtype(&self, tensor: &Described<'a>) -> Result<Dtype, String> {
        let heap = &self.pickled.heap;
        let state = attribute(heap, &tensor.properties, STATE);
        let first = state.and_then(|state| heap.items(state)?.first());
        let name = match first.or_else(|| attribute(heap, &tensor.properties, "dtype")) {
            Some(Value::Global(Global::Dtype(name))) => (*name).to_owned(),
            Some(Value::Name(name, _)) => quote(name),
            other => {
                let kind = other.map_or("nothing", Value::kind);
                return Err(format!("expected an element type, found {kind}"));
            }
        };
        dtype_called(&name).ok_or_else(|| format!("elements of type {name} are not read"))
    }

    /// Returns the boxes that a tensor is divided into.
    ///
    /// # Errors
    /// When the list is damaged.
    pub fn chunks(&self, tensor: &Described<'a>) -> Result<Vec<Chunk>, String> {
        let heap = &self.pickled.heap;
        let Some(chunks) = heap.items(&tensor.chunks) else {
            let kind = tensor.chunks.kind();
            return Err(format!("expected a list of parts, found {kind}"));
        };
        let chunk = |value: &Value<'a>| {
            let field = |name: &str| match attribute(heap, value, name) {
                Some(value) => sizes(value, heap).map_err(|e| format!("{name} of a part: {e}")),
                None => Err(format!("a part has no {name}")),
            };
            Ok(Chunk {
                offsets: field("offsets")?,
                sizes: field("sizes")?,
            })
        };
        chunks.iter().map(chunk).collect()
    }

    /// Returns the places of the values whose names are wanted.
    ///
    /// # Errors
    /// Names the value whose place is damaged.
    pub fn places(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Places, String> {
        let heap = &self.pickled.heap;
        let Some(stored) = entries(heap, attribute(heap, &self.metadata, "storage_data")) else {
            return Err("does not say where tensors are stored (storage_data)".to_owned());
        };
        let mut places = Places::new();
        for (key, value) in stored {
            let Some(Value::Text(name)) = attribute(heap, key, "fqn") else {
                return Err(format!(
                    "storage_data: expected names, found {}",
                    key.kind()
                ));
            };
            if !is_wanted(name) {
                continue;
            }
            let damaged = |problem: String| format!("{}: {problem}", quote(name));
            let offsets = match attribute(heap, key, "offset") {
                None | Some(Value::None) => None,
                Some(offsets) => Some(sizes(offsets, heap).map_err(damaged)?),
            };
            let place = place(heap, value).map_err(damaged)?;
            places.insert((name.clone(), offsets), place);
        }
        // Otherwise a small file could stand for tensors of any size.
        let mut taken: Vec<(&(Rc<str>, _), &Place)> = places.iter().collect();
        taken.sort_by_key(|(_, place)| (&place.file, place.start));
        for pair in taken.windows(2) {
            if let [((first, _), a), ((second, _), b)] = pair
                && a.file == b.file
                && a.start.saturating_add(a.n_bytes) > b.start
            {
                return Err(format!(
                    "parts of {} and {} are stored in one place of {}",
                    quote(first),
                    quote(second),
                    quote(&a.file)
                ));
            }
        }
        Ok(places)
    }

    /// Iterates over all places, whatever is stored there; damaged ones are left out.
    pub fn all_places(&self) -> impl Iterator<Item = Place> {
        let heap = &self.pickled.heap;
        let stored = entries_or_none(heap, attribute(heap, &self.metadata, "storage_data"));
        stored
            .iter()
            .filter_map(|(_, value)| place(heap, value).ok())
    }
}

/// Returns an attribute of an object.
fn attribute<'h, 'a>(heap: &'h Heap<'a>, object: &Value<'a>, name: &str) -> Option<&'h Value<'a>> {
    let Value::Object(idx) = object else {
        return None;
    };
    heap.entry(&Value::Dict(heap.objects[*idx].state), name)
}

/// Returns the entries of a dictionary.
fn entries<'h, 'a>(
    heap: &'h Heap<'a>,
    dict: Option<&Value<'a>>,
) -> Option<&'h [(Value<'a>, Value<'a>)]> {
    match dict {
        Some(Value::Dict(idx)) => Some(&heap.dicts[*idx].entries),
        _ => None,
    }
}

/// Returns the entries of a dictionary; none of any other value.
fn entries_or_none<'h, 'a>(
    heap: &'h Heap<'a>,
    dict: Option<&Value<'a>>,
) -> &'h [(Value<'a>, Value<'a>)] {
    entries(heap, dict).unwrap_or_default()
}

fn describe<'a>(heap: &Heap<'a>, value: &Value<'a>) -> Result<Option<Described<'a>>, String> {
    let class = match value {
        Value::Object(idx) => heap.objects[*idx].class.as_ref(),
        other => return Err(format!("expected a description, found {}", other.kind())),
    };
    if class.ends_with(".BytesStorageMetadata") {
        return Ok(None);
    }
    if !class.ends_with(".TensorStorageMetadata") {
        return Err(format!(
            "is described as {}, which is not read",
            quote(class)
        ));
    }
    let field = |name: &str| {
        let found = attribute(heap, value, name).cloned();
        found.ok_or_else(|| format!("is described without {name}"))
    };
    Ok(Some(Described {
        properties: field("properties")?,
        shape: sizes(&field("size")?, heap).map_err(|e| format!("size: {e}"))?,
        chunks: field("chunks")?,
    }))
}

fn place<'a>(heap: &Heap<'a>, value: &Value<'a>) -> Result<Place, String> {
    let field = |name: &str| attribute(heap, value, name);
    let number = |name: &str| match field(name) {
        Some(value) => size(value).map_err(|e| format!("{name}: {e}")),
        None => Err(format!("its place has no {name}")),
    };
    let Some(Value::Text(file)) = field("relative_path") else {
        return Err("its place names no file (relative_path)".to_owned());
    };
    let transforms = field("transform_descriptors").and_then(|list| heap.items(list));
    let transforms = transforms.unwrap_or_default().iter();
    Ok(Place {
        file: file.clone(),
        start: number("offset")?,
        n_bytes: number("length")?,
        transforms: transforms
            .map(|transform| match transform {
                Value::Text(name) => name.clone(),
                other => Rc::from(other.kind()),
            })
            .collect(),
    })
}
