//! Whether a checkpoint is completely written, without reading its weights: a trainer may still be saving it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use attnscope_checkpoint::pytorch::lacking;
use attnscope_checkpoint::{
    VOCABULARY, distributed_at, open_regular, other_directory, read_regular,
};

use super::sources::{is_weights, shards_of};

/// Longest safetensors header.
const LONGEST_HEADER: u64 = 100 << 20;

/// Says what a checkpoint still lacks; `None` if nothing is known to be missing.
pub fn missing(path: &Path) -> Option<String> {
    if path.is_file() {
        return cut_short(path);
    }
    let entries = std::fs::read_dir(path).ok()?;
    let files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    for index in files
        .iter()
        .filter(|file| name_of(file).ends_with(".index.json"))
    {
        // If a directory has both formats, the other one is not read.
        if name_of(index).starts_with("pytorch_model") && path.join("model.safetensors").is_file() {
            continue;
        }
        if let Some(lacks) = missing_of_index(index, path) {
            return Some(lacks);
        }
    }
    // A model in one file beside the parts of a distributed checkpoint is what is read.
    let is_alone = !["model.safetensors", "pytorch_model.bin"]
        .iter()
        .any(|name| path.join(name).is_file());
    if let Some(parts) = distributed_at(path).filter(|_| is_alone) {
        return lacking(&parts);
    }
    let ranks = files.iter().map(|file| file.join("model_optim_rng.pt"));
    let ranks: Vec<PathBuf> = ranks.filter(|file| file.is_file()).collect();
    if !ranks.is_empty() {
        return ranks.iter().find_map(|rank| cut_short(rank));
    }
    let mut weights: Vec<&PathBuf> = files.iter().filter(|file| is_weights(file)).collect();
    weights.sort();
    // Not a checkpoint: the reader will say what it is.
    if weights.is_empty() && other_directory(path).is_some() {
        return None;
    }
    if weights.is_empty() {
        return Some("it has no weights yet".to_owned());
    }
    for file in &weights {
        if let Some(n) = shards_of(file) {
            let n_there = weights
                .iter()
                .filter(|other| shards_of(other) == Some(n))
                .count();
            if n_there < n {
                return Some(format!("{n_there} of {n} shards are there"));
            }
        }
        if let Some(lacks) = cut_short(file) {
            return Some(lacks);
        }
    }
    None
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Returns a file that an index names but that does not exist.
fn missing_of_index(index: &Path, directory: &Path) -> Option<String> {
    let text = read_regular(index, VOCABULARY).ok()?;
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(&text) else {
        return Some(format!("{} is not written whole", name_of(index)));
    };
    let names = value.get("weight_map")?.as_object()?;
    let names: BTreeSet<&str> = names
        .values()
        .filter_map(serde_json::Value::as_str)
        .collect();
    let lacks = names.iter().find(|name| !directory.join(name).is_file());
    lacks.map(|name| format!("{} names {name}, which is not there yet", name_of(index)))
}

/// Describes how a file of weights is shorter than its own header says; `None` if it is complete.
fn cut_short(path: &Path) -> Option<String> {
    let name = name_of(path);
    let ending = path
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let mut file = open_regular(path).ok()?;
    let len = file.metadata().ok()?.len();
    if len == 0 {
        return Some(format!("{name} is empty"));
    }
    let is_short = match ending.as_str() {
        "safetensors" => is_safetensors_short(&mut file, len),
        "bin" | "pt" | "pth" | "ckpt" => is_archive_short(&mut file, len),
        _ => false,
    };
    is_short.then(|| format!("{name} is not written whole: it has {len} bytes so far"))
}

/// Compares the header's last offset with the length of the file. A damaged header is left to the reader.
fn is_safetensors_short(file: &mut File, len: u64) -> bool {
    let mut size = [0; 8];
    if file.read_exact(&mut size).is_err() {
        return true;
    }
    let n_header = u64::from_le_bytes(size);
    if n_header > LONGEST_HEADER {
        return false;
    }
    if len < 8 + n_header {
        return true;
    }
    let mut header = vec![0; n_header as usize];
    if file.read_exact(&mut header).is_err() {
        return true;
    }
    let Ok(header) = serde_json::from_slice::<serde_json::Value>(&header) else {
        // A preallocated file that is not filled yet begins with zeros.
        return header.iter().all(|byte| *byte == 0);
    };
    let tensors = header
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::values);
    let ends = tensors.filter_map(|tensor| tensor.get("data_offsets")?.get(1)?.as_u64());
    ends.max().is_some_and(|end| len < 8 + n_header + end)
}

/// Whether a zip archive, as PyTorch writes it, lacks its end record. Older pickles have no such record.
fn is_archive_short(file: &mut File, len: u64) -> bool {
    const RECORD: &[u8] = b"PK\x05\x06";
    /// The end record may be followed by a comment of 64 KiB.
    const TAIL: u64 = (1 << 16) + 22;
    let mut start = [0; 4];
    if file.read_exact(&mut start).is_err() {
        return true;
    }
    if start == [0; 4] {
        return true;
    }
    if &start != b"PK\x03\x04" {
        return false;
    }
    let mut tail = Vec::new();
    let from = len.saturating_sub(TAIL);
    let is_read = file
        .seek(SeekFrom::Start(from))
        .and_then(|_| file.take(TAIL).read_to_end(&mut tail));
    is_read.is_ok() && !tail.windows(RECORD.len()).any(|window| window == RECORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn safetensors(n_values: usize) -> Vec<u8> {
        let header = format!(
            "{{\"a\":{{\"dtype\":\"F32\",\"shape\":[{n_values}],\"data_offsets\":[0,{}]}}}}",
            4 * n_values
        );
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + 4 * n_values, 1);
        bytes
    }

    #[test]
    fn a_truncated_file_is_incomplete_wherever_it_is_cut() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("model.safetensors");
        let whole = safetensors(8);
        for n in 0..whole.len() {
            fs::write(&file, &whole[..n]).expect("writes");
            assert!(missing(&file).is_some(), "{n} bytes");
            assert!(missing(directory.path()).is_some(), "{n} bytes");
        }
        fs::write(&file, &whole).expect("writes");
        assert_eq!(missing(&file), None);
        assert_eq!(missing(directory.path()), None);
    }

    #[test]
    fn missing_shards_are_detected_by_index_and_by_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("config.json"), "{}").expect("writes");
        assert_eq!(
            missing(directory.path()).as_deref(),
            Some("it has no weights yet")
        );
        fs::write(at("model-00001-of-00002.safetensors"), safetensors(4)).expect("writes");
        let said = missing(directory.path()).expect("incomplete");
        assert_eq!(said, "1 of 2 shards are there");
        fs::write(at("model-00002-of-00002.safetensors"), safetensors(4)).expect("writes");
        assert_eq!(missing(directory.path()), None);
        let index = "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\",\"b\":\"other.safetensors\"}}";
        fs::write(at("model.safetensors.index.json"), &index[..40]).expect("writes");
        assert!(
            missing(directory.path())
                .expect("incomplete")
                .contains("not written whole")
        );
        fs::write(at("model.safetensors.index.json"), index).expect("writes");
        assert!(
            missing(directory.path())
                .expect("incomplete")
                .contains("other.safetensors")
        );
    }
}
