//! Traces that tests write: the captured fixtures' arrays, changed, with or without metadata, as safetensors or `.npz`.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::io::Write as _;
use std::path::PathBuf;

use attnscope::analysis::Declared;
use serde_json::Value;
use tempfile::TempDir;

use crate::checkpoint_copy::{Weights, file_of, put_together, take_apart, weights};
use crate::judged::{Said, captured, fixture};

pub fn arrays(name: &str) -> Weights {
    weights(&std::fs::read(fixture("captured").join(name)).expect("reads"))
}

/// A file in a directory of its own.
pub struct Written(TempDir, pub PathBuf);

impl Written {
    pub fn bytes(name: &str, bytes: &[u8]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        Self(directory, path)
    }

    /// A trace without metadata.
    pub fn bare(arrays: &Weights) -> Self {
        Self::bytes("trace.safetensors", &file_of(arrays))
    }

    pub fn with_metadata(arrays: &Weights, metadata: &Value) -> Self {
        let (mut header, data) = take_apart(&file_of(arrays));
        header["__metadata__"] = metadata.clone();
        Self::bytes("trace.safetensors", &put_together(&header, &data))
    }

    pub fn said(&self) -> Said {
        captured(&self.1, &Declared::default())
    }
}

/// An `.npz` of F32 arrays.
pub fn npz(arrays: &Weights) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, stored) in arrays {
        let shape: Vec<String> = stored.shape.iter().map(usize::to_string).collect();
        let kind = if stored.dtype == "F32" { "<f4" } else { "<i8" };
        let mut header = format!(
            "{{'descr': '{kind}', 'fortran_order': False, 'shape': ({},), }}",
            shape.join(", ")
        );
        while !(header.len() + 11).is_multiple_of(64) {
            header.push(' ');
        }
        header.push('\n');
        let options = zip::write::SimpleFileOptions::default();
        archive
            .start_file(format!("{name}.npy"), options)
            .expect("begins");
        archive.write_all(b"\x93NUMPY\x01\x00").expect("writes");
        let length = u16::try_from(header.len()).expect("short").to_le_bytes();
        archive.write_all(&length).expect("writes");
        archive.write_all(header.as_bytes()).expect("writes");
        archive.write_all(&stored.bytes).expect("writes");
    }
    archive.finish().expect("ends").into_inner()
}
