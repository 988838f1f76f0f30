//! Access to one tensor: its values are read, put into row-major order and widened to f32 on demand.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use attnscope_compute::error::Result;

use super::data_file::DataFile;
use super::dtype::Dtype;
use super::scales::Scales;
use super::stored::Stored;
use super::tensor_info::TensorInfo;

/// One tensor of a file, read on demand.
#[derive(Debug, Clone)]
pub struct TensorView<'a> {
    pub info: &'a TensorInfo,
    /// The model's shape: without leading axes of length 1 that a file may add.
    shape: Vec<usize>,
    strides: Option<Vec<usize>>,
    /// Its byte range in the file.
    bytes: Range<usize>,
    file: &'a DataFile,
    files: &'a [DataFile],
    scales: Option<(&'a Scales, &'a DataFile)>,
}

/// Bytes read at a time for conversion to another type: few enough to be still in the core's cache when they are widened.
const READ_AT_ONCE: usize = 1 << 16;

thread_local! {
    /// Buffer of a thread for bytes to be converted.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<'a> TensorView<'a> {
    /// Views a tensor in these files.
    pub(super) fn new(info: &'a TensorInfo, files: &'a [DataFile]) -> Self {
        let scales = info.scales.as_ref();
        let scales = scales.map(|scales| (scales, &files[scales.file_idx]));
        Self {
            info,
            shape: info.shape.clone(),
            strides: info.strides.clone(),
            bytes: info.bytes.clone(),
            file: &files[info.file_idx],
            files,
            scales,
        }
    }

    /// Returns the elements in another shape, which may differ only by leading axes of length 1.
    pub(super) fn of_shape(mut self, shape: &[usize]) -> Option<Self> {
        // A bias stored as a matrix of one row is still a bias.
        let n_ones = |shape: &[usize]| shape.iter().take_while(|n| **n == 1).count();
        let (own, meant) = (n_ones(&self.shape), n_ones(shape));
        if self.shape[own..] != shape[meant..] {
            return None;
        }
        // A computed tensor is read by indices of its first axis, which would change.
        if self.info.made.is_some() && self.shape != shape {
            return None;
        }
        if let Some(strides) = &mut self.strides {
            // The stride of an axis of length 1 does not matter.
            strides.splice(..own, vec![1; meant]);
        }
        self.shape = shape.to_vec();
        Some(self)
    }

    /// Returns one index of the first axis as a tensor, if its elements are stored as they are used.
    pub fn slab(&self, idx: usize) -> Option<Self> {
        let [n, shape @ ..] = self.shape.as_slice() else {
            return None;
        };
        if !self.info.is_plain() || self.scales.is_some() || idx >= *n {
            return None;
        }
        let n_bytes = self.info.dtype.n_bytes(shape.iter().product());
        Some(Self {
            shape: shape.to_vec(),
            bytes: within(&self.bytes, idx * n_bytes..(idx + 1) * n_bytes),
            ..self.clone()
        })
    }

    /// Returns the model's shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Whether some rows can be read without all the others.
    pub fn is_row_wise(&self) -> bool {
        match &self.info.made {
            Some(made) => made.is_row_wise(),
            None => self.strides.is_none() && self.info.stored != Stored::Transposed,
        }
    }

    /// Reads a range of the tensor's bytes, counted from its first, still encoded.
    pub(super) fn stored_bytes(&self, range: Range<usize>) -> Result<Cow<'a, [u8]>> {
        self.file.settle()?;
        self.file.read(within(&self.bytes, range))
    }

    /// Reads all elements of an integer or boolean tensor; `None` for others.
    ///
    /// # Errors
    /// When the file cannot be read or has changed; this applies to all methods below.
    pub fn whole_numbers(&self) -> Result<Option<Vec<f64>>> {
        let Dtype::Other(name, size) = self.info.dtype else {
            return Ok(None);
        };
        if self.info.made.is_some() {
            return Ok(None);
        }
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
        let bytes = self.stored_bytes(0..self.bytes.len())?;
        Ok(bytes.chunks_exact(size).map(number).collect())
    }

    /// Widens all elements to f32, row-major; empty for tensors that are not floating point.
    pub fn widen(&self) -> Result<Cow<'a, [f32]>> {
        match self.shape.first() {
            Some(n_rows) => self.widen_rows(0..*n_rows),
            None => self.elements(0..1),
        }
    }

    /// Widens rows `rows` of a matrix to f32, row-major.
    pub fn widen_rows(&self, rows: Range<usize>) -> Result<Cow<'a, [f32]>> {
        if let Some(made) = &self.info.made {
            return made.rows(self.files, rows, &self.shape).map(Cow::Owned);
        }
        if let Some(strides) = &self.strides {
            return self.gather(strides, rows).map(Cow::Owned);
        }
        if let Some((scales, file)) = self.scales {
            let values = |range| self.stored_bytes(range);
            let of_scales = |range| {
                file.settle()?;
                file.read(within(&scales.bytes, range))
            };
            let wide =
                scales.widen_rows((self.info.dtype, &values), &of_scales, rows, &self.shape)?;
            return Ok(Cow::Owned(wide));
        }
        let read = |elements| self.elements(elements);
        self.info.stored.rows(rows, &self.shape, read)
    }

    /// Widens rows `rows` of a matrix to f32 into a buffer, row-major.
    ///
    /// # Panics
    /// When the buffer does not have the right length.
    pub fn widen_rows_into(&self, rows: Range<usize>, to: &mut [f32]) -> Result<()> {
        if self.info.is_plain() && self.scales.is_none() && self.info.dtype.is_float() {
            let width: usize = self.shape.iter().skip(1).product();
            return self.elements_into(rows.start * width..rows.end * width, to);
        }
        to.copy_from_slice(&self.widen_rows(rows)?);
        Ok(())
    }

    /// Widens some elements to f32, in the order of the file; empty if they are not floats.
    fn elements(&self, elements: Range<usize>) -> Result<Cow<'a, [f32]>> {
        let dtype = self.info.dtype;
        if !dtype.is_float() {
            return Ok(Cow::default());
        }
        let bytes = dtype.n_bytes(elements.start)..dtype.n_bytes(elements.end);
        let bytes = within(&self.bytes, bytes);
        if let Some(bytes) = self.file.borrowed(bytes) {
            return Ok(dtype.widen(bytes).unwrap_or_default());
        }
        let mut wide = vec![0.0; elements.len()];
        self.elements_into(elements, &mut wide)?;
        Ok(Cow::Owned(wide))
    }

    fn elements_into(&self, elements: Range<usize>, to: &mut [f32]) -> Result<()> {
        self.file.settle()?;
        let dtype = self.info.dtype;
        let start = self.bytes.start + dtype.n_bytes(elements.start);
        if dtype == Dtype::F32 && cfg!(target_endian = "little") {
            return self.file.read_into(start, bytemuck::cast_slice_mut(to));
        }
        let block_len = dtype.block_len();
        let n_at_once = (READ_AT_ONCE / dtype.size()).max(1) * block_len;
        for (idx, to) in to.chunks_mut(n_at_once).enumerate() {
            let start = start + dtype.n_bytes(idx * n_at_once);
            let n_bytes = dtype.n_bytes(to.len());
            if let Some(bytes) = self.file.borrowed(start..start + n_bytes) {
                dtype.widen_into(bytes, to).unwrap_or_default();
                continue;
            }
            BYTES.with_borrow_mut(|bytes| -> Result<()> {
                bytes.resize(n_bytes, 0);
                self.file.read_into(start, bytes)?;
                dtype.widen_into(bytes, to).unwrap_or_default();
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Borrows a compiled-in f32 matrix, if it is stored as it is used.
    pub fn borrowed(&self) -> Option<&'a [f32]> {
        let is_as_used = self.info.is_plain() && self.info.dtype == Dtype::F32;
        let bytes = self.file.borrowed(self.bytes.clone());
        bytemuck::try_cast_slice(bytes.filter(|_| is_as_used)?).ok()
    }

    /// Whether its elements are bf16 and stored row-major.
    pub fn is_plain_bf16(&self) -> bool {
        let is_as_stored = self.info.is_plain() && self.scales.is_none();
        self.info.dtype == Dtype::Bf16 && is_as_stored && cfg!(target_endian = "little")
    }

    /// Copies the bits of elements from `start` on; the tensor must be [`is_plain_bf16`](Self::is_plain_bf16).
    pub fn bf16_into(&self, start: usize, to: &mut [u16]) -> Result<()> {
        self.file.settle()?;
        let start = self.bytes.start + self.info.dtype.n_bytes(start);
        self.file.read_into(start, bytemuck::cast_slice_mut(to))
    }

    /// Collects indices `rows` of the first dimension in row-major order.
    fn gather(&self, strides: &[usize], rows: Range<usize>) -> Result<Vec<f32>> {
        let (dtype, mut shape) = (self.info.dtype, self.shape.clone());
        let Some(first) = shape.first_mut().filter(|_| dtype.is_float()) else {
            return Ok(Vec::new());
        };
        *first = rows.len();
        let size = dtype.size();
        if shape.contains(&0) {
            return Ok(Vec::new());
        }
        let steps = shape.iter().zip(strides);
        let n_spanned = 1 + steps.map(|(n, stride)| (n - 1) * stride).sum::<usize>();
        let start = rows.start * strides[0];
        let bytes = self.stored_bytes(start * size..(start + n_spanned) * size)?;
        let mut row_major = Vec::with_capacity(shape.iter().product::<usize>() * size);
        append(&mut row_major, &bytes, size, &shape, strides);
        let wide = dtype.widen(&row_major).map(Cow::into_owned);
        Ok(wide.unwrap_or_default())
    }
}

/// Converts a range inside a part of a file to a range of the file, cut off at the end of the part.
fn within(whole: &Range<usize>, part: Range<usize>) -> Range<usize> {
    let place = |at: usize| whole.start.saturating_add(at).min(whole.end);
    place(part.start)..place(part.end)
}

/// Appends the elements of `size` bytes that shape and strides select from `bytes`, row-major.
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
    use std::collections::BTreeMap;

    use super::*;
    use crate::Tensors;

    fn info(dtype: Dtype, shape: &[usize], n_bytes: usize) -> TensorInfo {
        TensorInfo {
            dtype,
            shape: shape.to_vec(),
            strides: None,
            stored: Stored::AsIs,
            scales: None,
            made: None,
            file_idx: 0,
            bytes: 0..n_bytes,
        }
    }

    /// Puts one tensor into a file of its own.
    fn of(info: TensorInfo, bytes: &[u8]) -> Tensors {
        Tensors {
            files: vec![DataFile::in_memory(bytes)],
            index: BTreeMap::from([("it".to_owned(), info)]),
            metadata: Vec::new(),
            saved_order: BTreeMap::new(),
        }
    }

    fn gathered(shape: &[usize], strides: &[usize], rows: Option<Range<usize>>) -> Vec<f32> {
        let bytes: Vec<u8> = (0..24u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
        let info = TensorInfo {
            strides: Some(strides.to_vec()),
            ..info(Dtype::F32, shape, bytes.len())
        };
        let tensors = of(info, &bytes);
        let view = tensors.get("it").expect("a tensor");
        let found = match rows {
            Some(rows) => view.widen_rows(rows),
            None => view.widen(),
        };
        found.expect("reads").into_owned()
    }

    #[test]
    fn strided_elements_are_read_in_row_major_order() {
        assert_eq!(gathered(&[2, 3], &[1, 2], None), [0., 2., 4., 1., 3., 5.]);
        assert_eq!(gathered(&[2, 2], &[10, 1], None), [0., 1., 10., 11.]);
        assert_eq!(gathered(&[3], &[7], None), [0., 7., 14.]);
        assert_eq!(gathered(&[2, 2], &[0, 3], None), [0., 3., 0., 3.]);
        let cube = gathered(&[2, 2, 2], &[1, 4, 2], None);
        assert_eq!(cube, [0., 2., 4., 6., 1., 3., 5., 7.]);
    }

    #[test]
    fn strided_rows_agree_with_the_whole_tensor() {
        let whole = gathered(&[4, 3], &[1, 8], None);
        assert_eq!(gathered(&[4, 3], &[1, 8], Some(1..3)), whole[3..9]);
        assert!(gathered(&[4, 3], &[1, 8], Some(4..4)).is_empty());
    }

    #[test]
    fn only_row_major_bf16_is_returned_as_raw_bits() {
        let bits: Vec<u16> = (0..6).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&bits);
        let plain = of(info(Dtype::Bf16, &[3, 1, 2], bytes.len()), bytes);
        let view = plain.get("it").expect("a tensor");
        assert!(view.is_plain_bf16());
        let mut found = [0; 2];
        view.bf16_into(4, &mut found).expect("reads");
        assert_eq!(found, [4, 5]);
        let turned = TensorInfo {
            strides: Some(vec![1, 3]),
            ..info(Dtype::Bf16, &[3, 2], bytes.len())
        };
        for other in [info(Dtype::F16, &[3, 2], bytes.len()), turned] {
            let tensors = of(other, bytes);
            assert!(!tensors.get("it").expect("a tensor").is_plain_bf16());
        }
    }

    #[test]
    fn leading_axes_of_length_1_change_nothing() {
        let bytes: Vec<u8> = (0..6u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
        for (stored, strides) in [(&[1, 1, 3, 2][..], &[9, 9, 2, 1][..]), (&[3, 2], &[2, 1])] {
            for strides in [None, Some(strides.to_vec())] {
                let info = TensorInfo {
                    strides,
                    ..info(Dtype::F32, stored, bytes.len())
                };
                let tensors = of(info, &bytes);
                for meant in [&[3, 2][..], &[1, 3, 2]] {
                    let view = tensors.expect("it", meant).expect("fits");
                    assert_eq!(
                        view.widen().expect("reads").as_ref(),
                        [0., 1., 2., 3., 4., 5.]
                    );
                }
                let view = tensors.expect("it", &[3, 2]).expect("fits");
                assert_eq!(view.widen_rows(1..2).expect("reads").as_ref(), [2., 3.]);
                assert!(tensors.expect("it", &[6]).is_err());
            }
        }
    }

    #[test]
    fn widening_into_a_buffer_agrees_with_widening() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 << 18).collect();
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::F8E4m3] {
            let n_rows = bytes.len() / dtype.size() / 3;
            let tensors = of(info(dtype, &[n_rows, 3], bytes.len()), &bytes);
            let view = tensors.get("it").expect("a tensor");
            let mut to = vec![0.0; (n_rows - 1) * 3];
            view.widen_rows_into(1..n_rows, &mut to).expect("reads");
            let expected = view.widen_rows(1..n_rows).expect("reads");
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&to), bits(&expected), "{dtype}");
        }
    }
}
