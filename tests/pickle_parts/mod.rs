//! Pickles and zip archives put together byte by byte, right and wrong.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::path::PathBuf;

use attnscope::checkpoint::pytorch::{self, StateDict};
use tempfile::TempDir;

/// One entry of an archive, with what its headers claim.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    pub data: Vec<u8>,
    pub method: u16,
    pub flags: u16,
    pub claimed: u32,
    /// Instead of where it is.
    pub offset: Option<u32>,
    /// Sizes and offset in the extra field.
    pub is_zip64: bool,
}

impl Entry {
    pub fn stored(name: &str, data: &[u8]) -> Self {
        Self {
            name: format!("archive/{name}"),
            data: data.to_vec(),
            method: 0,
            flags: 0,
            claimed: data.len() as u32,
            offset: None,
            is_zip64: false,
        }
    }
}

/// How an archive ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    Classic,
    Zip64,
}

fn le16(n: usize) -> [u8; 2] {
    (n as u16).to_le_bytes()
}

/// An archive of some entries; the checksums are left at zero.
pub fn archive(entries: &[Entry], end: End) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let at = bytes.len() as u32;
        let n = entry.data.len() as u32;
        bytes.extend(b"PK\x03\x04\x14\0");
        bytes.extend(entry.flags.to_le_bytes());
        bytes.extend(entry.method.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(n.to_le_bytes());
        bytes.extend(entry.claimed.to_le_bytes());
        bytes.extend(le16(entry.name.len()));
        bytes.extend(le16(4));
        bytes.extend(entry.name.as_bytes());
        bytes.extend(b"FB\0\0");
        bytes.extend(&entry.data);

        let offset = entry.offset.unwrap_or(at);
        let mut extra = Vec::new();
        let (mut sizes, mut place) = ([n, entry.claimed], offset);
        if entry.is_zip64 {
            // Another field comes first; then inflated, stored, offset.
            extra.extend(b"FB\x01\0.\x01\0");
            extra.extend(le16(24));
            for wide in [entry.claimed, n, offset] {
                extra.extend(u64::from(wide).to_le_bytes());
            }
            (sizes, place) = ([u32::MAX; 2], u32::MAX);
        }
        directory.extend(b"PK\x01\x02\x14\0\x14\0");
        directory.extend(entry.flags.to_le_bytes());
        directory.extend(entry.method.to_le_bytes());
        directory.extend([0; 8]);
        directory.extend(sizes[0].to_le_bytes());
        directory.extend(sizes[1].to_le_bytes());
        directory.extend(le16(entry.name.len()));
        directory.extend(le16(extra.len()));
        directory.extend([0; 10]);
        directory.extend(place.to_le_bytes());
        directory.extend(entry.name.as_bytes());
        directory.extend(extra);
    }
    let (start, n_bytes, n) = (bytes.len(), directory.len(), entries.len());
    bytes.extend(directory);
    if end == End::Zip64 {
        let at = bytes.len() as u64;
        bytes.extend(b"PK\x06\x06");
        bytes.extend(44u64.to_le_bytes());
        bytes.extend([0; 12]);
        for wide in [n, n, n_bytes, start] {
            bytes.extend((wide as u64).to_le_bytes());
        }
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend(at.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
    }
    let is_wide = end == End::Zip64;
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    for _ in 0..2 {
        bytes.extend(le16(if is_wide { 0xffff } else { n }));
    }
    for n in [n_bytes, start] {
        let n = if is_wide { u32::MAX } else { n as u32 };
        bytes.extend(n.to_le_bytes());
    }
    bytes.extend([0; 2]);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = b"X".to_vec();
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

fn numbers(numbers: &[i64]) -> Vec<u8> {
    let mut bytes = b"(".to_vec();
    for n in numbers {
        bytes.extend(b"\x8a\x08");
        bytes.extend(n.to_le_bytes());
    }
    bytes.push(b't');
    bytes
}

/// A tensor as torch.save describes it, of a storage of `n` elements.
pub fn tensor(class: &str, n: i64, offset: i64, shape: &[i64], strides: &[i64]) -> Vec<u8> {
    let class = format!("ctorch\n{class}\n");
    [
        b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
        text("storage"),
        class.into_bytes(),
        text("0"),
        text("cpu"),
        numbers(&[n])[1..11].to_vec(),
        b"tQ".to_vec(),
        numbers(&[offset])[1..11].to_vec(),
        numbers(shape),
        numbers(strides),
        b"\x89NtR".to_vec(),
    ]
    .concat()
}

/// A tensor of the last two elements of a storage of three: parts were written by early versions.
pub fn tensor_of_a_part(offset: i64, n: i64) -> Vec<u8> {
    let whole = tensor("FloatStorage", 3, 0, &[2], &[1]);
    let at = whole
        .windows(2)
        .position(|w| w == b"tQ")
        .expect("a storage");
    let part = [b"(", &text("0/part")[..], &numbers(&[offset, n])[1..]].concat();
    [&whole[..at], &part, &whole[at..]].concat()
}

/// A state dict of one tensor called `w`.
pub fn state_dict(tensor: &[u8]) -> Vec<u8> {
    [b"\x80\x02}", &text("w")[..], tensor, b"s."].concat()
}

/// A healthy state dict: three f32 numbers.
pub fn healthy() -> Vec<u8> {
    state_dict(&tensor("FloatStorage", 3, 0, &[3], &[1]))
}

/// An archive of a pickle and a storage of three f32 numbers.
pub fn entries(pickle: &[u8]) -> Vec<Entry> {
    let data: Vec<u8> = [1.0f32, 2.0, 3.0]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    vec![
        Entry::stored("data.pkl", pickle),
        Entry::stored("byteorder", b"little"),
        Entry::stored("data/0", &data),
    ]
}

/// A file in a directory of its own.
pub struct Written {
    _directory: TempDir,
    pub path: PathBuf,
}

pub fn written(bytes: &[u8]) -> Written {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("weights.pt");
    std::fs::write(&path, bytes).expect("writes");
    Written {
        _directory: directory,
        path,
    }
}

pub fn open(bytes: &[u8]) -> attnscope::error::Result<StateDict> {
    pytorch::open_file(&written(bytes).path)
}

/// What is said about bytes that must be refused, in one line that names the file.
pub fn refused(bytes: &[u8]) -> String {
    let said = open(bytes).expect_err("refused").to_string();
    assert!(said.contains("weights.pt: "), "{said}");
    assert!(!said.contains('\n') && said.len() < 600, "{said}");
    said
}

/// What is said about a pickle in a healthy archive.
pub fn refused_pickle(pickle: &[u8]) -> String {
    refused(&archive(&entries(pickle), End::Classic))
}
