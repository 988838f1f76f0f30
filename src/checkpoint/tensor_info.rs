//! Position of a tensor in its file, its encoding, and the tensors that it is computed from.

use std::ops::Range;
use std::sync::Arc;

use super::dtype::Dtype;
use super::made::{Arranged, ComputedTensor};
use super::scales::Scales;
use super::stored::Stored;

/// Position and encoding of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Strides in elements, if the tensor is not row-major.
    pub(super) strides: Option<Vec<usize>>,
    pub(super) file_idx: usize,
    pub(super) bytes: Range<usize>,
    pub(super) stored: Stored,
    /// Separate scales by which the values are multiplied.
    pub(super) scales: Option<Scales>,
    /// How it is computed from other tensors, if no file has it as it is.
    pub(super) made: Option<Arc<ComputedTensor>>,
}

impl TensorInfo {
    /// Whether the elements are stored in the order and form in which they are used.
    pub fn is_plain(&self) -> bool {
        self.strides.is_none() && self.stored == Stored::AsIs && self.made.is_none()
    }

    /// Index of its file among the checkpoint's files.
    pub fn file_idx(&self) -> usize {
        self.file_idx
    }

    /// Number of elements, which was checked against the file when the header was read.
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size in the files, including separate scales.
    pub fn n_bytes(&self) -> usize {
        if let Some(made) = &self.made {
            return made.n_bytes();
        }
        match self.strides {
            // Gaps between the elements do not belong to the tensor.
            Some(_) => self.n_elements() * self.dtype.size(),
            None => self.bytes.len() + self.scales.as_ref().map_or(0, |scales| scales.bytes.len()),
        }
    }

    /// Permutes the axes and merges them to another shape.
    pub(super) fn arranged(&self, order: &[usize], shape: &[usize]) -> Option<Self> {
        let mut seen = order.to_vec();
        seen.sort_unstable();
        let is_order = seen.iter().copied().eq(0..self.shape.len());
        let fits = is_order && shape.iter().product::<usize>() == self.n_elements();
        if !fits || self.stored != Stored::AsIs || self.scales.is_some() {
            return None;
        }
        let is_as_it_lies = order.iter().copied().eq(0..order.len());
        match self.made.as_deref() {
            None => {}
            Some(ComputedTensor::Joined(_)) => {
                let order = if is_as_it_lies { &[] } else { order };
                return Some(self.read_whole(shape, order));
            }
            Some(_) => return None,
        }
        if is_as_it_lies && self.strides.is_none() {
            return Some(Self {
                shape: shape.to_vec(),
                ..self.clone()
            });
        }
        if matches!(self.dtype, Dtype::Block(_)) {
            return None;
        }
        let mut row_major = vec![1; self.shape.len()];
        for axis in (1..self.shape.len()).rev() {
            row_major[axis - 1] = row_major[axis] * self.shape[axis];
        }
        let strides = self.strides.as_ref().unwrap_or(&row_major);
        let turned = Self {
            shape: order.iter().map(|axis| self.shape[*axis]).collect(),
            strides: Some(order.iter().map(|axis| strides[*axis]).collect()),
            ..self.clone()
        };
        if turned.shape == shape {
            return Some(turned);
        }
        Some(turned.read_whole(shape, &[]))
    }

    /// Returns this tensor in another shape, with its axes in another order.
    fn read_whole(&self, shape: &[usize], order: &[usize]) -> Self {
        let arranged = Arranged {
            of: Box::new(self.clone()),
            order: order.to_vec(),
        };
        Self {
            shape: shape.to_vec(),
            strides: None,
            made: Some(Arc::new(ComputedTensor::Arranged(arranged))),
            ..self.clone()
        }
    }

    /// Returns some rows; `None` if they are not contiguous in the file.
    pub(super) fn rows(&self, rows: Range<usize>) -> Option<Self> {
        let is_whole = rows.start <= rows.end && self.shape.first().is_some_and(|n| rows.end <= *n);
        if !self.is_plain() || self.scales.is_some() || self.dtype.block_len() != 1 || !is_whole {
            return None;
        }
        let n_bytes = self.shape.iter().skip(1).product::<usize>() * self.dtype.size();
        let mut shape = self.shape.clone();
        shape[0] = rows.len();
        let start = self.bytes.start + rows.start * n_bytes;
        Some(Self {
            shape,
            bytes: start..start + rows.len() * n_bytes,
            ..self.clone()
        })
    }

    /// Position in the files. If the format keeps the order of writing, this is the order in which the model defines tensors.
    pub fn place(&self) -> (usize, usize) {
        (self.file_idx, self.bytes.start)
    }
}
