//! The header of a GGUF file: metadata and tensor descriptions, checked against the file before they are used.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use super::element_types;
use super::value::{Cursor, Value};
use crate::data_file::DataFile;
use crate::dtype::Dtype;

pub(super) const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const ALIGNMENT: &str = "general.alignment";
/// The format's own limit on the length of a key.
const LONGEST_KEY: usize = 65_535;
/// ggml's limit on the dimensions of a tensor.
const MOST_DIMS: u32 = 4;
/// Smallest metadata entry: key length, key of one byte, kind, value of one byte.
const LEAST_ENTRY: usize = 14;
/// Smallest tensor description: name length, name of one byte, number of dimensions, one dimension, type, offset.
const LEAST_TENSOR: usize = 33;

/// The part of a file before the weights.
#[derive(Debug)]
pub(super) struct Header {
    pub entries: BTreeMap<String, Value>,
    /// In the order of the file.
    pub tensors: Vec<StoredTensor>,
}

/// A tensor as the file describes it.
#[derive(Debug)]
pub(super) struct StoredTensor {
    pub name: String,
    pub dtype: Dtype,
    /// Outermost dimension first; the file has the reverse order.
    pub shape: Vec<usize>,
    /// Byte range in the file.
    pub bytes: Range<usize>,
}

/// Bytes of the first read: more than most headers without a vocabulary.
const FIRST_READ: usize = 1 << 20;
/// Limit on the bytes before the weights; a vocabulary of 260 000 words has some 20 million.
const LONGEST_HEADER: usize = 1 << 28;

/// Reads and checks a file's header; also returns the bytes it was read from, since texts and lists are positions in them.
///
/// # Errors
/// When it is not a GGUF file of version 2 or 3, or its header does not describe its bytes.
pub(super) fn read(file: &DataFile) -> Result<(Header, Arc<[u8]>)> {
    let (path, n_bytes) = (file.path(), file.len());
    let mut n_held = FIRST_READ;
    loop {
        let data = file.read(0..n_held)?;
        let mut cursor = Cursor::new(path, &data, n_bytes, MAGIC.len());
        match parse(path, &data, &mut cursor) {
            Ok(header) => return Ok((header, Arc::from(&data[..cursor.at()]))),
            Err(_) if cursor.ran_out() && n_held < LONGEST_HEADER => n_held *= 4,
            Err(_) if cursor.ran_out() => {
                let problem = format!("expected at most {LONGEST_HEADER} bytes before the weights");
                return Err(Error::file(path, problem));
            }
            Err(refused) => return Err(refused),
        }
    }
}

fn parse(path: &Path, data: &[u8], cursor: &mut Cursor<'_>) -> Result<Header> {
    if data.get(..4) != Some(MAGIC) {
        return Err(Error::file(
            path,
            "is not a GGUF file: expected GGUF in its first four bytes",
        ));
    }
    let version = cursor.u32("the version")?;
    if ![2, 3].contains(&version) {
        let swapped = version.swap_bytes();
        let problem = match swapped {
            2 | 3 => {
                format!("expected GGUF version 2 or 3, found {swapped} for big-endian machines")
            }
            _ => format!("expected GGUF version 2 or 3, found {version}"),
        };
        return Err(Error::file(path, problem));
    }
    let n_tensors = cursor.count(LEAST_TENSOR, "the number of tensors")?;
    let n_entries = cursor.count(LEAST_ENTRY, "the number of metadata entries")?;
    let mut entries = BTreeMap::new();
    for entry_idx in 0..n_entries {
        let (key, value) = entry(cursor, path, data, entry_idx)?;
        if entries.contains_key(&key) {
            return Err(Error::config(path, key, "stands twice in the metadata"));
        }
        entries.insert(key, value);
    }
    let alignment = alignment(path, &entries)?;
    let mut described = Vec::new();
    for tensor_idx in 0..n_tensors {
        described.push(description(cursor, path, data, tensor_idx)?);
    }
    let n_bytes = cursor.at() + cursor.n_left();
    let start = cursor
        .at()
        .checked_next_multiple_of(alignment)
        .unwrap_or(usize::MAX);
    let mut tensors = Vec::with_capacity(described.len());
    for tensor in described {
        tensors.push(tensor.place(path, n_bytes, start, alignment)?);
    }
    check_apart(path, &tensors)?;
    Ok(Header { entries, tensors })
}

fn entry(
    cursor: &mut Cursor<'_>,
    path: &Path,
    data: &[u8],
    entry_idx: usize,
) -> Result<(String, Value)> {
    let what = format!("the key of metadata entry {entry_idx}");
    let place = cursor.text(&what)?;
    let key = match std::str::from_utf8(&data[place]) {
        Ok(key) if (1..=LONGEST_KEY).contains(&key.len()) => key,
        Ok(key) => {
            let problem = format!(
                "{what}: expected 1 to {LONGEST_KEY} bytes, found {}",
                key.len()
            );
            return Err(Error::file(path, problem));
        }
        Err(_) => return Err(Error::file(path, format!("{what} is not text"))),
    };
    let kind = cursor.kind(key)?;
    let value = cursor.value(kind, key)?;
    Ok((key.to_owned(), value))
}

fn alignment(path: &Path, entries: &BTreeMap<String, Value>) -> Result<usize> {
    let stored = match entries.get(ALIGNMENT) {
        None => DEFAULT_ALIGNMENT,
        Some(Value::Unsigned(stored)) => *stored,
        Some(other) => {
            let problem = format!("expected a whole number, found {other:?}");
            return Err(Error::config(path, ALIGNMENT, problem));
        }
    };
    match usize::try_from(stored) {
        Ok(alignment) if alignment.is_power_of_two() => Ok(alignment),
        _ => {
            let problem = format!("expected a power of two, found {stored}");
            Err(Error::config(path, ALIGNMENT, problem))
        }
    }
}

/// A tensor whose position is not checked yet.
struct Description {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    n_bytes: usize,
    offset: u64,
}

fn description(
    cursor: &mut Cursor<'_>,
    path: &Path,
    data: &[u8],
    tensor_idx: usize,
) -> Result<Description> {
    let what = format!("the name of tensor {tensor_idx}");
    let name = std::str::from_utf8(&data[cursor.text(&what)?])
        .ok()
        .filter(|name| !name.is_empty())
        .ok_or_else(|| Error::file(path, format!("{what} is not text")))?;
    let refused = |problem: String| Error::tensor(path, name, problem);
    let n_dims = cursor.u32(name)?;
    if !(1..=MOST_DIMS).contains(&n_dims) {
        let problem = format!("expected 1 to {MOST_DIMS} dimensions, found {n_dims}");
        return Err(refused(problem));
    }
    let mut shape = Vec::new();
    for _ in 0..n_dims {
        let stored = cursor.u64(name)?;
        let size = usize::try_from(stored).ok().filter(|size| *size > 0);
        shape.push(size.ok_or_else(|| {
            refused(format!(
                "expected a dimension of at least 1, found {stored}"
            ))
        })?);
    }
    let row = shape[0];
    shape.reverse();
    let number = cursor.u32(name)?;
    let dtype = element_types::dtype(number)
        .ok_or_else(|| refused(format!("element type {number} is not known")))?;
    if !row.is_multiple_of(dtype.block_len()) {
        let problem = format!(
            "expected rows of a multiple of {} values for {dtype}, found {row}",
            dtype.block_len()
        );
        return Err(refused(problem));
    }
    let n_bytes = shape
        .iter()
        .try_fold(1usize, |product, size| product.checked_mul(*size))
        .and_then(|n| (n / dtype.block_len()).checked_mul(dtype.size()))
        .ok_or_else(|| {
            refused(format!(
                "shape {shape:?} has more elements than can be counted"
            ))
        })?;
    Ok(Description {
        name: name.to_owned(),
        dtype,
        shape,
        n_bytes,
        offset: cursor.u64(name)?,
    })
}

impl Description {
    /// Locates the tensor and checks that it is completely inside the file.
    fn place(
        self,
        path: &Path,
        file_len: usize,
        start: usize,
        alignment: usize,
    ) -> Result<StoredTensor> {
        let Self {
            name,
            dtype,
            shape,
            n_bytes,
            offset,
        } = self;
        if !offset.is_multiple_of(alignment as u64) {
            let problem =
                format!("expected an offset of a multiple of {alignment}, found {offset}");
            return Err(Error::tensor(path, name, problem));
        }
        let first = usize::try_from(offset)
            .ok()
            .and_then(|o| o.checked_add(start));
        let bytes = first.and_then(|first| Some(first..first.checked_add(n_bytes)?));
        match bytes.filter(|bytes| bytes.end <= file_len) {
            Some(bytes) => Ok(StoredTensor {
                name,
                dtype,
                shape,
                bytes,
            }),
            None => {
                let problem = format!(
                    "truncated or damaged: {dtype} of shape {shape:?} needs {n_bytes} bytes at offset {offset} of \
                     the data, which begins at byte {start} of {file_len}"
                );
                Err(Error::tensor(path, name, problem))
            }
        }
    }
}

/// Checks that no byte belongs to two tensors.
fn check_apart(path: &Path, tensors: &[StoredTensor]) -> Result<()> {
    let mut by_place: Vec<&StoredTensor> = tensors.iter().collect();
    by_place.sort_by_key(|tensor| (tensor.bytes.start, tensor.bytes.end));
    for pair in by_place.windows(2) {
        if pair[1].bytes.start < pair[0].bytes.end {
            let problem = format!("its bytes overlap those of {}", pair[0].name);
            return Err(Error::tensor(path, &pair[1].name, problem));
        }
    }
    Ok(())
}
