//! Named tensors of a checkpoint, whatever files they lie in: looked up by name, widened on demand.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::dtype::Dtype;
use super::map::Bytes;
use super::stored::Stored;
use crate::error::{Error, Result};

/// Blocks that can be widened, for messages.
const READABLE: &str =
    "q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, and f32, f16, bf16";

/// Where a tensor lies and how it is encoded.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub(super) file_idx: usize,
    pub(super) bytes: Range<usize>,
    pub(super) stored: Stored,
}

impl TensorInfo {
    /// Number of elements; checked against the file when the header was read.
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size in the file.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// All tensors of a checkpoint, by name.
#[derive(Debug, Default)]
pub struct Tensors {
    pub(super) files: Vec<Bytes>,
    pub(super) index: BTreeMap<String, TensorInfo>,
}

impl Tensors {
    /// Names and descriptions, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.index.iter().map(|(name, info)| (name.as_str(), info))
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name)
    }

    /// The file that holds a tensor, or the first file for a name that is nowhere.
    pub fn file_of(&self, name: &str) -> &Path {
        let file_idx = self.index.get(name).map_or(0, |info| info.file_idx);
        self.files
            .get(file_idx)
            .map_or(Path::new("checkpoint"), Bytes::path)
    }

    /// A tensor of the expected shape, still in its stored encoding.
    ///
    /// # Errors
    /// When the tensor is missing, has another shape, or is not floating point; the message names all of it.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>> {
        let Some(info) = self.index.get(name) else {
            return Err(Error::tensor(
                self.file_of(name),
                name,
                format!("missing, expected shape {shape:?}"),
            ));
        };
        if info.shape != shape {
            let problem = format!("expected shape {shape:?}, found {:?}", info.shape);
            return Err(Error::tensor(self.file_of(name), name, problem));
        }
        if !info.dtype.is_float() {
            let problem = match info.dtype {
                Dtype::Block(block) => {
                    format!("{} blocks cannot be read; readable: {READABLE}", block.name)
                }
                other => format!("expected f32, f16, bf16 or f64, found {other}"),
            };
            return Err(Error::tensor(self.file_of(name), name, problem));
        }
        Ok(self.view(info))
    }

    /// A tensor as it is stored; `None` when there is none of that name.
    pub fn get(&self, name: &str) -> Option<TensorView<'_>> {
        self.index.get(name).map(|info| self.view(info))
    }

    fn view<'a>(&'a self, info: &'a TensorInfo) -> TensorView<'a> {
        TensorView {
            info,
            bytes: &self.files[info.file_idx].as_slice()[info.bytes.clone()],
        }
    }
}

/// One tensor, borrowed from its file.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    pub info: &'a TensorInfo,
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// The bytes in the file, still encoded.
    #[cfg(test)]
    pub(super) fn stored_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// All elements as f32, row-major. Tensors that are not floating point give nothing.
    pub fn widen(&self) -> Cow<'a, [f32]> {
        match self.info.shape.first() {
            Some(n_rows) => self.widen_rows(0..*n_rows),
            None => self.info.dtype.widen(self.bytes).unwrap_or_default(),
        }
    }

    /// Rows `rows` of a matrix as f32, row-major.
    pub fn widen_rows(&self, rows: Range<usize>) -> Cow<'a, [f32]> {
        self.info.stored.rows(rows, &self.info.shape, |elements| {
            let bytes =
                self.info.dtype.n_bytes(elements.start)..self.info.dtype.n_bytes(elements.end);
            self.info
                .dtype
                .widen(&self.bytes[bytes])
                .unwrap_or_default()
        })
    }
}
