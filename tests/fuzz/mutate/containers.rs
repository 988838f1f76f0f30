//! Mutations inside containers: a header or a member is changed, and the lengths around it are set right again.

use std::io::{Cursor, Read as _, Write as _};

use fastrand::Rng;
use serde_json::Value;
use testing::checkpoint_copy::put_together;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::bytes::{self, hostile};
use super::{json, of_kind, one_of};
use crate::seeds::Kind;

/// Element types that a header may name.
const DTYPES: &[&str] = &[
    "F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "U64", "I32", "U32", "I16", "U16",
    "I8", "U8", "BOOL", "F4", "E8M0",
];

/// Mutates the header of a safetensors file, or its data; false where it is none.
pub fn safetensors(rng: &mut Rng, file: &mut Vec<u8>, tokens: &[&str]) -> bool {
    let Some(length) = file.first_chunk::<8>() else {
        return false;
    };
    let n = u64::from_le_bytes(*length) as usize;
    let Some(header) = file.get(8..n.saturating_add(8)) else {
        return false;
    };
    let Ok(mut header) = serde_json::from_slice::<Value>(header) else {
        return false;
    };
    let mut data = file[8 + n..].to_vec();
    match rng.u8(..6) {
        0 => {
            let other = data.clone();
            bytes::mutate(rng, &mut data, &other, &[]);
            data.resize(file.len() - 8 - n, 0);
        }
        1 | 2 => json::mutate(rng, &mut header, tokens),
        _ => {
            for _ in 0..1 + rng.usize(..3) {
                tensor(rng, &mut header, tokens, data.len());
            }
        }
    }
    *file = put_together(&header, &data);
    true
}

/// Changes an entry of a header so that it still fits its bytes, as far as that goes.
fn tensor(rng: &mut Rng, header: &mut Value, tokens: &[&str], n_data: usize) {
    let Some(entries) = header.as_object_mut() else {
        return;
    };
    let Some(name) = entries
        .keys()
        .nth(rng.usize(..entries.len().max(1)))
        .cloned()
    else {
        return;
    };
    let shape: Vec<u64> = entries[&name]["shape"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    match rng.u8(..9) {
        0 => drop(entries.remove(&name)),
        1 if !tokens.is_empty() => {
            let info = entries.remove(&name).unwrap_or_default();
            entries.insert((*one_of(rng, tokens)).to_owned(), info);
        }
        2 => {
            // The number of a layer, of an expert, or what else.
            let info = entries[&name].clone();
            let digit = char::from(b'0' + rng.u8(..10));
            let new = name.replace(|c: char| c.is_ascii_digit(), &digit.to_string());
            entries.insert(new, info);
        }
        3 => entries[&name]["dtype"] = Value::from(*one_of(rng, DTYPES)),
        4 => {
            let mut with_ones = shape.clone();
            with_ones.insert(rng.usize(..=shape.len()), 1);
            entries[&name]["shape"] = with_ones.into();
        }
        5 => {
            let mut turned = shape.clone();
            turned.reverse();
            entries[&name]["shape"] = turned.into();
        }
        6 => {
            let whole: u64 = shape.iter().fold(1, |n, axis| n.wrapping_mul(*axis));
            entries[&name]["shape"] =
                one_of(rng, &[vec![whole], vec![2, whole / 2], vec![1, 1, whole]])
                    .clone()
                    .into();
        }
        7 => {
            // Nothing at all, beside axes that could be anything.
            let mut empty = vec![hostile(rng); rng.usize(..5)];
            empty.push(0);
            let at = rng.usize(..=n_data) as u64;
            entries[&name]["shape"] = empty.into();
            entries[&name]["data_offsets"] = vec![at, at].into();
        }
        _ => {
            let same = format!(
                "{name}{}",
                one_of(
                    rng,
                    &[
                        "_blocks",
                        "_scales",
                        "_scale_inv",
                        "_scale",
                        ".weight",
                        ".bias"
                    ]
                )
            );
            let info = entries.remove(&name).unwrap_or_default();
            entries.insert(same, info);
        }
    }
}

/// Mutates a member of a zip archive; false where it is none.
pub fn zip(rng: &mut Rng, file: &mut Vec<u8>, other: &[u8], tokens: &[&str]) -> bool {
    let Some(mut members) = members(file) else {
        return false;
    };
    if members.is_empty() {
        return false;
    }
    let theirs = self::members(other).unwrap_or_default();
    for _ in 0..1 + rng.usize(..2) {
        if members.is_empty() {
            break;
        }
        let at = rng.usize(..members.len());
        match rng.u8(..16) {
            0 => drop(members.remove(at)),
            1 => {
                let (name, bytes) = members[at].clone();
                members.push((format!("{name}{}", rng.u8(..3)), bytes));
            }
            2 if !theirs.is_empty() => {
                let taken = one_of(rng, &theirs).1.clone();
                members[at].1 = taken;
            }
            3 => members[at].0 = String::from_utf8_lossy(&bytes::token(rng, tokens)).into_owned(),
            _ => {
                // The pickle says what the rest is.
                let is_pickle = |(name, _): &&(String, Vec<u8>)| name.ends_with(".pkl");
                let at = match members.iter().position(|member| is_pickle(&member)) {
                    Some(pickle) if rng.u8(..8) > 0 => pickle,
                    _ => at,
                };
                let (name, bytes) = &mut members[at];
                let kind = match name.rsplit('.').next() {
                    Some("npy") => Kind::Npy,
                    Some("pkl") => Kind::Pickle,
                    _ => Kind::Bytes,
                };
                let other = bytes.clone();
                of_kind(rng, kind, bytes, &other, tokens);
            }
        }
    }
    let is_deflated = rng.u8(..8) == 0;
    match archive(&members, is_deflated) {
        Some(made) => *file = made,
        None => return false,
    }
    true
}

fn members(file: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut archive = ZipArchive::new(Cursor::new(file)).ok()?;
    (0..archive.len())
        .map(|idx| {
            let mut member = archive.by_index(idx).ok()?;
            let mut bytes = Vec::new();
            member.read_to_end(&mut bytes).ok()?;
            let name = member.name().ok()?.to_string();
            Some((name, bytes))
        })
        .collect()
}

/// An archive; nothing where two members would have one name.
pub fn archive(members: &[(String, Vec<u8>)], is_deflated: bool) -> Option<Vec<u8>> {
    let method = if is_deflated {
        CompressionMethod::Deflated
    } else {
        CompressionMethod::Stored
    };
    let options = SimpleFileOptions::default().compression_method(method);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        archive.start_file(name.as_str(), options).ok()?;
        archive.write_all(bytes).ok()?;
    }
    Some(archive.finish().ok()?.into_inner())
}

/// Mutates the header of an array of NumPy's, or its data; false where it is none.
pub fn npy(rng: &mut Rng, file: &mut Vec<u8>, tokens: &[&str]) -> bool {
    let Some((begin, rest)) = file.split_first_chunk::<10>() else {
        return false;
    };
    let n = usize::from(u16::from_le_bytes([begin[8], begin[9]]));
    let Some((header, data)) = rest.split_at_checked(n) else {
        return false;
    };
    let (mut header, mut data) = (header.to_vec(), data.to_vec());
    let other = data.clone();
    match rng.u8(..6) {
        0 => bytes::mutate(rng, &mut data, &other, &[]),
        1 => bytes::mutate(rng, &mut header, &other, tokens),
        _ => {
            let shapes = ["()", "(1,)", "(0, 3)", "(3, 0)", "(1, 1, 3)", "(2L, 3L)"];
            let shape = match rng.u8(..3) {
                0 => (*one_of(rng, &shapes)).to_owned(),
                1 => format!("({}, {})", hostile(rng), hostile(rng)),
                _ => format!("({}, {})", rng.u8(..9), rng.u8(..9)),
            };
            let kinds = [
                "<f4", "<f2", "<f8", ">f4", "<i8", "|u1", "|b1", "<f0", "<c8", "=f4",
            ];
            let order = if rng.bool() { "True" } else { "False" };
            let kind = if rng.bool() {
                "<f4"
            } else {
                one_of(rng, &kinds)
            };
            header =
                format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}\n")
                    .into_bytes();
        }
    }
    let length = u16::try_from(header.len())
        .unwrap_or(u16::MAX)
        .to_le_bytes();
    *file = [&begin[..8], &length, &header, &data].concat();
    true
}

/// Mutates a text that stands behind its length of so many bytes, and sets the length right; false where none is found.
pub fn prefixed(rng: &mut Rng, file: &mut Vec<u8>, tokens: &[&str], widths: &[usize]) -> bool {
    let width = *one_of(rng, widths);
    let from = rng.usize(..file.len().max(1));
    let is_text = |bytes: &[u8]| bytes.iter().all(|b| (b' '..=b'~').contains(b));
    let found = (from..file.len()).take(512).find_map(|at| {
        let length = file.get(at..at + width)?;
        let n = length
            .iter()
            .rev()
            .fold(0usize, |n, b| n << 8 | usize::from(*b));
        let text = file.get(at + width..(at + width).checked_add(n)?)?;
        (n > 0 && n < 200 && is_text(text)).then_some((at, n))
    });
    let Some((at, n)) = found else {
        return false;
    };
    let mut text = file[at + width..at + width + n].to_vec();
    match rng.u8(..3) {
        0 => text = bytes::token(rng, tokens),
        1 => text.clear(),
        _ => {
            let other = text.clone();
            bytes::mutate(rng, &mut text, &other, tokens);
        }
    }
    // What is too long for its length is cut: the rest of the file would be read from the middle of it.
    text.truncate(if width == 1 { 255 } else { 1 << 12 });
    let length = (text.len() as u64).to_le_bytes();
    let new = [&length[..width], &text].concat();
    file.splice(at..at + width + n, new);
    true
}
