//! Copies of the small checkpoints that tests may change: weights taken apart, put together again, written anywhere.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// One stored tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// As safetensors spells it: `F32`.
    pub dtype: String,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Stored {
    pub fn f32(shape: &[usize], values: &[f32]) -> Self {
        Self {
            dtype: "F32".to_owned(),
            shape: shape.to_vec(),
            bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }

    /// The values of an F32 or BF16 tensor.
    pub fn values(&self) -> Vec<f32> {
        match self.dtype.as_str() {
            "F32" => {
                let values = self.bytes.chunks(4);
                values
                    .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
                    .collect()
            }
            "BF16" => {
                let values = self.bytes.chunks(2);
                values
                    .map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
                    .collect()
            }
            other => panic!("{other} is not read here"),
        }
    }
}

pub type Weights = BTreeMap<String, Stored>;

/// A directory of the small checkpoints.
pub fn original(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/oracle")
        .join(family)
        .join("model")
}

/// The header of a safetensors file as JSON, and the bytes after it.
pub fn take_apart(bytes: &[u8]) -> (Value, Vec<u8>) {
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header = serde_json::from_slice(&bytes[8..8 + n]).expect("a header");
    (header, bytes[8 + n..].to_vec())
}

/// A safetensors file of a header and the bytes after it.
pub fn put_together(header: &Value, data: &[u8]) -> Vec<u8> {
    let mut text = header.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text);
    bytes.extend(data);
    bytes
}

/// All tensors of a safetensors file.
pub fn weights(bytes: &[u8]) -> Weights {
    let (header, data) = take_apart(bytes);
    let entries = header.as_object().expect("an object");
    let tensors = entries.iter().filter(|(name, _)| *name != "__metadata__");
    let stored = |entry: &Value| {
        let number = |v: &Value| v.as_u64().expect("a number") as usize;
        let offsets: Vec<usize> = entry["data_offsets"]
            .as_array()
            .expect("offsets")
            .iter()
            .map(number)
            .collect();
        Stored {
            dtype: entry["dtype"].as_str().expect("a dtype").to_owned(),
            shape: entry["shape"]
                .as_array()
                .expect("a shape")
                .iter()
                .map(number)
                .collect(),
            bytes: data[offsets[0]..offsets[1]].to_vec(),
        }
    };
    tensors
        .map(|(name, entry)| (name.clone(), stored(entry)))
        .collect()
}

/// A safetensors file of some tensors.
pub fn file_of(weights: &Weights) -> Vec<u8> {
    let mut data = Vec::new();
    let mut header = serde_json::Map::new();
    for (name, stored) in weights {
        let start = data.len();
        data.extend(&stored.bytes);
        let entry = json!({ "dtype": stored.dtype, "shape": stored.shape, "data_offsets": [start, data.len()] });
        header.insert(name.clone(), entry);
    }
    put_together(&Value::Object(header), &data)
}

/// A copy of a small checkpoint in a directory of its own, and an empty one to write to.
pub struct Copy {
    directory: TempDir,
    outputs: TempDir,
}

impl Copy {
    pub fn of(family: &str) -> Self {
        Self::of_directory(&original(family))
    }

    /// A copy of the checkpoint in a directory.
    pub fn of_directory(directory: &Path) -> Self {
        let copy = Self {
            directory: tempfile::tempdir().expect("a directory"),
            outputs: tempfile::tempdir().expect("a directory"),
        };
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(directory.join(file), copy.file(file)).expect("copies");
        }
        copy
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A file to write to.
    pub fn output(&self, name: &str) -> PathBuf {
        self.outputs.path().join(name)
    }

    /// How many files there are to read what was written.
    pub fn n_outputs(&self) -> usize {
        std::fs::read_dir(self.outputs.path())
            .expect("lists")
            .count()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.file(name), content).expect("writes");
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.file(name)).expect("removes");
    }

    /// Changes the configuration.
    pub fn config(&self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
        let text = std::fs::read(self.file("config.json")).expect("reads");
        let mut config: Value = serde_json::from_slice(&text).expect("JSON");
        change(config.as_object_mut().expect("an object"));
        self.write("config.json", config.to_string());
    }

    pub fn weight_bytes(&self) -> Vec<u8> {
        std::fs::read(self.file("model.safetensors")).expect("reads")
    }

    /// Changes the tensors; the file stays well-formed.
    pub fn weights(&self, change: impl FnOnce(&mut Weights)) {
        let mut weights = weights(&self.weight_bytes());
        change(&mut weights);
        self.write("model.safetensors", file_of(&weights));
    }

    /// Changes the header alone; the bytes of the tensors stay where they are.
    pub fn header(&self, change: impl FnOnce(&mut Value)) {
        let (mut header, data) = take_apart(&self.weight_bytes());
        change(&mut header);
        self.write("model.safetensors", put_together(&header, &data));
    }

    /// Writes the tensors as two shards with an index instead of one file.
    pub fn shard(&self) {
        let all = weights(&self.weight_bytes());
        self.remove("model.safetensors");
        let half = all.len() / 2;
        let name_of = |idx: usize| {
            let shard = if idx < half { 1 } else { 2 };
            format!("model-0000{shard}-of-00002.safetensors")
        };
        let mut map = serde_json::Map::new();
        let mut shards: BTreeMap<String, Weights> = BTreeMap::new();
        for (idx, (name, stored)) in all.into_iter().enumerate() {
            map.insert(name.clone(), json!(name_of(idx)));
            shards.entry(name_of(idx)).or_default().insert(name, stored);
        }
        for (file, weights) in &shards {
            self.write(file, file_of(weights));
        }
        let index = json!({ "metadata": {}, "weight_map": map });
        self.write("model.safetensors.index.json", index.to_string());
    }

    /// Changes the map from tensors to shards.
    pub fn index(&self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
        let text = std::fs::read(self.file("model.safetensors.index.json")).expect("reads");
        let mut index: Value = serde_json::from_slice(&text).expect("JSON");
        change(index["weight_map"].as_object_mut().expect("an object"));
        self.write("model.safetensors.index.json", index.to_string());
    }
}

/// Runs the program.
pub fn attnscope<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_attnscope"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

/// Runs the program into a pipe that nobody reads.
pub fn unread<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_attnscope"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    child.wait_with_output().expect("it ends")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}
