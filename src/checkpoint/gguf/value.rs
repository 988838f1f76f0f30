//! Metadata values of a GGUF file, and the cursor that reads them, with every length checked against the file.

use std::ops::Range;
use std::path::Path;

use attnscope_compute::error::{Error, Result};

/// Limit on nested lists; no known key nests lists at all.
const DEEPEST: usize = 4;

/// One metadata value. Texts and lists stay in the file, as byte ranges.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Text(Range<usize>),
    List(List),
}

/// A list stored in the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct List {
    pub kind: Kind,
    pub len: usize,
    /// Byte range of its elements, without kind and length.
    pub bytes: Range<usize>,
}

/// Type of a value; its number in the file is its position here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    List,
    U64,
    I64,
    F64,
}

impl Kind {
    fn of(number: u32) -> Option<Self> {
        const ALL: [Kind; 13] = [
            Kind::U8,
            Kind::I8,
            Kind::U16,
            Kind::I16,
            Kind::U32,
            Kind::I32,
            Kind::F32,
            Kind::Bool,
            Kind::Text,
            Kind::List,
            Kind::U64,
            Kind::I64,
            Kind::F64,
        ];
        ALL.get(number as usize).copied()
    }

    /// Returns the fewest bytes of a value: for a text its length field, for a list its kind and length.
    fn least_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Text => 8,
            Self::List => 12,
        }
    }
}

/// Reader of a file from front to back, never past its end.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    path: &'a Path,
    /// The part of the file's beginning that is in memory.
    data: &'a [u8],
    /// Size of the whole file in bytes.
    n_bytes: usize,
    at: usize,
    /// Whether a read reached file contents that are not in memory.
    ran_out: bool,
}

impl<'a> Cursor<'a> {
    /// Starts at byte `at` of `data`, the beginning of a file of `n_bytes`.
    pub(super) fn new(path: &'a Path, data: &'a [u8], n_bytes: usize, at: usize) -> Self {
        Self {
            path,
            data,
            n_bytes,
            at,
            ran_out: false,
        }
    }

    /// Whether more of the file is needed in memory.
    pub(super) fn ran_out(&self) -> bool {
        self.ran_out
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn n_left(&self) -> usize {
        self.n_bytes.saturating_sub(self.at)
    }

    /// Takes the next `n` bytes and returns their range; `what` names them in the error when they are missing.
    pub(super) fn take(&mut self, n: u64, what: &str) -> Result<Range<usize>> {
        match usize::try_from(n).ok().filter(|n| *n <= self.n_left()) {
            Some(n) if self.at + n > self.data.len() => {
                self.ran_out = true;
                Err(Error::file(self.path, format!("{what} lies further on")))
            }
            Some(n) => {
                let place = self.at..self.at + n;
                self.at += n;
                Ok(place)
            }
            None => {
                let problem = format!(
                    "truncated or damaged: {what} at byte {} needs {n} bytes, the file holds {} more",
                    self.at,
                    self.n_left()
                );
                Err(Error::file(self.path, problem))
            }
        }
    }

    fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let place = self.take(N as u64, what)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.data[place]);
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32> {
        self.bytes(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64> {
        self.bytes(what).map(u64::from_le_bytes)
    }

    /// Reads the length of a text and returns the range of the text.
    pub(super) fn text(&mut self, what: &str) -> Result<Range<usize>> {
        let n = self.u64(what)?;
        self.take(n, what)
    }

    /// Reads the number of items that take at least `least_bytes` each.
    pub(super) fn count(&mut self, least_bytes: usize, what: &str) -> Result<usize> {
        let n = self.u64(what)?;
        let most = self.n_left() / least_bytes;
        match usize::try_from(n).ok().filter(|n| *n <= most) {
            Some(n) => Ok(n),
            None => {
                let problem = format!(
                    "truncated or damaged: {what} is {n}, the {} bytes that follow hold at most {most}",
                    self.n_left()
                );
                Err(Error::file(self.path, problem))
            }
        }
    }

    pub(super) fn kind(&mut self, what: &str) -> Result<Kind> {
        let number = self.u32(what)?;
        Kind::of(number).ok_or_else(|| {
            let problem = format!("{what}: expected a kind of value from 0 to 12, found {number}");
            Error::file(self.path, problem)
        })
    }

    /// Reads a value of a kind.
    pub(super) fn value(&mut self, kind: Kind, what: &str) -> Result<Value> {
        Ok(match kind {
            Kind::U8 => Value::Unsigned(u8::from_le_bytes(self.bytes(what)?).into()),
            Kind::I8 => Value::Signed(i8::from_le_bytes(self.bytes(what)?).into()),
            Kind::U16 => Value::Unsigned(u16::from_le_bytes(self.bytes(what)?).into()),
            Kind::I16 => Value::Signed(i16::from_le_bytes(self.bytes(what)?).into()),
            Kind::U32 => Value::Unsigned(self.u32(what)?.into()),
            Kind::I32 => Value::Signed(i32::from_le_bytes(self.bytes(what)?).into()),
            Kind::U64 => Value::Unsigned(self.u64(what)?),
            Kind::I64 => Value::Signed(i64::from_le_bytes(self.bytes(what)?)),
            Kind::F32 => Value::F32(f32::from_le_bytes(self.bytes(what)?)),
            Kind::F64 => Value::F64(f64::from_le_bytes(self.bytes(what)?)),
            Kind::Bool => match self.bytes::<1>(what)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => {
                    let problem = format!("{what}: expected true (1) or false (0), found {other}");
                    return Err(Error::file(self.path, problem));
                }
            },
            Kind::Text => Value::Text(self.text(what)?),
            Kind::List => Value::List(self.list(what, 1)?),
        })
    }

    fn list(&mut self, what: &str, depth: usize) -> Result<List> {
        if depth > DEEPEST {
            let problem = format!("{what}: lists nest more than {DEEPEST} deep");
            return Err(Error::file(self.path, problem));
        }
        let kind = self.kind(what)?;
        let len = self.count(kind.least_bytes(), what)?;
        let start = self.at;
        match kind {
            Kind::Text => {
                for _ in 0..len {
                    self.text(what)?;
                }
            }
            Kind::List => {
                for _ in 0..len {
                    self.list(what, depth + 1)?;
                }
            }
            fixed => {
                self.take((len * fixed.least_bytes()) as u64, what)?;
            }
        }
        Ok(List {
            kind,
            len,
            bytes: start..self.at,
        })
    }
}
