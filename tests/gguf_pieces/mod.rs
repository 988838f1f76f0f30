//! GGUF files built piece by piece, so that each piece can be chosen, or wrong.

#![allow(
    dead_code,
    reason = "each test file that includes this uses its own part"
)]

use std::path::PathBuf;

use attnscope::checkpoint::gguf;

pub const U32: u32 = 4;
pub const BOOL: u32 = 7;
pub const TEXT: u32 = 8;
pub const LIST: u32 = 9;

/// Builds a file piece by piece, so that each piece can be wrong.
#[derive(Clone)]
pub struct Pieces {
    pub version: u32,
    pub n_tensors: Option<u64>,
    pub n_entries: Option<u64>,
    pub entries: Vec<Vec<u8>>,
    pub tensors: Vec<Vec<u8>>,
    pub data: Vec<u8>,
}

pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

pub fn entry(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(key)[..], &kind.to_le_bytes(), value].concat()
}

pub fn number(key: &str, value: u32) -> Vec<u8> {
    entry(key, U32, &value.to_le_bytes())
}

pub fn word(key: &str, value: &str) -> Vec<u8> {
    entry(key, TEXT, &text(value))
}

pub fn tensor(name: &str, dims: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let mut bytes = text(name);
    bytes.extend((dims.len() as u32).to_le_bytes());
    dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
    bytes.extend(kind.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

impl Pieces {
    /// A file that opens: two heads of a llama without a single layer's weights, and an embedding.
    pub fn sound() -> Self {
        Self {
            version: 3,
            n_tensors: None,
            n_entries: None,
            entries: vec![
                word("general.architecture", "llama"),
                number("llama.block_count", 1),
                number("llama.embedding_length", 4),
                number("llama.attention.head_count", 2),
                number("llama.feed_forward_length", 8),
            ],
            tensors: vec![
                tensor("token_embd.weight", &[4, 3], 0, 0),
                tensor("blk.0.attn_q.weight", &[4, 4], 0, 64),
            ],
            data: vec![0; 128],
        }
    }

    pub fn entry(mut self, entry: Vec<u8>) -> Self {
        self.entries.push(entry);
        self
    }

    pub fn tensor(mut self, tensor: Vec<u8>) -> Self {
        self.tensors.push(tensor);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version.to_le_bytes());
        let n_tensors = self.n_tensors.unwrap_or(self.tensors.len() as u64);
        bytes.extend(n_tensors.to_le_bytes());
        let n_entries = self.n_entries.unwrap_or(self.entries.len() as u64);
        bytes.extend(n_entries.to_le_bytes());
        self.entries
            .iter()
            .chain(&self.tensors)
            .for_each(|piece| bytes.extend(piece));
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(&self.data);
        bytes
    }
}

/// A place for files of one test.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub fn write(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("model.gguf");
        // Some file systems flush a file that is written over, and wait for it.
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, bytes).expect("writes");
        path
    }

    /// The one line with which a file is refused.
    pub fn refusal(&self, bytes: &[u8]) -> String {
        let path = self.write(bytes);
        let error = gguf::open_file(&path).expect_err("a refusal").to_string();
        assert!(error.contains("model.gguf: "), "{error}");
        assert!(!error.contains('\n'), "{error}");
        error
    }
}
