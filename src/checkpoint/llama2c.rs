//! Models that llama2.c exports (`.bin`): a header of sizes, then each kind of matrix for all layers.
//!
//! Layout from llama2.c's `export.py`: version 0 has seven numbers as its header and stores rotary frequencies; versions 1 and 2
//! have a magic number and a header of 256 bytes. Version 2 stores matrices as groups of eight-bit integers, followed by scales.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value, json};

use super::data_file::DataFile;
use super::dtype::Dtype;
use super::made::{ComputedTensor, Layout, Quantised};
use super::stored::Stored;
use super::tensor_info::TensorInfo;
use super::tensors::Tensors;

/// Magic number of versions 1 and 2: "ak42", least significant byte first.
const MARK: u32 = 0x616b_3432;
/// Bytes of the header of versions 1 and 2.
const HEADER: usize = 256;
/// Numbers in the header of version 0.
const N_SIZES: usize = 7;
/// Limit on every size; no model has a larger one.
const LARGEST: i32 = 1 << 28;
const MOST_LAYERS: usize = 1 << 12;
/// Rotary base and norm epsilon of llama2.c's code; files do not state them.
const THETA: f64 = 10_000.0;
const EPS: f64 = 1e-5;

/// The header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    version: u32,
    d_model: usize,
    d_mlp: usize,
    n_layers: usize,
    n_heads: usize,
    n_kv_heads: usize,
    d_vocab: usize,
    n_ctx: usize,
    is_tied: bool,
    /// Number of values that share a scale, if matrices are quantised.
    group: usize,
}

impl Header {
    /// Reads the header of a file, if it has one: with the magic number, or with sizes that account for every byte.
    pub fn of(file: &Path) -> Option<Self> {
        let file = DataFile::open(file).ok()?;
        let bytes = file.read(0..HEADER.min(file.len())).ok()?;
        let header = Self::read(&bytes)?;
        let is_marked = header.version > 0;
        (is_marked || header.n_bytes() == Some(file.len())).then_some(header)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |idx: usize| -> Option<i32> {
            let word = bytes.get(4 * idx..4 * idx + 4)?;
            Some(i32::from_le_bytes(word.try_into().ok()?))
        };
        let is_marked = word(0)? as u32 == MARK;
        let version = if is_marked { word(1)? } else { 0 };
        if !(0..=2).contains(&version) || (is_marked && version == 0) {
            return None;
        }
        let first = if is_marked { 2 } else { 0 };
        let mut sizes = [0usize; N_SIZES];
        let mut is_tied = true;
        for (idx, size) in sizes.iter_mut().enumerate() {
            let mut stated = word(first + idx)?;
            // In version 0, a positive vocabulary size means a tied head.
            if idx == 5 && !is_marked {
                is_tied = stated > 0;
                stated = stated.checked_abs()?;
            }
            if !(1..=LARGEST).contains(&stated) {
                return None;
            }
            *size = stated as usize;
        }
        let after = 4 * (first + N_SIZES);
        if is_marked {
            is_tied = *bytes.get(after)? != 0;
        }
        let group = match version {
            2 => {
                let group = bytes.get(after + 1..after + 5)?;
                let group = i32::from_le_bytes(group.try_into().ok()?);
                (1..=LARGEST).contains(&group).then_some(group as usize)?
            }
            _ => 0,
        };
        let [
            d_model,
            d_mlp,
            n_layers,
            n_heads,
            n_kv_heads,
            d_vocab,
            n_ctx,
        ] = sizes;
        let fits = n_layers <= MOST_LAYERS
            && d_model.is_multiple_of(n_heads)
            && n_heads.is_multiple_of(n_kv_heads);
        fits.then_some(Self {
            version: version as u32,
            d_model,
            d_mlp,
            n_layers,
            n_heads,
            n_kv_heads,
            d_vocab,
            n_ctx,
            is_tied,
            group,
        })
    }

    fn d_head(&self) -> usize {
        self.d_model / self.n_heads
    }

    /// Computes the size of a version 0 file.
    fn n_bytes(&self) -> Option<usize> {
        let mut n = 4 * N_SIZES;
        for (_, shape) in self.tensors() {
            let of_one: usize = shape
                .iter()
                .try_fold(4usize, |n, axis| n.checked_mul(*axis))?;
            n = n.checked_add(of_one)?;
        }
        let rotations = self.n_ctx.checked_mul(self.d_head())?.checked_mul(4)?;
        n.checked_add(rotations)
    }

    /// Lists names and shapes in the order of the file, in Meta's terms; without the rotary frequencies of version 0.
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (d, d_kv) = (self.d_model, self.n_kv_heads * self.d_head());
        let tokens = || ("tok_embeddings.weight".to_owned(), vec![self.d_vocab, d]);
        let of_layers = |part: &'static str, shape: Vec<usize>| {
            let name = move |layer: usize| format!("layers.{layer}.{part}.weight");
            (0..self.n_layers).map(move |layer| (name(layer), shape.clone()))
        };
        let maps = [
            ("attention.wq", vec![d, d]),
            ("attention.wk", vec![d_kv, d]),
            ("attention.wv", vec![d_kv, d]),
            ("attention.wo", vec![d, d]),
        ];
        let feeds = [
            ("feed_forward.w1", vec![self.d_mlp, d]),
            ("feed_forward.w2", vec![d, self.d_mlp]),
            ("feed_forward.w3", vec![self.d_mlp, d]),
        ];
        let norm = || ("norm.weight".to_owned(), vec![d]);
        let mut all = Vec::new();
        if self.version == 0 {
            all.push(tokens());
            all.extend(of_layers("attention_norm", vec![d]));
            all.extend(
                maps.into_iter()
                    .flat_map(|(part, shape)| of_layers(part, shape)),
            );
            all.extend(of_layers("ffn_norm", vec![d]));
            all.extend(
                feeds
                    .into_iter()
                    .flat_map(|(part, shape)| of_layers(part, shape)),
            );
            all.push(norm());
        } else {
            all.extend(of_layers("attention_norm", vec![d]));
            all.extend(of_layers("ffn_norm", vec![d]));
            all.push(norm());
            all.push(tokens());
            let both = maps.into_iter().chain(feeds);
            all.extend(both.flat_map(|(part, shape)| of_layers(part, shape)));
        }
        if !self.is_tied {
            all.push(("output.weight".to_owned(), vec![self.d_vocab, d]));
        }
        all
    }

    /// Converts the header and the constants of llama2.c's code to the keys of Meta's `params.json`.
    fn values(&self) -> Map<String, Value> {
        let values = json!({
            "dim": self.d_model, "n_layers": self.n_layers, "n_heads": self.n_heads, "n_kv_heads": self.n_kv_heads,
            "vocab_size": self.d_vocab, "max_seq_len": self.n_ctx, "rope_theta": THETA, "norm_eps": EPS,
        });
        match values {
            Value::Object(values) => values,
            _ => Map::new(),
        }
    }
}

/// Adds the `model_args` that a `ckpt.pt` of llama2.c omits because its code has constants for them.
pub fn complete(model_args: &mut Map<String, Value>) {
    let is_its = ["dim", "multiple_of", "max_seq_len", "n_kv_heads"]
        .iter()
        .all(|key| model_args.contains_key(*key));
    if is_its {
        for (key, value) in [("rope_theta", THETA), ("norm_eps", EPS)] {
            model_args.entry(key).or_insert_with(|| value.into());
        }
    }
}

/// Opens a file, and returns its tensors and the values of its header.
///
/// # Errors
/// When the file's size contradicts its header.
pub fn open_file(path: &Path) -> Result<(Tensors, Map<String, Value>)> {
    let file = DataFile::open(path)?;
    let Some(header) = Header::of(path) else {
        return Err(Error::file(path, "has no header of llama2.c"));
    };
    let mut at = if header.version == 0 {
        4 * N_SIZES
    } else {
        HEADER
    };
    let mut tensors = Tensors::default();
    let place = |at: &mut usize, n: Option<usize>, name: &str| -> Result<Range<usize>> {
        let end = n.and_then(|n| at.checked_add(n));
        let Some(end) = end.filter(|end| *end <= file.len()) else {
            let problem = "the file is shorter than its header says";
            return Err(Error::tensor(path, name, problem));
        };
        let range = *at..end;
        *at = end;
        Ok(range)
    };
    for (name, shape) in header.tensors() {
        // The rotary frequencies come before the last matrix.
        if header.version == 0 && name == "output.weight" {
            place(
                &mut at,
                header.n_ctx.checked_mul(4 * header.d_head()),
                &name,
            )?;
        }
        let n = shape
            .iter()
            .try_fold(1usize, |n, axis| n.checked_mul(*axis));
        let plain = |dtype: Dtype, shape: Vec<usize>, bytes: Range<usize>| TensorInfo {
            dtype,
            shape,
            strides: None,
            file_idx: 0,
            bytes,
            stored: Stored::AsIs,
            scales: None,
            made: None,
        };
        let is_packed = header.version == 2 && shape.len() == 2;
        let info = if is_packed {
            let width = shape.last().copied().unwrap_or(0);
            if !width.is_multiple_of(header.group) {
                let problem = format!(
                    "groups of {} values do not fill rows of {width}, which is not read",
                    header.group
                );
                return Err(Error::tensor(path, name, problem));
            }
            let bytes = place(&mut at, n, &name)?;
            let n_groups = n.map(|n| n / header.group);
            let scales = place(&mut at, n_groups.and_then(|n| n.checked_mul(4)), &name)?;
            let of_groups = vec![shape[0], width / header.group];
            let codes = plain(Dtype::Other("i8", 1), shape.clone(), bytes.clone());
            let quantised = Quantised {
                layout: Layout::Int8,
                codes,
                scales: plain(Dtype::F32, of_groups, scales),
                zeros: None,
                groups: None,
                group: header.group,
                bits: 8,
                rounds_to: Dtype::F32,
            };
            TensorInfo {
                made: Some(Arc::new(ComputedTensor::Quantised(Box::new(quantised)))),
                ..plain(Dtype::Packed("q8"), shape, bytes)
            }
        } else {
            let bytes = place(&mut at, n.and_then(|n| n.checked_mul(4)), &name)?;
            plain(Dtype::F32, shape, bytes)
        };
        tensors.index.insert(name, info);
    }
    tensors.files.push(file);
    Ok((tensors, header.values()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[i32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn headers_are_recognised_by_magic_number_or_file_size() {
        let sizes = [8, 12, 2, 2, 1, -10, 4];
        let old = Header::read(&words(&sizes)).expect("a header");
        assert!(old.version == 0 && !old.is_tied && old.d_vocab == 10);
        // Embedding and head, norms, projections, feed-forward blocks, rotary frequencies.
        let n = 2 * 80 + 5 * 8 + 2 * (64 + 32 + 32 + 64) + 2 * 3 * 96 + 16;
        assert_eq!(old.n_bytes(), Some(4 * (7 + n)));
        let marked = [MARK as i32, 2, 8, 12, 2, 2, 1, 10, 4];
        let mut bytes = words(&marked);
        bytes.push(1);
        bytes.extend(4i32.to_le_bytes());
        let new = Header::read(&bytes).expect("a header");
        assert!(new.version == 2 && new.is_tied && new.group == 4);
        for (idx, wrong) in [(0, 0), (3, 3), (4, 3), (1, -12), (2, i32::MIN)] {
            let mut sizes = sizes;
            sizes[idx] = wrong;
            assert_eq!(Header::read(&words(&sizes)), None, "{idx}");
        }
        assert_eq!(
            Header::read(&words(&[MARK as i32, 3, 8, 12, 2, 2, 1, 10, 4])),
            None
        );
    }
}
