//! Named tensors of a checkpoint, whatever files they lie in: looked up by name, widened on demand.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::dtype::Dtype;
use super::map::Bytes;
use super::scales::Scales;
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
    /// Elements from one index to the next in each dimension, where the elements do not lie row-major.
    pub(super) strides: Option<Vec<usize>>,
    pub(super) file_idx: usize,
    pub(super) bytes: Range<usize>,
    pub(super) stored: Stored,
    /// Another tensor's bytes, by which the values are multiplied.
    pub(super) scales: Option<Scales>,
}

impl TensorInfo {
    /// Whether the elements lie in the file as they are used: in row-major order, nothing to undo.
    pub fn is_plain(&self) -> bool {
        self.strides.is_none() && self.stored == Stored::AsIs
    }

    /// Number of elements; checked against the file when the header was read.
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size of its elements, and of their scales, in the files.
    pub fn n_bytes(&self) -> usize {
        match self.strides {
            // What lies between the elements is not the tensor's.
            Some(_) => self.n_elements() * self.dtype.size(),
            None => self.bytes.len() + self.scales.as_ref().map_or(0, |scales| scales.bytes.len()),
        }
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

    /// The files they lie in.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(Bytes::path)
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

    /// Gives tensors other names; `None` leaves one as it is.
    ///
    /// # Errors
    /// Names the tensor that two would then be.
    pub fn rename(&mut self, new_name: impl Fn(&str) -> Option<String>) -> Result<()> {
        let mut renamed = BTreeMap::new();
        for (name, info) in std::mem::take(&mut self.index) {
            let file_idx = info.file_idx;
            let new = new_name(&name).unwrap_or_else(|| name.clone());
            if renamed.insert(new.clone(), info).is_some() {
                let file = self.files.get(file_idx);
                let file = file.map_or(Path::new("checkpoint"), Bytes::path);
                let problem = format!("two tensors would be {new} under their new names");
                return Err(Error::tensor(file, name, problem));
            }
        }
        self.index = renamed;
        Ok(())
    }

    /// Whether rows lie in an order that depends on how many heads the file says there are.
    pub fn is_ordered_by_heads(&self) -> bool {
        let mut all = self.index.values();
        all.any(|info| matches!(info.stored, Stored::HalvesAlternate { .. }))
    }

    /// Drops axes of length 1 from a tensor's shape, whose elements lie where they did.
    pub fn squeeze(&mut self, name: &str) {
        if let Some(info) = self.index.get_mut(name)
            && info.stored == Stored::AsIs
        {
            let is_kept: Vec<bool> = info.shape.iter().map(|n| *n != 1).collect();
            let mut kept = is_kept.iter().copied();
            info.shape.retain(|_| kept.next().unwrap_or(true));
            if let Some(strides) = &mut info.strides {
                let mut kept = is_kept.iter().copied();
                strides.retain(|_| kept.next().unwrap_or(true));
            }
        }
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
        // A bias stored as one row of a matrix is still that bias.
        let without_ones = |shape: &[usize]| {
            let n_ones = shape.iter().take_while(|n| **n == 1).count();
            shape[n_ones..].to_vec()
        };
        if without_ones(&info.shape) != without_ones(shape) {
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
        let bytes =
            |file_idx: usize, bytes: &Range<usize>| &self.files[file_idx].as_slice()[bytes.clone()];
        let scales = info.scales.as_ref();
        TensorView {
            info,
            bytes: bytes(info.file_idx, &info.bytes),
            scales: scales.map_or(&[], |scales| bytes(scales.file_idx, &scales.bytes)),
        }
    }
}

/// One tensor, borrowed from its file.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    pub info: &'a TensorInfo,
    bytes: &'a [u8],
    scales: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// The bytes in the file, still encoded.
    #[cfg(test)]
    pub(super) fn stored_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// All elements of a tensor of whole numbers or truth values; `None` for others.
    pub fn whole_numbers(&self) -> Option<Vec<f64>> {
        let Dtype::Other(name, size) = self.info.dtype else {
            return None;
        };
        let number = |bytes: &[u8]| -> Option<f64> {
            Some(match name {
                "i64" => i64::from_le_bytes(bytes.try_into().ok()?) as f64,
                "u64" => u64::from_le_bytes(bytes.try_into().ok()?) as f64,
                "i32" => f64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
                "u32" => f64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
                "u8" | "bool" => f64::from(*bytes.first()?),
                "i8" => f64::from(*bytes.first()? as i8),
                _ => return None,
            })
        };
        self.bytes.chunks_exact(size).map(number).collect()
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
        if let Some(strides) = &self.info.strides {
            return Cow::Owned(self.gather(strides, rows));
        }
        if let Some(scales) = &self.info.scales {
            let values = (self.info.dtype, self.bytes);
            return Cow::Owned(scales.widen_rows(values, self.scales, rows, &self.info.shape));
        }
        self.info.stored.rows(rows, &self.info.shape, |elements| {
            let bytes =
                self.info.dtype.n_bytes(elements.start)..self.info.dtype.n_bytes(elements.end);
            self.info
                .dtype
                .widen(&self.bytes[bytes])
                .unwrap_or_default()
        })
    }

    /// Rows `rows` of a matrix of bf16 numbers, as their bits; `None` when they do not lie in the file like that.
    pub fn bf16_rows(&self, rows: Range<usize>) -> Option<&'a [u16]> {
        let info = self.info;
        let is_as_stored = info.is_plain() && info.scales.is_none();
        if info.dtype != Dtype::Bf16 || !is_as_stored || cfg!(target_endian = "big") {
            return None;
        }
        let row_bytes = info.dtype.n_bytes(info.shape.iter().skip(1).product());
        let bytes = self
            .bytes
            .get(rows.start * row_bytes..rows.end * row_bytes)?;
        bytemuck::try_cast_slice(bytes).ok()
    }

    /// Indices `rows` of the first dimension, brought together in row-major order.
    fn gather(&self, strides: &[usize], rows: Range<usize>) -> Vec<f32> {
        let (dtype, mut shape) = (self.info.dtype, self.info.shape.clone());
        let Some(first) = shape.first_mut().filter(|_| dtype.is_float()) else {
            return Vec::new();
        };
        *first = rows.len();
        let size = dtype.size();
        let mut row_major = Vec::with_capacity(shape.iter().product::<usize>() * size);
        if row_major.capacity() > 0 {
            let start = rows.start * strides[0] * size;
            append(&mut row_major, &self.bytes[start..], size, &shape, strides);
        }
        dtype
            .widen(&row_major)
            .map(Cow::into_owned)
            .unwrap_or_default()
    }
}

/// Appends the elements of `size` bytes that shape and strides pick out of `bytes`, row-major.
fn append(to: &mut Vec<u8>, bytes: &[u8], size: usize, shape: &[usize], strides: &[usize]) {
    match (shape, strides) {
        ([n], [1]) => to.extend_from_slice(&bytes[..n * size]),
        ([n], [stride]) => {
            for idx in 0..*n {
                let at = idx * stride * size;
                to.extend_from_slice(&bytes[at..at + size]);
            }
        }
        ([n, shape @ ..], [stride, strides @ ..]) => {
            for idx in 0..*n {
                append(to, &bytes[idx * stride * size..], size, shape, strides);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(shape: &[usize], strides: &[usize], rows: Option<Range<usize>>) -> Vec<f32> {
        let bytes: Vec<u8> = (0..24u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
        let info = TensorInfo {
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            strides: Some(strides.to_vec()),
            stored: Stored::AsIs,
            scales: None,
            file_idx: 0,
            bytes: 0..bytes.len(),
        };
        let view = TensorView {
            info: &info,
            bytes: &bytes,
            scales: &[],
        };
        match rows {
            Some(rows) => view.widen_rows(rows).into_owned(),
            None => view.widen().into_owned(),
        }
    }

    #[test]
    fn strided_elements_come_in_row_major_order() {
        assert_eq!(gathered(&[2, 3], &[1, 2], None), [0., 2., 4., 1., 3., 5.]);
        assert_eq!(gathered(&[2, 2], &[10, 1], None), [0., 1., 10., 11.]);
        assert_eq!(gathered(&[3], &[7], None), [0., 7., 14.]);
        assert_eq!(gathered(&[2, 2], &[0, 3], None), [0., 3., 0., 3.]);
        let cube = gathered(&[2, 2, 2], &[1, 4, 2], None);
        assert_eq!(cube, [0., 2., 4., 6., 1., 3., 5., 7.]);
    }

    #[test]
    fn strided_rows_are_those_of_the_whole() {
        let whole = gathered(&[4, 3], &[1, 8], None);
        assert_eq!(gathered(&[4, 3], &[1, 8], Some(1..3)), whole[3..9]);
        assert!(gathered(&[4, 3], &[1, 8], Some(4..4)).is_empty());
    }

    #[test]
    fn bf16_rows_are_given_as_they_lie_and_nothing_else_is() {
        let bits: Vec<u16> = (0..6).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&bits);
        let info = |dtype, shape: &[usize], strides| TensorInfo {
            dtype,
            shape: shape.to_vec(),
            strides,
            stored: Stored::AsIs,
            scales: None,
            file_idx: 0,
            bytes: 0..bytes.len(),
        };
        let rows = |info: TensorInfo, bytes, rows| {
            let scales = &[];
            let info = &info;
            let view = TensorView {
                info,
                bytes,
                scales,
            };
            view.bf16_rows(rows).map(<[u16]>::to_vec)
        };
        let whole = || info(Dtype::Bf16, &[3, 2], None);
        assert_eq!(rows(whole(), bytes, 0..3), Some(bits.clone()));
        assert_eq!(rows(whole(), bytes, 1..2), Some(vec![2, 3]));
        let cube = info(Dtype::Bf16, &[3, 1, 2], None);
        assert_eq!(rows(cube, bytes, 2..3), Some(vec![4, 5]));
        assert_eq!(rows(info(Dtype::F16, &[3, 2], None), bytes, 0..3), None);
        let turned = info(Dtype::Bf16, &[3, 2], Some(vec![1, 3]));
        assert_eq!(rows(turned, bytes, 0..3), None);
        let shifted = info(Dtype::Bf16, &[2, 2], None);
        assert_eq!(rows(shifted, &bytes[1..9], 0..2), None, "at an odd address");
    }
}
