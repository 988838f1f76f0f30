//! The layout of `torch.save` before version 1.6: five pickles one after the other, then the raw storages.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::globals::Scope;
use super::pickle::{self, Pickled};
use super::value::{Value, quote};

/// 0x1950a86a20f9469cfc6c, the least byte first.
const MAGIC: &[u8] = &[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const PROTOCOL: i64 = 1001;
/// Bytes of the three small pickles at most.
const SMALL: usize = 4096;

/// A legacy file taken apart.
pub struct Legacy<'a> {
    pub pickled: Pickled<'a>,
    /// Where the bytes of each storage lie.
    pub places: BTreeMap<Rc<str>, Range<usize>>,
}

/// Reads the pickles and walks over the storages.
///
/// # Errors
/// One clause that says which part is not what it must be.
pub fn read(data: &[u8]) -> Result<Legacy<'_>, String> {
    let mut at = 0;
    let mut small = || {
        let window = &data[at..data.len().min(at + SMALL)];
        let read = pickle::read(window, Scope::Plain)?;
        at += read.n_bytes;
        Ok::<_, String>(read)
    };
    let is_magic = matches!(small(), Ok(Pickled { root: Value::Big(bytes), .. }) if bytes == MAGIC);
    if !is_magic {
        return Err(
            "is no PyTorch file: expected a zip archive or the magic number of torch.save"
                .to_owned(),
        );
    }
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
    let pickled = pickle::read(&data[at..], Scope::Tensors)?;
    at += pickled.n_bytes;
    let keys = pickle::read(&data[at..], Scope::Plain).map_err(|e| format!("storage keys: {e}"))?;
    at += keys.n_bytes;
    let places = places(data, at, &pickled, &keys)?;
    Ok(Legacy { pickled, places })
}

fn places(
    data: &[u8],
    mut at: usize,
    pickled: &Pickled<'_>,
    keys: &Pickled<'_>,
) -> Result<BTreeMap<Rc<str>, Range<usize>>, String> {
    let mut size_of: BTreeMap<&str, usize> = BTreeMap::new();
    for storage in &pickled.heap.storages {
        let size = storage.dtype.size();
        if *size_of.entry(&storage.key).or_insert(size) != size {
            let key = quote(&storage.key);
            return Err(format!("storage {key} is described with two element sizes"));
        }
    }
    let Some(listed) = keys.heap.items(&keys.root) else {
        let kind = keys.root.kind();
        return Err(format!("expected a list of storage keys, found {kind}"));
    };
    let mut places = BTreeMap::new();
    for key in listed {
        let Value::Text(key) = key else {
            return Err(format!(
                "expected storage keys as text, found {}",
                key.kind()
            ));
        };
        let Some(&size) = size_of.get(key.as_ref()) else {
            let key = quote(key);
            return Err(format!(
                "storage {key} is listed, but no tensor describes it"
            ));
        };
        let Some(count) = data[at..].first_chunk::<8>() else {
            let key = quote(key);
            return Err(format!("truncated: the size of storage {key} is missing"));
        };
        at += count.len();
        let n = u64::from_le_bytes(*count);
        let end = usize::try_from(n)
            .ok()
            .and_then(|n| n.checked_mul(size)?.checked_add(at))
            .filter(|end| *end <= data.len());
        let Some(end) = end else {
            return Err(format!(
                "truncated: storage {} claims {n} elements of {size} bytes, {} bytes are left",
                quote(key),
                data.len() - at
            ));
        };
        if places.insert(key.clone(), at..end).is_some() {
            return Err(format!("storage {} is listed twice", quote(key)));
        }
        at = end;
    }
    if at != data.len() {
        let n = data.len() - at;
        return Err(format!("lengthened: {n} bytes after the last storage"));
    }
    Ok(places)
}
