//! Interprets the opcodes of a pickle as plain values and descriptions of tensors; nothing is imported or run.

use super::globals::Scope;
use super::memo::Memo;
use super::scan::Scan;
use super::value::{DictKind, Global, Heap, Value, quote};

/// Limit on the bytes of a pickle: far above any list of tensor names, far below a file of tensors.
pub const LONGEST: usize = 1 << 27;
/// Limit on the values on the stack.
const DEEPEST_STACK: usize = 1 << 20;
/// Limit on open marks; no saved value nests this deep.
const MOST_MARKS: usize = 1 << 10;
const MOST_OPCODES: usize = 1 << 23;
pub(super) const MOST_CONTAINERS: usize = 1 << 21;
const NEWEST_PROTOCOL: u8 = 5;

/// A completely parsed pickle.
#[derive(Debug)]
pub struct Pickled<'a> {
    pub root: Value<'a>,
    pub heap: Heap<'a>,
    /// Number of bytes up to and including STOP.
    pub n_bytes: usize,
    pub n_opcodes: usize,
    /// Why a scope without modules would refuse it.
    pub refusal: Option<String>,
}

/// Parses the pickle at the start of `bytes`.
///
/// # Errors
/// One clause that names the opcode or the class, and its byte offset.
pub fn read(bytes: &[u8], scope: Scope) -> Result<Pickled<'_>, String> {
    read_within(bytes, scope, Limits::USUAL)
}

/// Limits on what a pickle builds.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub opcodes: usize,
    pub containers: usize,
}

impl Limits {
    const USUAL: Self = Self {
        opcodes: MOST_OPCODES,
        containers: MOST_CONTAINERS,
    };

    /// Limits of a pickle that consists of small containers: in proportion to its bytes, where these are many.
    pub fn of_bytes(n: usize) -> Self {
        Self {
            opcodes: n.max(MOST_OPCODES),
            containers: (n / 2).max(MOST_CONTAINERS),
        }
    }
}

/// Parses the pickle at the start of `bytes` within other limits.
///
/// # Errors
/// As for [`read`].
pub fn read_within(bytes: &[u8], scope: Scope, limits: Limits) -> Result<Pickled<'_>, String> {
    let limited = &bytes[..bytes.len().min(LONGEST)];
    let mut machine = Machine {
        scan: Scan::new(limited),
        scope,
        limits,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        heap: Heap::default(),
    };
    for n_before in 0..limits.opcodes {
        let at = machine.scan.at();
        match machine.step() {
            Ok(None) => {}
            Ok(Some(root)) => {
                return Ok(Pickled {
                    root,
                    heap: machine.heap,
                    n_bytes: machine.scan.at(),
                    n_opcodes: n_before + 1,
                    refusal: None,
                });
            }
            Err(problem) => return Err(format!("pickle, byte {at}: {problem}")),
        }
    }
    Err(format!("pickle: more than {} opcodes", limits.opcodes))
}

pub(super) struct Machine<'a> {
    scan: Scan<'a>,
    pub(super) scope: Scope,
    limits: Limits,
    stack: Vec<Value<'a>>,
    /// Stack heights at the open marks.
    marks: Vec<usize>,
    memo: Memo<'a>,
    pub(super) heap: Heap<'a>,
}

type Step<'a> = Result<Option<Value<'a>>, String>;

impl<'a> Machine<'a> {
    /// Executes one opcode; STOP returns the root.
    fn step(&mut self) -> Step<'a> {
        let Some(opcode) = self.scan.byte() else {
            return Err("ends without the opcode STOP: truncated".to_owned());
        };
        match opcode {
            0x80 => self.protocol()?,
            0x95 => self.scan.frame()?,
            b'.' => return self.pop("STOP").map(Some),
            b'(' => self.mark()?,
            b'0' => self.discard()?,
            b'1' => drop(self.pop_mark("POP_MARK")?),
            b'2' => {
                let top = self.top("DUP")?.clone();
                self.push(top)?;
            }
            // Numbers and constants.
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'I' | b'L' | b'F' | b'J' | b'K' | b'M' | b'G' | 0x8a | 0x8b => {
                let number = self.scan.number(opcode)?;
                self.push(number)?;
            }
            // Texts and bytes.
            b'S' | b'V' | b'T' | b'U' | b'X' | b'B' | b'C' | 0x8c | 0x8d | 0x8e | 0x96 => {
                let text = self.scan.text(opcode)?;
                self.push(text)?;
            }
            // Containers.
            b']' => self.push_list(Value::List, Vec::new())?,
            b')' => self.push_list(Value::Tuple, Vec::new())?,
            0x8f => self.push_list(Value::Set, Vec::new())?,
            b'}' => self.push_dict(Vec::new())?,
            b'l' => self.gather("LIST", Value::List)?,
            b't' => self.gather("TUPLE", Value::Tuple)?,
            0x91 => self.gather("FROZENSET", Value::Set)?,
            0x85..=0x87 => self.short_tuple(usize::from(opcode - 0x84))?,
            b'd' => {
                let items = self.pop_mark("DICT")?;
                let entries = pairs(items, "DICT")?;
                self.push_dict(entries)?;
            }
            b'a' => {
                let item = self.pop("APPEND")?;
                self.extend("APPEND", vec![item])?;
            }
            b'e' => {
                let items = self.pop_mark("APPENDS")?;
                self.extend("APPENDS", items)?;
            }
            0x90 => {
                let items = self.pop_mark("ADDITEMS")?;
                self.extend("ADDITEMS", items)?;
            }
            b's' => {
                let value = self.pop("SETITEM")?;
                let key = self.pop("SETITEM")?;
                self.insert("SETITEM", vec![(key, value)])?;
            }
            b'u' => {
                let items = self.pop_mark("SETITEMS")?;
                self.insert("SETITEMS", pairs(items, "SETITEMS")?)?;
            }
            // The memo.
            b'p' | b'q' | b'r' => {
                let place = self.scan.place(opcode)?;
                self.remember(place)?;
            }
            0x94 => self.remember(self.memo.next())?,
            b'g' | b'h' | b'j' => {
                let place = self.scan.place(opcode)?;
                let Some(value) = self.memo.get(place) else {
                    return Err(format!("the memo holds nothing at {place}"));
                };
                let value = value.clone();
                self.push(value)?;
            }
            // Names, calls and attributes.
            b'c' => {
                let (module, name) = (self.scan.line("GLOBAL")?, self.scan.line("GLOBAL")?);
                self.global("GLOBAL", module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop("STACK_GLOBAL")?, self.pop("STACK_GLOBAL")?);
                let (Value::Text(module), Value::Text(name)) = (module, name) else {
                    return Err("STACK_GLOBAL expected two texts".to_owned());
                };
                self.global("STACK_GLOBAL", &module, &name)?;
            }
            b'R' => {
                let arguments = self.pop("REDUCE")?;
                self.call("REDUCE", &arguments)?;
            }
            0x81 => {
                let arguments = self.pop("NEWOBJ")?;
                match self.top("NEWOBJ")? {
                    Value::Global(Global::Namespace | Global::OrderedDict) | Value::Name(..) => {}
                    Value::Global(other) => {
                        return Err(format!("NEWOBJ of {} is not understood", other.name()));
                    }
                    other => return Err(format!("NEWOBJ of {} is not understood", other.kind())),
                }
                self.call("NEWOBJ", &arguments)?;
            }
            b'b' => self.build()?,
            b'Q' => self.storage()?,
            other => return Err(self.refuse(other)),
        }
        Ok(None)
    }

    /// Explains why an opcode that is unknown or would run code is refused.
    fn refuse(&mut self, opcode: u8) -> String {
        let name = match opcode {
            b'i' => {
                let names = (self.scan.line("INST"), self.scan.line("INST"));
                let class = match names {
                    (Ok(module), Ok(name)) => format!(" of {}", quote(&format!("{module}.{name}"))),
                    _ => String::new(),
                };
                return format!("opcode INST{class} is refused: no code of a pickle is run");
            }
            b'o' => "OBJ",
            b'P' => "PERSID",
            0x82 => "EXT1",
            0x83 => "EXT2",
            0x84 => "EXT4",
            0x92 => "NEWOBJ_EX",
            0x97 => "NEXT_BUFFER",
            0x98 => "READONLY_BUFFER",
            other => return format!("0x{other:02x} is not an opcode of a pickle"),
        };
        format!("opcode {name} is refused: no code of a pickle is run")
    }

    fn protocol(&mut self) -> Result<(), String> {
        match self.scan.byte() {
            Some(version) if version <= NEWEST_PROTOCOL => Ok(()),
            Some(version) => Err(format!(
                "expected a protocol up to {NEWEST_PROTOCOL}, found {version}"
            )),
            None => Err("PROTO: truncated".to_owned()),
        }
    }

    pub(super) fn push(&mut self, value: Value<'a>) -> Result<(), String> {
        if self.stack.len() >= DEEPEST_STACK {
            return Err(format!("more than {DEEPEST_STACK} values on the stack"));
        }
        self.stack.push(value);
        Ok(())
    }

    fn push_list(
        &mut self,
        kind: fn(usize) -> Value<'a>,
        items: Vec<Value<'a>>,
    ) -> Result<(), String> {
        self.check_containers()?;
        let idx = self.heap.add_list(items);
        self.push(kind(idx))
    }

    fn push_dict(&mut self, entries: Vec<(Value<'a>, Value<'a>)>) -> Result<(), String> {
        self.check_containers()?;
        let idx = self.heap.add_dict(DictKind::Plain, entries);
        self.push(Value::Dict(idx))
    }

    pub(super) fn check_containers(&self) -> Result<(), String> {
        if self.heap.n_containers() < self.limits.containers {
            return Ok(());
        }
        Err(format!("more than {} containers", self.limits.containers))
    }

    /// Stack height below which nothing may be popped.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    pub(super) fn top(&self, opcode: &str) -> Result<&Value<'a>, String> {
        match self.stack.last() {
            Some(top) if self.stack.len() > self.floor() => Ok(top),
            _ => Err(format!("{opcode} finds the stack empty")),
        }
    }

    pub(super) fn pop(&mut self, opcode: &str) -> Result<Value<'a>, String> {
        self.top(opcode)?;
        self.stack
            .pop()
            .ok_or_else(|| format!("{opcode} finds the stack empty"))
    }

    fn mark(&mut self) -> Result<(), String> {
        if self.marks.len() >= MOST_MARKS {
            return Err(format!(
                "more than {MOST_MARKS} containers inside each other"
            ));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Pops everything above the last mark.
    fn pop_mark(&mut self, opcode: &str) -> Result<Vec<Value<'a>>, String> {
        match self.marks.pop() {
            Some(height) => Ok(self.stack.split_off(height)),
            None => Err(format!("{opcode} finds no mark")),
        }
    }

    fn discard(&mut self) -> Result<(), String> {
        if self.stack.len() > self.floor() {
            self.stack.pop();
            return Ok(());
        }
        self.pop_mark("POP").map(drop)
    }

    fn gather(&mut self, opcode: &str, kind: fn(usize) -> Value<'a>) -> Result<(), String> {
        let items = self.pop_mark(opcode)?;
        self.push_list(kind, items)
    }

    fn short_tuple(&mut self, n: usize) -> Result<(), String> {
        let height = self.stack.len();
        if height < self.floor() + n {
            return Err(format!("TUPLE{n} finds too few values"));
        }
        let items = self.stack.split_off(height - n);
        self.push_list(Value::Tuple, items)
    }

    fn extend(&mut self, opcode: &str, items: Vec<Value<'a>>) -> Result<(), String> {
        let idx = match (self.top(opcode)?, opcode) {
            (Value::List(idx), "APPEND" | "APPENDS") | (Value::Set(idx), "ADDITEMS") => *idx,
            // An instance of a class that is also a list.
            (Value::Object(_), _) => return Ok(()),
            (other, _) => return Err(format!("{opcode} to {}", other.kind())),
        };
        self.heap.lists[idx].extend(items);
        Ok(())
    }

    fn insert(&mut self, opcode: &str, entries: Vec<(Value<'a>, Value<'a>)>) -> Result<(), String> {
        match self.top(opcode)? {
            Value::Dict(idx) => {
                let idx = *idx;
                self.heap.dicts[idx].entries.extend(entries);
                Ok(())
            }
            // An instance of a class that is also a dictionary.
            Value::Object(idx) => {
                let state = self.heap.objects[*idx].state;
                self.heap.dicts[state].entries.extend(entries);
                Ok(())
            }
            other => Err(format!("{opcode} to {}", other.kind())),
        }
    }

    fn remember(&mut self, place: u64) -> Result<(), String> {
        let value = self.top("PUT")?.clone();
        self.memo.insert(place, value)
    }
}

fn pairs<'a>(items: Vec<Value<'a>>, opcode: &str) -> Result<Vec<(Value<'a>, Value<'a>)>, String> {
    if !items.len().is_multiple_of(2) {
        return Err(format!("{opcode} finds a key without a value"));
    }
    let mut items = items.into_iter();
    let mut pairs = Vec::with_capacity(items.len() / 2);
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    Ok(pairs)
}
