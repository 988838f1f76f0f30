//! Values of a parsed pickle: plain values, and tensors that are only described.

use std::rc::Rc;

use crate::dtype::Dtype;

/// A class or function that a pickle may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Global {
    RebuildTensor,
    RebuildTensorV2,
    /// With an element type that has no storage class.
    RebuildTensorV3,
    RebuildParameter,
    /// `_rebuild_parameter_with_state`
    RebuildParameterAndState,
    /// A storage class; `None` if it does not fix the element type.
    Storage(Option<Dtype>),
    OrderedDict,
    Namespace,
    Size,
    Device,
    /// An element type as a plain value.
    Dtype(&'static str),
    Dict,
    List,
    Tuple,
    Set,
    Int,
    Float,
    Bool,
}

/// Limit on the characters of a name or text in a message.
const LONGEST_QUOTE: usize = 120;

/// A pickled value. Containers are indices into the [`Heap`], so that sharing and cycles cost nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than eight bytes: two's complement, least significant byte first.
    Big(&'a [u8]),
    Float(f64),
    Text(Rc<str>),
    Bytes(&'a [u8]),
    List(usize),
    Tuple(usize),
    Set(usize),
    Dict(usize),
    Global(Global),
    /// A class or function that is known only by name, and the error if it is called.
    Name(Rc<str>, Rc<str>),
    /// An instance of a class that is known only by name.
    Object(usize),
    Storage(usize),
    Tensor(usize),
}

impl Value<'_> {
    /// Names the type of the value for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Big(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Set(_) => "a set",
            Self::Dict(_) => "a dictionary",
            Self::Global(_) | Self::Name(..) => "a class or function",
            Self::Object(_) => "an object",
            Self::Storage(_) => "a storage",
            Self::Tensor(_) => "a tensor",
        }
    }
}

/// Original type of a dictionary: decides whether it may have attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DictKind {
    Plain,
    /// Attributes (`_metadata` of a state dict) are dropped.
    Ordered,
    /// Attributes are stored as entries.
    Namespace,
}

#[derive(Debug)]
pub struct Dict<'a> {
    pub kind: DictKind,
    /// In the order of the file; if a key is repeated, the last entry counts.
    pub entries: Vec<(Value<'a>, Value<'a>)>,
}

/// The raw numbers of one or more tensors: the pickle only names them, they are elsewhere in the file.
#[derive(Debug)]
pub struct Storage {
    pub key: Rc<str>,
    pub dtype: Dtype,
    pub n_elements: usize,
    /// First element and number of elements, if the storage is a part of the one called `key`.
    pub part: Option<(usize, usize)>,
}

/// A tensor as the pickle describes it, not yet checked against the file.
#[derive(Debug)]
pub struct StoredTensor {
    pub storage_idx: usize,
    /// Offset, shape and strides are in elements.
    pub offset: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

/// An instance of a class: its class's name and its attributes.
#[derive(Debug)]
pub struct Object {
    pub class: Rc<str>,
    /// Index of the dictionary of attributes.
    pub state: usize,
}

/// Storage of everything that values refer to by index.
#[derive(Debug, Default)]
pub struct Heap<'a> {
    /// Lists, tuples and sets.
    pub lists: Vec<Vec<Value<'a>>>,
    pub dicts: Vec<Dict<'a>>,
    pub storages: Vec<Storage>,
    pub tensors: Vec<StoredTensor>,
    pub objects: Vec<Object>,
}

impl<'a> Heap<'a> {
    pub fn add_list(&mut self, items: Vec<Value<'a>>) -> usize {
        self.lists.push(items);
        self.lists.len() - 1
    }

    pub fn add_dict(&mut self, kind: DictKind, entries: Vec<(Value<'a>, Value<'a>)>) -> usize {
        self.dicts.push(Dict { kind, entries });
        self.dicts.len() - 1
    }

    /// Adds an instance without attributes.
    pub fn add_object(&mut self, class: Rc<str>) -> Value<'a> {
        let state = self.add_dict(DictKind::Plain, Vec::new());
        self.objects.push(Object { class, state });
        Value::Object(self.objects.len() - 1)
    }

    pub fn n_containers(&self) -> usize {
        self.lists.len()
            + self.dicts.len()
            + self.storages.len()
            + self.tensors.len()
            + self.objects.len()
    }

    /// Returns the items of a list or tuple.
    pub fn items(&self, value: &Value<'a>) -> Option<&[Value<'a>]> {
        match value {
            Value::List(idx) | Value::Tuple(idx) => Some(&self.lists[*idx]),
            _ => None,
        }
    }

    /// Returns the value of a text key; the last one if the key is repeated.
    pub fn entry(&self, dict: &Value<'a>, key: &str) -> Option<&Value<'a>> {
        let Value::Dict(idx) = dict else { return None };
        let mut entries = self.dicts[*idx].entries.iter().rev();
        entries
            .find(|(k, _)| matches!(k, Value::Text(text) if text.as_ref() == key))
            .map(|(_, value)| value)
    }
}

/// Quotes a name from the file for a message, shortened to at most a line.
pub fn quote(text: &str) -> String {
    let mut short: String = text.chars().take(LONGEST_QUOTE).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string()
}
