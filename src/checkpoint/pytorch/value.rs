//! What a pickle holds once it is read: plain values, and tensors that are only described.

use std::rc::Rc;

use crate::dtype::Dtype;

/// What a pickle may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Global {
    RebuildTensor,
    RebuildTensorV2,
    /// Of an element type that no class of storage has.
    RebuildTensorV3,
    RebuildParameter,
    /// `_rebuild_parameter_with_state`
    RebuildParameterAndState,
    /// The class of a storage; `None` where it does not say the element type.
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

/// Characters of a name or text that a message repeats at most.
const LONGEST_QUOTE: usize = 120;

/// One value. Containers are places in the [`Heap`], so that sharing and cycles cost nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of more than eight bytes: two's complement, least byte first.
    Big(&'a [u8]),
    Float(f64),
    Text(Rc<str>),
    Bytes(&'a [u8]),
    List(usize),
    Tuple(usize),
    Set(usize),
    Dict(usize),
    Global(Global),
    /// A class or function of which only the name is known, and why it is refused where it would be run.
    Name(Rc<str>, Rc<str>),
    /// An instance of a class of which only the name is known.
    Object(usize),
    Storage(usize),
    Tensor(usize),
}

impl Value<'_> {
    /// What the value is, for a message that says what was found.
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

/// What a dictionary was before it was read: decides whether it may carry attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DictKind {
    Plain,
    /// Attributes (`_metadata` of a state dict) are dropped.
    Ordered,
    /// Attributes are the content.
    Namespace,
}

#[derive(Debug)]
pub struct Dict<'a> {
    pub kind: DictKind,
    /// In the order of the file; of two entries with one key, the later counts.
    pub entries: Vec<(Value<'a>, Value<'a>)>,
}

/// The numbers behind one or more tensors: named by the pickle, lying elsewhere in the file.
#[derive(Debug)]
pub struct Storage {
    pub key: Rc<str>,
    pub dtype: Dtype,
    pub n_elements: usize,
    /// First element and number of elements, for a storage that is a part of the one called `key`.
    pub part: Option<(usize, usize)>,
}

/// A tensor as the pickle describes it; nothing of it is checked against the file yet.
#[derive(Debug)]
pub struct StoredTensor {
    pub storage_idx: usize,
    /// All in elements.
    pub offset: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

/// An instance: its class by name, and its attributes.
#[derive(Debug)]
pub struct Object {
    pub class: Rc<str>,
    /// The dictionary of its attributes.
    pub state: usize,
}

/// Everything that values refer to by place.
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

    /// An instance without attributes.
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

    /// The items of a list or tuple.
    pub fn items(&self, value: &Value<'a>) -> Option<&[Value<'a>]> {
        match value {
            Value::List(idx) | Value::Tuple(idx) => Some(&self.lists[*idx]),
            _ => None,
        }
    }

    /// The value of a text key; the last one where the key stands twice.
    pub fn entry(&self, dict: &Value<'a>, key: &str) -> Option<&Value<'a>> {
        let Value::Dict(idx) = dict else { return None };
        let mut entries = self.dicts[*idx].entries.iter().rev();
        entries
            .find(|(k, _)| matches!(k, Value::Text(text) if text.as_ref() == key))
            .map(|(_, value)| value)
    }
}

/// A name of the file as a message repeats it: never longer than a line.
pub fn quote(text: &str) -> String {
    let mut short: String = text.chars().take(LONGEST_QUOTE).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string()
}
