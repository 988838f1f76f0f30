//! The layout of `torch.save` before version 1.6: five consecutive pickles, then the raw storages.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::globals::Scope;
use super::modules;
use super::pickle::{self, Pickled};
use super::state_dict::Problem;
use super::value::{Value, quote};
use crate::data_file::DataFile;

/// 0x1950a86a20f9469cfc6c, least significant byte first.
const MAGIC: &[u8] = &[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const PROTOCOL: i64 = 1001;
/// Limit on the bytes of each of the three small pickles.
const SMALL: usize = 4096;

/// The parsed pickles of a legacy file.
pub struct Legacy<'a> {
    pub pickled: Pickled<'a>,
    /// Byte range of each storage, by its key.
    pub places: BTreeMap<Rc<str>, Range<usize>>,
}

/// Bytes of the first read: enough for the pickles of a file of a thousand tensors.
const FIRST_READ: usize = 1 << 20;

/// Reads enough of the beginning of a file to include all of its pickles, if it is a legacy file.
///
/// # Errors
/// When the file cannot be read.
pub fn beginning(file: &DataFile) -> attnscope_compute::error::Result<Cow<'_, [u8]>> {
    let most = file.len().min(5 * pickle::LONGEST);
    let mut n_held = FIRST_READ;
    loop {
        let data = file.read(0..n_held.min(most))?;
        let is_enough = match pickles(&data) {
            Ok(_) => true,
            // If it does not begin as a legacy file, reading more will not help.
            Err(_) => !begins_as_legacy(&data),
        };
        if is_enough || n_held >= most {
            return Ok(data);
        }
        n_held *= 8;
    }
}

fn begins_as_legacy(data: &[u8]) -> bool {
    let window = &data[..data.len().min(SMALL)];
    let read = pickle::read(window, Scope::Plain);
    matches!(read, Ok(Pickled { root: Value::Big(bytes), .. }) if bytes == MAGIC)
}

/// Parses the pickles in `data`, the beginning of a file, and locates the storages behind them.
///
/// # Errors
/// One clause that says which part is invalid, or why the file cannot be read.
pub fn read<'a>(file: &DataFile, data: &'a [u8]) -> Result<Legacy<'a>, Problem> {
    let (pickled, keys, at) = pickles(data)?;
    let places = places(file, at, &pickled, &keys)?;
    Ok(Legacy { pickled, places })
}

/// Parses the pickle of tensors and that of storage keys, and returns where the second one ends.
fn pickles(data: &[u8]) -> Result<(Pickled<'_>, Pickled<'_>, usize), String> {
    let mut at = 0;
    let mut small = || {
        let window = &data[at..data.len().min(at + SMALL)];
        let read = pickle::read(window, Scope::Plain)?;
        at += read.n_bytes;
        Ok::<_, String>(read)
    };
    if !begins_as_legacy(data) {
        return Err(
            "is not a PyTorch file: expected a zip archive or the magic number of torch.save"
                .to_owned(),
        );
    }
    small()?;
    let protocol = small().map_err(|e| format!("protocol number: {e}"))?;
    if protocol.root != Value::Int(PROTOCOL) {
        return Err(format!(
            "expected protocol {PROTOCOL} of torch.save, found {:?}",
            protocol.root
        ));
    }
    let system = small().map_err(|e| format!("system description: {e}"))?;
    match system.heap.entry(&system.root, "little_endian") {
        Some(Value::Bool(true)) => {}
        Some(Value::Bool(false)) => {
            return Err("was saved in big-endian byte order; expected little-endian".to_owned());
        }
        _ => return Err("the system description has no little_endian".to_owned()),
    }
    let pickled = modules::read_weights(&data[at..])?;
    at += pickled.n_bytes;
    let keys = pickle::read(&data[at..], Scope::Plain).map_err(|e| format!("storage keys: {e}"))?;
    at += keys.n_bytes;
    Ok((pickled, keys, at))
}

fn places(
    file: &DataFile,
    mut at: usize,
    pickled: &Pickled<'_>,
    keys: &Pickled<'_>,
) -> Result<BTreeMap<Rc<str>, Range<usize>>, Problem> {
    let mut size_of: BTreeMap<&str, usize> = BTreeMap::new();
    for storage in &pickled.heap.storages {
        let size = storage.dtype.size();
        if *size_of.entry(&storage.key).or_insert(size) != size {
            let key = quote(&storage.key);
            return Err(format!("storage {key} is described with two element sizes").into());
        }
    }
    let Some(listed) = keys.heap.items(&keys.root) else {
        let kind = keys.root.kind();
        return Err(format!("expected a list of storage keys, found {kind}").into());
    };
    let mut places = BTreeMap::new();
    for key in listed {
        let Value::Text(key) = key else {
            return Err(format!("expected storage keys as text, found {}", key.kind()).into());
        };
        let Some(&size) = size_of.get(key.as_ref()) else {
            let key = quote(key);
            return Err(format!("storage {key} is listed, but no tensor describes it").into());
        };
        let stored = file.read(at..at.saturating_add(8))?;
        let Some(count) = stored.first_chunk::<8>() else {
            let key = quote(key);
            return Err(format!("truncated: the size of storage {key} is missing").into());
        };
        at += count.len();
        let n = u64::from_le_bytes(*count);
        let end = usize::try_from(n)
            .ok()
            .and_then(|n| n.checked_mul(size)?.checked_add(at))
            .filter(|end| *end <= file.len());
        let Some(end) = end else {
            return Err(format!(
                "truncated: storage {} claims {n} elements of {size} bytes, {} bytes are left",
                quote(key),
                file.len() - at
            )
            .into());
        };
        if places.insert(key.clone(), at..end).is_some() {
            return Err(format!("storage {} is listed twice", quote(key)).into());
        }
        at = end;
    }
    if at != file.len() {
        let n = file.len() - at;
        return Err(format!("lengthened: {n} bytes after the last storage").into());
    }
    Ok(places)
}
