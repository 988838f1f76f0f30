//! The subset of HDF5 that h5py writes: nested groups, and arrays stored contiguously.
//!
//! Supported: superblock versions 0 and 1, groups with symbol tables, object headers of version 1, contiguous and compact arrays.
//! The specification is "HDF5 File Format Specification Version 3.0". Anything else is refused by name. An object with two links
//! to it is refused too: nothing is read twice, so work is bounded by the size of the file.

use std::collections::BTreeSet;
use std::ops::Range;

use attnscope_compute::error::{Error, Result};

use super::data_file::DataFile;
use super::dtype::Dtype;
use super::shape;

/// Magic bytes of a file.
pub const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Limit on nested groups.
const DEEPEST: usize = 32;
/// Limit on the levels of a group's B-tree.
const DEEPEST_TREE: u8 = 16;
/// Limit on the bytes of a name.
const LONGEST_NAME: usize = 1 << 10;
/// Limit on the bytes of a list of names, and of one part of a header.
const LONGEST_PART: usize = 1 << 24;
/// Limit on the axes of an array; no weight has as many.
const MOST_AXES: usize = 16;
/// Undefined address.
const NOWHERE: u64 = u64::MAX;

/// Types of header messages.
const DATASPACE: u16 = 0x01;
const NEW_GROUP: [u16; 2] = [0x02, 0x06];
const DATATYPE: u16 = 0x03;
const EXTERNAL: u16 = 0x07;
const LAYOUT: u16 = 0x08;
const FILTERS: u16 = 0x0b;
const ATTRIBUTE: u16 = 0x0c;
const CONTINUED: u16 = 0x10;
const SYMBOL_TABLE: u16 = 0x11;

/// Descriptions of the little-endian IEEE 754 floats, without the class.
const FLOATS: [(Dtype, [u8; 19]); 3] = [
    (Dtype::F16, float(2, 15, [10, 5, 0, 10], 15)),
    (Dtype::F32, float(4, 31, [23, 8, 0, 23], 127)),
    (Dtype::F64, float(8, 63, [52, 11, 0, 52], 1023)),
];

/// Encodes the positions of a float's sign, exponent and mantissa.
const fn float(size: u8, sign: u8, places: [u8; 4], bias: u16) -> [u8; 19] {
    let [exponent, n_exponent, mantissa, n_mantissa] = places;
    let [low, high] = bias.to_le_bytes();
    let (n_bits, rest) = (size * 8, [low, high, 0, 0]);
    [
        0x20, sign, 0, size, 0, 0, 0, 0, 0, n_bits, 0, exponent, n_exponent, mantissa, n_mantissa,
        rest[0], rest[1], rest[2], rest[3],
    ]
}

/// An array of a file.
#[derive(Debug)]
pub struct Array {
    /// Names of its groups and its own name, outermost first, separated by slashes.
    pub path: String,
    /// Length of the part of `path` up to and including the slash after the innermost group that lists weight names; 0 if none
    /// does.
    pub listed: usize,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Range<usize>,
}

/// Lists the arrays of a file, sorted by name.
///
/// `marks` is the prefix of the attribute in which a group lists weight names.
///
/// # Errors
/// When the file is not HDF5, is truncated or damaged, or uses unsupported features.
pub fn arrays(file: &DataFile, marks: &str) -> Result<Vec<Array>> {
    let mut walk = Walk {
        file,
        marks,
        seen: BTreeSet::new(),
        n_left: file.len().saturating_mul(4).saturating_add(1 << 16),
        found: Vec::new(),
    };
    let root = walk.superblock()?;
    let mut path = String::new();
    walk.object(root, &mut path, 0, 0)?;
    Ok(walk.found)
}

struct Walk<'a> {
    file: &'a DataFile,
    marks: &'a str,
    /// Offsets of the groups, arrays and nodes that were read.
    seen: BTreeSet<usize>,
    /// Number of bytes that may still be read or kept.
    n_left: usize,
    found: Vec<Array>,
}

/// A header message, and the offset of its content in the file.
struct Message {
    kind: u16,
    flags: u8,
    at: usize,
    content: Vec<u8>,
}

impl Walk<'_> {
    fn refused(&self, problem: impl Into<String>) -> Error {
        Error::file(self.file.path(), problem.into())
    }

    /// Reads bytes of the file.
    fn read(&mut self, at: usize, n: usize) -> Result<Vec<u8>> {
        let end = at.checked_add(n).filter(|end| *end <= self.file.len());
        let Some(end) = end else {
            let problem = format!(
                "truncated or damaged: {n} bytes at {at} are needed, the file holds {}",
                self.file.len()
            );
            return Err(self.refused(problem));
        };
        self.take(n)?;
        Ok(self.file.read(at..end)?.into_owned())
    }

    /// Counts `n` bytes against the limit.
    fn take(&mut self, n: usize) -> Result<()> {
        let n_left = self.n_left.checked_sub(n);
        self.n_left = n_left.ok_or_else(|| self.refused("damaged: its parts overlap"))?;
        Ok(())
    }

    /// Reads a part of the file; a second reference to it is an error.
    fn read_once(&mut self, at: usize, n: usize, what: &str) -> Result<Vec<u8>> {
        if !self.seen.insert(at) {
            return Err(self.refused(format!("damaged: two names lead to {what} at byte {at}")));
        }
        self.read(at, n)
    }

    /// Returns the offset of the root group's header.
    fn superblock(&mut self) -> Result<usize> {
        let n_beginning = 96;
        let beginning = self.file.read(0..n_beginning)?.into_owned();
        if !beginning.starts_with(SIGNATURE) {
            return Err(self.refused("is not an HDF5 file; expected weights of TensorFlow"));
        }
        let version = beginning.get(8).copied().unwrap_or_default();
        if version > 1 {
            let problem = format!(
                "superblock {version} of HDF5 is not read, which h5py writes with libver=\"latest\"; h5repack --low=0 --high=0 \
                 writes the file in the form that is read"
            );
            return Err(self.refused(problem));
        }
        if beginning.len() < n_beginning {
            return Err(self.refused("truncated: ends within the superblock of HDF5"));
        }
        if beginning[13..15] != [8, 8] {
            return Err(self.refused("addresses and lengths of other than 8 bytes are not read"));
        }
        // Version 1 has four more bytes.
        let start = if version == 0 { 24 } else { 28 };
        let [base, _, end, _, _, root] =
            [0, 1, 2, 3, 4, 5].map(|nth| number(&beginning, start + nth * 8, 8));
        if base != 0 {
            return Err(self.refused("HDF5 that does not begin at byte 0 is not read"));
        }
        if end > self.file.len() as u64 {
            let problem = format!(
                "truncated: {end} bytes are needed, the file holds {}; download or copy it again",
                self.file.len()
            );
            return Err(self.refused(problem));
        }
        self.address(root)
    }

    fn address(&self, address: u64) -> Result<usize> {
        let at = usize::try_from(address).ok();
        at.filter(|at| *at < self.file.len())
            .ok_or_else(|| self.refused(format!("damaged: nothing is at byte {address}")))
    }

    /// Reads an array, or a group with everything in it.
    fn object(&mut self, at: usize, path: &mut String, listed: usize, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return Err(self.refused(format!("more than {DEEPEST} groups inside each other")));
        }
        let messages = self.header(at)?;
        let of_kind = |kind: u16| messages.iter().find(|message| message.kind == kind);
        let Some(table) = of_kind(SYMBOL_TABLE) else {
            if messages
                .iter()
                .any(|message| NEW_GROUP.contains(&message.kind))
            {
                let problem = format!(
                    "group {path:?} is of a form that is not read; h5repack --low=0 --high=0 writes the older one"
                );
                return Err(self.refused(problem));
            }
            return self.array(&messages, path, listed);
        };
        if depth > 0 {
            path.push('/');
        }
        let lists_weights = messages
            .iter()
            .filter(|message| message.kind == ATTRIBUTE)
            .any(|message| name_of_attribute(&message.content).starts_with(self.marks.as_bytes()));
        let listed = if lists_weights { path.len() } else { listed };
        let [tree, heap] = [0, 8].map(|from| number(&table.content, from, 8));
        let (tree, heap) = (self.address(tree)?, self.address(heap)?);
        let names = self.heap(heap)?;
        let mut members = Vec::new();
        self.tree(tree, DEEPEST_TREE, &mut members)?;
        for (name_at, header) in members {
            let name = self.name(&names, name_at)?;
            let n_before = path.len();
            path.push_str(&name);
            self.take(path.len())?;
            let header = self.address(header)?;
            self.object(header, path, listed, depth + 1)?;
            path.truncate(n_before);
        }
        Ok(())
    }

    fn header(&mut self, at: usize) -> Result<Vec<Message>> {
        if !self.seen.insert(at) {
            return Err(self.refused(format!(
                "damaged: two names lead to the object at byte {at}"
            )));
        }
        self.messages(at)
    }

    /// Reads the messages of a header, in all of its parts.
    fn messages(&mut self, at: usize) -> Result<Vec<Message>> {
        let beginning = self.read(at, 16)?;
        if beginning.starts_with(b"OHDR") {
            let problem = "object headers of version 2 are not read, which h5py writes with libver=\"latest\"; h5repack --low=0 \
                           --high=0 writes the file in the form that is read";
            return Err(self.refused(problem));
        }
        if beginning[0] != 1 {
            return Err(self.refused(format!("damaged: no object header is at byte {at}")));
        }
        let n_messages = number(&beginning, 2, 2) as usize;
        let first = at + 16..at + 16 + number(&beginning, 8, 4) as usize;
        let mut parts = Vec::from([first]);
        let mut found = Vec::new();
        let mut nth_part = 0;
        while let Some(part) = parts.get(nth_part).cloned() {
            nth_part += 1;
            if part.len() > LONGEST_PART {
                return Err(self.refused(format!("damaged: a header of {} bytes", part.len())));
            }
            let bytes = self.read(part.start, part.len())?;
            let mut from = 0;
            while from + 8 <= bytes.len() && found.len() < n_messages {
                let (kind, n) = (
                    number(&bytes, from, 2) as u16,
                    number(&bytes, from + 2, 2) as usize,
                );
                let flags = bytes[from + 4];
                let content = bytes.get(from + 8..from + 8 + n).ok_or_else(|| {
                    self.refused(format!(
                        "damaged: the header at byte {at} ends within a message"
                    ))
                })?;
                if kind == CONTINUED {
                    let start = self.address(number(content, 0, 8))?;
                    let n_next = usize::try_from(number(content, 8, 8)).unwrap_or(usize::MAX);
                    parts.push(start..start.saturating_add(n_next));
                }
                found.push(Message {
                    kind,
                    flags,
                    at: part.start + from + 8,
                    content: content.to_vec(),
                });
                from += 8 + n;
            }
        }
        Ok(found)
    }

    /// Reads the local heap with a group's names.
    fn heap(&mut self, at: usize) -> Result<Vec<u8>> {
        let heap = self.read_once(at, 32, "names")?;
        if !heap.starts_with(b"HEAP") {
            return Err(self.refused(format!("damaged: no names are at byte {at}")));
        }
        let n = usize::try_from(number(&heap, 8, 8)).unwrap_or(usize::MAX);
        if n > LONGEST_PART {
            return Err(self.refused(format!("damaged: {n} bytes of names")));
        }
        let at = self.address(number(&heap, 24, 8))?;
        self.read(at, n)
    }

    fn name(&self, names: &[u8], at: u64) -> Result<String> {
        let rest = usize::try_from(at).ok().and_then(|at| names.get(at..));
        let rest = rest.unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0);
        let name = end.filter(|n| (1..=LONGEST_NAME).contains(n));
        let name = name.and_then(|n| std::str::from_utf8(&rest[..n]).ok());
        match name {
            Some(name) => Ok(name.to_owned()),
            None => Err(self.refused("damaged: a name that is no text")),
        }
    }

    /// Collects the offsets of names and headers, sorted by name.
    fn tree(&mut self, at: usize, most: u8, members: &mut Vec<(u64, u64)>) -> Result<()> {
        let node = self.read_once(at, 24, "a list of members")?;
        let level = node[5];
        if !node.starts_with(b"TREE\0") || level > most {
            return Err(self.refused(format!("damaged: no list of members is at byte {at}")));
        }
        let n = number(&node, 6, 2) as usize;
        let entries = self.read(at + 24, n * 16 + 8)?;
        for nth in 0..n {
            let child = self.address(number(&entries, nth * 16 + 8, 8))?;
            if level > 0 {
                self.tree(child, level - 1, members)?;
                continue;
            }
            let table = self.read_once(child, 8, "members")?;
            if !table.starts_with(b"SNOD\x01") {
                return Err(self.refused(format!("damaged: no members are at byte {child}")));
            }
            let n_symbols = number(&table, 6, 2) as usize;
            let symbols = self.read(child + 8, n_symbols * 40)?;
            for symbol in symbols.chunks_exact(40) {
                // Cache type 2 is a symbolic link.
                if number(symbol, 16, 4) == 2 {
                    return Err(self.refused("holds a symbolic link, which is not read"));
                }
                members.push((number(symbol, 0, 8), number(symbol, 8, 8)));
            }
        }
        Ok(())
    }

    fn array(&mut self, messages: &[Message], path: &str, listed: usize) -> Result<()> {
        let refused = |problem: String| Error::tensor(self.file.path(), path, problem);
        let of_kind = |kind: u16, what: &str| {
            let message = messages.iter().find(|message| message.kind == kind);
            let message = message.ok_or_else(|| refused(format!("has no {what}")))?;
            // A shared message is stored elsewhere.
            if message.flags & 2 != 0 {
                return Err(refused(format!(
                    "shares its {what} with others, which is not read"
                )));
            }
            Ok(message)
        };
        if messages.iter().any(|message| message.kind == EXTERNAL) {
            return Err(refused(
                "lies in another file, which is not read".to_owned(),
            ));
        }
        let layout = of_kind(LAYOUT, "layout")?;
        let is_chunked = layout.content.get(1) == Some(&2);
        if is_chunked || messages.iter().any(|message| message.kind == FILTERS) {
            let problem = "is stored in pieces or compressed, which is not read; h5repack -l CONTI -f NONE writes it as a whole";
            return Err(refused(problem.to_owned()));
        }
        let shape = shape_of(&of_kind(DATASPACE, "shape")?.content).map_err(refused)?;
        let dtype = dtype_of(&of_kind(DATATYPE, "element type")?.content).map_err(refused)?;
        let n_bytes = shape::n_elements(&shape).and_then(|n| n.checked_mul(dtype.size()));
        let n_bytes = n_bytes.ok_or_else(|| {
            refused(format!(
                "shape {shape:?} has more elements than can be counted"
            ))
        })?;
        let (start, n_held) = match layout.content[..] {
            [3 | 4, 0, low, high, ..] => {
                let n = u64::from(u16::from_le_bytes([low, high]));
                ((layout.at + 4) as u64, n)
            }
            [3 | 4, 1, ..] => (
                number(&layout.content, 2, 8),
                number(&layout.content, 10, 8),
            ),
            _ => {
                let version = layout.content.first().copied().unwrap_or_default();
                return Err(refused(format!("layout of version {version} is not read")));
            }
        };
        let start = match (start, n_bytes) {
            (NOWHERE, 0) => 0,
            (NOWHERE, _) => return Err(refused("was never written".to_owned())),
            (start, _) => usize::try_from(start).unwrap_or(usize::MAX),
        };
        let end = start
            .checked_add(n_bytes)
            .filter(|end| *end <= self.file.len());
        let Some(end) = end.filter(|_| n_held >= n_bytes as u64) else {
            let problem = format!(
                "truncated or damaged: shape {shape:?} of {dtype} at byte {start} needs {n_bytes} bytes"
            );
            return Err(refused(problem));
        };
        self.found.push(Array {
            path: path.to_owned(),
            listed,
            dtype,
            shape,
            bytes: start..end,
        });
        Ok(())
    }
}

fn shape_of(dataspace: &[u8]) -> std::result::Result<Vec<usize>, String> {
    let (start, is_none) = match dataspace {
        [1, ..] => (8, false),
        [2, _, _, kind, ..] => (4, *kind == 2),
        _ => return Err("damaged: its shape cannot be read".to_owned()),
    };
    let n_axes = usize::from(dataspace[1]);
    if is_none || n_axes > MOST_AXES || dataspace.len() < start + n_axes * 8 {
        return Err(format!("a shape of {n_axes} axes cannot be read"));
    }
    let axis = |nth: usize| usize::try_from(number(dataspace, start + nth * 8, 8)).ok();
    let axes: Option<Vec<usize>> = (0..n_axes).map(axis).collect();
    axes.ok_or_else(|| "damaged: an axis beyond reason".to_owned())
}

fn dtype_of(datatype: &[u8]) -> std::result::Result<Dtype, String> {
    let class = datatype.first().map(|byte| byte & 0x0f);
    let size = number(datatype, 4, 4);
    let is_little = datatype.get(1).is_some_and(|bits| bits & 1 == 0);
    let is_signed = datatype.get(1).is_some_and(|bits| bits & 8 != 0);
    let known = match (class, size) {
        (Some(1), _) => {
            let described = datatype.get(1..20);
            let mut floats = FLOATS.iter();
            floats
                .find(|(_, float)| described == Some(float.as_slice()))
                .map(|(dtype, _)| *dtype)
        }
        (Some(0), 1 | 2 | 4 | 8) if is_little => Some(match (size, is_signed) {
            (1, true) => Dtype::Other("i8", 1),
            (1, false) => Dtype::Other("u8", 1),
            (2, true) => Dtype::Other("i16", 2),
            (2, false) => Dtype::Other("u16", 2),
            (4, true) => Dtype::Other("i32", 4),
            (4, false) => Dtype::Other("u32", 4),
            (_, true) => Dtype::Other("i64", 8),
            (_, false) => Dtype::Other("u64", 8),
        }),
        _ => None,
    };
    known.ok_or_else(|| {
        let class = class.unwrap_or(u8::MAX);
        format!(
            "elements of class {class} and {size} bytes are not read; expected little-endian floats or whole numbers"
        )
    })
}

/// Extracts the name of an attribute.
fn name_of_attribute(content: &[u8]) -> &[u8] {
    let start = match content.first() {
        Some(1 | 2) => 8,
        Some(3) => 9,
        _ => return &[],
    };
    let end = start + number(content, 2, 2) as usize;
    content.get(start..end.min(content.len())).unwrap_or(&[])
}

/// Reads a little-endian integer of `n` bytes; missing bytes count as 0.
fn number(bytes: &[u8], at: usize, n: usize) -> u64 {
    let mut own = [0; 8];
    for (to, from) in own.iter_mut().zip(bytes.iter().skip(at).take(n)) {
        *to = *from;
    }
    u64::from_le_bytes(own)
}
