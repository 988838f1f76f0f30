//! Writes tables and dictionaries byte by byte, as other programs do.

use std::io::{Cursor, Write};
use std::path::Path;

use half::f16;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

pub fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("a file");
}

/// How an array is stored.
pub struct Stored {
    /// `f2`, `f4` or `f8`.
    pub kind: &'static str,
    pub is_fortran: bool,
    pub is_deflated: bool,
}

/// An array of NumPy's version 1.
pub fn npy(stored: &Stored, [n_rows, width]: [usize; 2], values: &[f32]) -> Vec<u8> {
    let places = (0..n_rows * width).map(|at| match stored.is_fortran {
        false => at,
        true => (at % n_rows) * width + at / n_rows,
    });
    let bytes = places.flat_map(|at| match stored.kind {
        "f2" => f16::from_f32(values[at]).to_le_bytes().to_vec(),
        "f4" => values[at].to_le_bytes().to_vec(),
        _ => f64::from(values[at]).to_le_bytes().to_vec(),
    });
    let shape = format!("({n_rows}, {width})");
    let mut array = header(stored.kind, stored.is_fortran, &shape);
    array.extend(bytes);
    array
}

fn header(kind: &str, is_fortran: bool, shape: &str) -> Vec<u8> {
    let order = if is_fortran { "True" } else { "False" };
    let mut text = format!("{{'descr': '<{kind}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let length = u16::try_from(text.len()).expect("a short header");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

pub fn npz(name: &str, stored: &Stored, shape: [usize; 2], values: &[f32]) -> Vec<u8> {
    zipped(&[(name, npy(stored, shape, values))], stored.is_deflated)
}

/// Two arrays, neither of them called `embeddings`.
pub fn npz_of_two(stored: &Stored, shape: [usize; 2], values: &[f32]) -> Vec<u8> {
    let array = npy(stored, shape, values);
    zipped(&[("one", array.clone()), ("two", array)], false)
}

/// A header that promises what is not there.
pub fn npz_claiming(shape: &str) -> Vec<u8> {
    zipped(&[("embeddings", header("f4", false, shape))], false)
}

pub fn npz_of_integers() -> Vec<u8> {
    let mut array = header("i4", false, "(2, 3)");
    array.extend([0u8; 24]);
    zipped(&[("embeddings", array)], false)
}

fn zipped(members: &[(&str, Vec<u8>)], is_deflated: bool) -> Vec<u8> {
    let method = match is_deflated {
        true => CompressionMethod::Deflated,
        false => CompressionMethod::Stored,
    };
    let options = SimpleFileOptions::default().compression_method(method);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        archive
            .start_file(format!("{name}.npy"), options)
            .expect("a member");
        archive.write_all(bytes).expect("its bytes");
    }
    archive.finish().expect("an archive").into_inner()
}

pub fn tensors(name: &str, [n_rows, width]: [usize; 2], values: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let header = format!(
        "{{\"{name}\":{{\"dtype\":\"F32\",\"shape\":[{n_rows},{width}],\"data_offsets\":[0,{}]}}}}",
        bytes.len()
    );
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(bytes);
    file
}

/// Words and their places, as protocol 4 writes a dictionary.
pub fn pickle(words: &[&str]) -> Vec<u8> {
    let mut body = vec![b'}', 0x94, b'('];
    for (row, word) in words.iter().enumerate() {
        body.extend([0x8c, word.len() as u8]);
        body.extend(word.as_bytes());
        body.extend([0x94, b'K', row as u8]);
    }
    body.extend(b"u.");
    let mut bytes = vec![0x80, 4, 0x95];
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}
