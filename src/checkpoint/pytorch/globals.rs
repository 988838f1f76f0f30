//! The few classes and functions that a pickle may name, and the value that "calling" each one gives: no code runs.

use std::rc::Rc;

use super::value::{DictKind, Global, Heap, Object, Storage, StoredTensor, Value, quote};
use crate::dtype::Dtype;

/// Limit on the dimensions of a tensor; no weight has as many.
const MOST_DIMENSIONS: usize = 16;

/// Element types that are accepted as plain values in a configuration.
const DTYPES: &[&str] = &[
    "float8_e4m3fn",
    "float8_e5m2",
    "uint16",
    "uint32",
    "uint64",
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "double",
    "float",
    "half",
    "long",
    "int",
];

/// Attribute names for the arguments of a tensor subclass; they cannot clash, since no Python attribute has a colon.
pub const DTYPE: &str = ":dtype";
pub const ARGUMENT: &str = ":argument";
/// Attribute name for the state of an object that keeps a tuple instead of attributes.
pub const STATE: &str = ":state";

/// Which values a pickle may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Only literals: the pickle may not name any class or function.
    Data,
    /// Containers, numbers and texts.
    Plain,
    /// Also tensors.
    Tensors,
    /// Also modules with tensors: other classes and their instances are kept by name.
    Modules,
}

/// Functions that, as far as weights go, return their first argument or an instance of it.
const RETURNS_FIRST_ARGUMENT: [&str; 8] = [
    "torch.jit._pickle.build_intlist",
    "torch.jit._pickle.build_tensorlist",
    "torch.jit._pickle.build_doublelist",
    "torch.jit._pickle.build_boollist",
    "torch.jit._pickle.restore_type_tag",
    "torch._tensor._rebuild_from_type_v2",
    "copy_reg._reconstructor",
    "copyreg._reconstructor",
];

/// Python modules whose functions are known to do no more than build a value.
const VALUE_ONLY_MODULES: [&str; 13] = [
    "torch.",
    "torchao.",
    "transformers.",
    "collections.",
    "functools.partial",
    "enum.",
    "numpy.",
    "torchvision.",
    "megatron.core.",
    "signal.Signals",
    "pathlib.",
    "_io.BytesIO",
    "_codecs.encode",
];

/// Builds a stand-in for the result of calling a function that is known only by name.
///
/// # Errors
/// When the function is in no library whose functions only build values.
pub fn stand_in_for_call<'a>(
    name: &str,
    refusal: &str,
    arguments: &[Value<'a>],
    heap: &mut Heap<'a>,
) -> Result<Value<'a>, String> {
    if name == "torch._tensor._rebuild_from_type_v2"
        && let Some(made) = subclass(arguments, heap)
    {
        return Ok(made);
    }
    if RETURNS_FIRST_ARGUMENT.contains(&name) {
        return match arguments.first() {
            Some(Value::Name(class, _)) => Ok(heap.add_object(class.clone())),
            Some(first) => Ok(first.clone()),
            None => Err(format!("{name} without arguments")),
        };
    }
    if name == "collections.defaultdict" {
        return Ok(Value::Dict(heap.add_dict(DictKind::Plain, Vec::new())));
    }
    if VALUE_ONLY_MODULES
        .iter()
        .any(|known| name.starts_with(known))
    {
        let made = heap.add_object(Rc::from(name));
        // A member of an enumeration is constructed from its value.
        if let (Value::Object(idx), [only @ Value::Int(_)]) = (&made, arguments) {
            let key = Value::Text(Rc::from(ARGUMENT));
            let state = heap.objects[*idx].state;
            heap.dicts[state].entries.push((key, only.clone()));
        }
        return Ok(made);
    }
    Err(refusal.to_owned())
}

/// Builds a tensor subclass: `(_rebuild_wrapper_subclass, class, (class, dtype, …), attributes)`.
fn subclass<'a>(arguments: &[Value<'a>], heap: &mut Heap<'a>) -> Option<Value<'a>> {
    let [
        Value::Name(builder, _),
        Value::Name(class, _),
        called,
        state,
    ] = arguments
    else {
        return None;
    };
    if builder.as_ref() != "torch._utils._rebuild_wrapper_subclass" {
        return None;
    }
    let dtype = heap.items(called)?.get(1)?.clone();
    // The attributes may come with a dictionary of slots.
    let state = match heap.items(state) {
        Some(parts) => parts.first()?.clone(),
        None => state.clone(),
    };
    let Value::Dict(idx) = state else { return None };
    let mut attributes = heap.dicts[idx].entries.clone();
    attributes.push((Value::Text(Rc::from(DTYPE)), dtype));
    let state = heap.add_dict(DictKind::Plain, attributes);
    heap.objects.push(Object {
        class: class.clone(),
        state,
    });
    Some(Value::Object(heap.objects.len() - 1))
}

impl Global {
    /// Looks up `module.name`; the error says why it is refused.
    pub fn find(module: &str, name: &str, scope: Scope) -> Result<Self, String> {
        if scope == Scope::Data {
            return Err(refusal(module, name, scope));
        }
        let plain = match (module, name) {
            ("collections", "OrderedDict") => Some(Self::OrderedDict),
            ("builtins" | "__builtin__", name) => match name {
                "dict" => Some(Self::Dict),
                "list" => Some(Self::List),
                "tuple" => Some(Self::Tuple),
                "set" | "frozenset" => Some(Self::Set),
                "int" => Some(Self::Int),
                "float" => Some(Self::Float),
                "bool" => Some(Self::Bool),
                _ => None,
            },
            _ => None,
        };
        let found = match (plain, scope) {
            (None, Scope::Tensors | Scope::Modules) => Self::of_torch(module, name),
            (plain, _) => plain,
        };
        found.ok_or_else(|| refusal(module, name, scope))
    }

    fn of_torch(module: &str, name: &str) -> Option<Self> {
        match (module, name) {
            ("torch._utils", "_rebuild_tensor") => Some(Self::RebuildTensor),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Self::RebuildTensorV2),
            ("torch._utils", "_rebuild_tensor_v3") => Some(Self::RebuildTensorV3),
            ("torch._utils", "_rebuild_parameter") => Some(Self::RebuildParameter),
            ("torch._utils", "_rebuild_parameter_with_state") => {
                Some(Self::RebuildParameterAndState)
            }
            ("argparse", "Namespace") => Some(Self::Namespace),
            ("torch", "Size") => Some(Self::Size),
            ("torch", "device") => Some(Self::Device),
            ("torch" | "torch.storage", "UntypedStorage") => {
                Some(Self::Storage(Some(Dtype::Other("u8", 1))))
            }
            ("torch" | "torch.storage", "TypedStorage") => Some(Self::Storage(None)),
            ("torch", name) => match element_type(name) {
                Some(dtype) => Some(Self::Storage(Some(dtype))),
                None => DTYPES
                    .iter()
                    .find(|dtype| **dtype == name)
                    .map(|dtype| Self::Dtype(dtype)),
            },
            _ => None,
        }
    }

    /// Returns the name as a plain value.
    pub fn name(self) -> String {
        match self {
            Self::RebuildTensor => "torch._utils._rebuild_tensor".to_owned(),
            Self::RebuildTensorV2 => "torch._utils._rebuild_tensor_v2".to_owned(),
            Self::RebuildTensorV3 => "torch._utils._rebuild_tensor_v3".to_owned(),
            Self::RebuildParameter => "torch._utils._rebuild_parameter".to_owned(),
            Self::RebuildParameterAndState => {
                "torch._utils._rebuild_parameter_with_state".to_owned()
            }
            Self::Storage(Some(dtype)) => format!("a torch storage of {dtype}"),
            Self::Storage(None) => "torch.storage.TypedStorage".to_owned(),
            Self::OrderedDict => "collections.OrderedDict".to_owned(),
            Self::Namespace => "argparse.Namespace".to_owned(),
            Self::Size => "torch.Size".to_owned(),
            Self::Device => "torch.device".to_owned(),
            Self::Dtype(name) => format!("torch.{name}"),
            Self::Dict => "dict".to_owned(),
            Self::List => "list".to_owned(),
            Self::Tuple => "tuple".to_owned(),
            Self::Set => "set".to_owned(),
            Self::Int => "int".to_owned(),
            Self::Float => "float".to_owned(),
            Self::Bool => "bool".to_owned(),
        }
    }

    /// Builds from the arguments the value that the real call would return.
    pub fn call<'a>(
        self,
        arguments: &[Value<'a>],
        heap: &mut Heap<'a>,
    ) -> Result<Value<'a>, String> {
        let first = arguments.first();
        match (self, first) {
            (Self::RebuildTensor | Self::RebuildTensorV2, _) => {
                rebuild_tensor(arguments, heap).map_err(|e| format!("{}: {e}", self.name()))
            }
            (Self::RebuildTensorV3, _) => {
                of_element_type(arguments, heap).map_err(|e| format!("{}: {e}", self.name()))
            }
            (
                Self::RebuildParameter | Self::RebuildParameterAndState,
                Some(tensor @ (Value::Tensor(_) | Value::Object(_))),
            ) => Ok(tensor.clone()),
            (Self::OrderedDict, None) => {
                Ok(Value::Dict(heap.add_dict(DictKind::Ordered, Vec::new())))
            }
            (Self::Namespace, None) => {
                Ok(Value::Dict(heap.add_dict(DictKind::Namespace, Vec::new())))
            }
            (Self::Dict, None) => Ok(Value::Dict(heap.add_dict(DictKind::Plain, Vec::new()))),
            (Self::OrderedDict, Some(pairs)) => {
                let entries = pairs_of(pairs, heap).map_err(|e| format!("{}: {e}", self.name()))?;
                Ok(Value::Dict(heap.add_dict(DictKind::Ordered, entries)))
            }
            (Self::List, None) => Ok(Value::List(heap.add_list(Vec::new()))),
            (Self::Tuple, None) => Ok(Value::Tuple(heap.add_list(Vec::new()))),
            (Self::Set, None) => Ok(Value::Set(heap.add_list(Vec::new()))),
            // A pickle writes the argument only for this call, so it needs no copy.
            (Self::Tuple | Self::Size, Some(Value::List(idx) | Value::Tuple(idx))) => {
                Ok(Value::Tuple(*idx))
            }
            (Self::Set, Some(Value::List(idx) | Value::Tuple(idx))) => Ok(Value::Set(*idx)),
            (Self::List, Some(Value::List(idx) | Value::Tuple(idx))) => Ok(Value::List(*idx)),
            (Self::Int, Some(value @ Value::Int(_)))
            | (Self::Float, Some(value @ Value::Float(_)))
            | (Self::Bool, Some(value @ Value::Bool(_))) => Ok(value.clone()),
            (Self::Int, Some(Value::Bool(b))) => Ok(Value::Int(i64::from(*b))),
            (Self::Int, None) => Ok(Value::Int(0)),
            (Self::Float, None) => Ok(Value::Float(0.0)),
            (Self::Float, Some(Value::Int(n))) => Ok(Value::Float(*n as f64)),
            (Self::Bool, None) => Ok(Value::Bool(false)),
            (Self::Bool, Some(Value::Int(n))) => Ok(Value::Bool(*n != 0)),
            (Self::Float, Some(Value::Text(text))) => {
                text.trim().parse().map(Value::Float).map_err(|_| {
                    format!("float: expected a number, found the text {}", quote(text))
                })
            }
            (Self::Device, Some(Value::Text(device))) => match arguments.get(1) {
                Some(Value::Int(idx)) => {
                    Ok(Value::Text(Rc::from(format!("{}:{idx}", quote(device)))))
                }
                _ => Ok(Value::Text(device.clone())),
            },
            (_, first) => Err(format!(
                "{} called with {} arguments, the first {}, which is not understood",
                self.name(),
                arguments.len(),
                first.map_or("missing", Value::kind)
            )),
        }
    }
}

/// Returns the element type of `torch.<name>` if that is a storage class.
fn element_type(name: &str) -> Option<Dtype> {
    Some(match name {
        "DoubleStorage" => Dtype::F64,
        "FloatStorage" => Dtype::F32,
        "HalfStorage" => Dtype::F16,
        "BFloat16Storage" => Dtype::Bf16,
        "LongStorage" => Dtype::Other("i64", 8),
        "IntStorage" => Dtype::Other("i32", 4),
        "ShortStorage" => Dtype::Other("i16", 2),
        "CharStorage" => Dtype::Other("i8", 1),
        "ByteStorage" => Dtype::Other("u8", 1),
        "BoolStorage" => Dtype::Other("bool", 1),
        _ => return None,
    })
}

/// Returns the element type that PyTorch calls `torch.<name>`.
pub fn dtype_called(name: &str) -> Option<Dtype> {
    Some(match name {
        "float64" | "double" => Dtype::F64,
        "float32" | "float" => Dtype::F32,
        "float16" | "half" => Dtype::F16,
        "bfloat16" => Dtype::Bf16,
        "float8_e4m3fn" => Dtype::F8E4m3,
        "float8_e5m2" => Dtype::F8E5m2,
        "int64" | "long" => Dtype::Other("i64", 8),
        "int32" | "int" => Dtype::Other("i32", 4),
        "int16" => Dtype::Other("i16", 2),
        "int8" => Dtype::Other("i8", 1),
        "uint8" => Dtype::Other("u8", 1),
        "uint16" => Dtype::Other("u16", 2),
        "uint32" => Dtype::Other("u32", 4),
        "uint64" => Dtype::Other("u64", 8),
        "bool" => Dtype::Other("bool", 1),
        _ => return None,
    })
}

fn refusal(module: &str, name: &str, scope: Scope) -> String {
    let full = quote(&format!("{module}.{name}"));
    if scope == Scope::Data {
        return format!("names {full}, which is refused: no code of a pickle is run");
    }
    if scope == Scope::Plain {
        return format!(
            "names {full}, which is not read; expected plain containers, numbers and texts"
        );
    }
    let what = match name {
        name if name.contains("sparse") => "a sparse tensor, which is not read",
        name if name.contains("qtensor") || name.starts_with('Q') && module == "torch" => {
            "a quantised tensor, which is not read"
        }
        name if name.starts_with("_rebuild") => "a kind of tensor that is not read",
        _ => "which is not read: no code of a pickle is run",
    };
    format!("names {full}, {what}; expected a state dict of dense tensors and plain values")
}

/// `(storage, offset, shape, strides, …)`; the other arguments do not affect the values.
fn rebuild_tensor<'a>(arguments: &[Value<'a>], heap: &mut Heap<'a>) -> Result<Value<'a>, String> {
    let [storage, offset, shape, strides, ..] = arguments else {
        return Err(format!(
            "expected at least 4 arguments, found {}",
            arguments.len()
        ));
    };
    let Value::Storage(storage_idx) = storage else {
        return Err(format!("expected a storage, found {}", storage.kind()));
    };
    let tensor = StoredTensor {
        storage_idx: *storage_idx,
        offset: size(offset).map_err(|e| format!("offset: {e}"))?,
        shape: sizes(shape, heap).map_err(|e| format!("shape: {e}"))?,
        strides: sizes(strides, heap).map_err(|e| format!("strides: {e}"))?,
    };
    if tensor.shape.len() != tensor.strides.len() {
        return Err(format!(
            "shape {:?} and strides {:?} do not belong together",
            tensor.shape, tensor.strides
        ));
    }
    heap.tensors.push(tensor);
    Ok(Value::Tensor(heap.tensors.len() - 1))
}

/// `(storage, offset, shape, strides, requires_grad, hooks, dtype, …)`, with an untyped storage that counts bytes.
fn of_element_type<'a>(arguments: &[Value<'a>], heap: &mut Heap<'a>) -> Result<Value<'a>, String> {
    let dtype = match arguments.get(6) {
        Some(Value::Global(Global::Dtype(name))) => *name,
        other => {
            let kind = other.map_or("nothing", Value::kind);
            return Err(format!("expected an element type, found {kind}"));
        }
    };
    let dtype =
        dtype_called(dtype).ok_or_else(|| format!("elements of type {dtype} are not read"))?;
    let Some(Value::Storage(idx)) = arguments.first() else {
        return Err("expected a storage".to_owned());
    };
    let storage = &heap.storages[*idx];
    if storage.dtype.size() != 1 || storage.part.is_some() {
        return Err("expected a storage that counts bytes".to_owned());
    }
    let typed = Storage {
        key: Rc::clone(&storage.key),
        dtype,
        n_elements: storage.n_elements / dtype.size(),
        part: None,
    };
    heap.storages.push(typed);
    let mut arguments = arguments.to_vec();
    arguments[0] = Value::Storage(heap.storages.len() - 1);
    rebuild_tensor(&arguments, heap)
}

/// Reads a count or an offset.
pub fn size(value: &Value<'_>) -> Result<usize, String> {
    match value {
        Value::Int(n) => usize::try_from(*n).map_err(|_| format!("expected a size, found {n}")),
        other => Err(format!("expected a size, found {}", other.kind())),
    }
}

pub fn sizes<'a>(value: &Value<'a>, heap: &Heap<'a>) -> Result<Vec<usize>, String> {
    let Some(items) = heap.items(value) else {
        return Err(format!("expected a tuple of sizes, found {}", value.kind()));
    };
    if items.len() > MOST_DIMENSIONS {
        let n = items.len();
        return Err(format!(
            "expected at most {MOST_DIMENSIONS} dimensions, found {n}"
        ));
    }
    items.iter().map(size).collect()
}

/// Moves the pairs that a Python 2 ordered dictionary is built from out of their list.
fn pairs_of<'a>(
    value: &Value<'a>,
    heap: &mut Heap<'a>,
) -> Result<Vec<(Value<'a>, Value<'a>)>, String> {
    let Value::List(idx) = value else {
        return Err(format!("expected a list of pairs, found {}", value.kind()));
    };
    let pairs = std::mem::take(&mut heap.lists[*idx]);
    pairs
        .iter()
        .map(|pair| match heap.items(pair) {
            Some([key, value]) => Ok((key.clone(), value.clone())),
            _ => Err("expected pairs of key and value".to_owned()),
        })
        .collect()
}
