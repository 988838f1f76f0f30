//! Where one tensor lies in its file, how it is encoded, and what it is made from.

use std::ops::Range;
use std::sync::Arc;

use super::dtype::Dtype;
use super::made::Made;
use super::scales::Scales;
use super::stored::Stored;

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
    /// How it is put together from other tensors, where no file holds it as it is.
    pub(super) made: Option<Arc<Made>>,
}

impl TensorInfo {
    /// Whether the elements lie in the file as they are used: in row-major order, nothing to undo.
    pub fn is_plain(&self) -> bool {
        self.strides.is_none() && self.stored == Stored::AsIs && self.made.is_none()
    }

    /// Which of the checkpoint's files it lies in.
    pub fn file_idx(&self) -> usize {
        self.file_idx
    }

    /// Number of elements; checked against the file when the header was read.
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size of its elements, and of their scales, in the files.
    pub fn n_bytes(&self) -> usize {
        if let Some(made) = &self.made {
            return made.n_bytes();
        }
        match self.strides {
            // What lies between the elements is not the tensor's.
            Some(_) => self.n_elements() * self.dtype.size(),
            None => self.bytes.len() + self.scales.as_ref().map_or(0, |scales| scales.bytes.len()),
        }
    }

    /// The elements with the axes in another order, brought together into another shape.
    pub(super) fn arranged(&self, order: &[usize], shape: &[usize]) -> Option<Self> {
        let mut seen = order.to_vec();
        seen.sort_unstable();
        let is_order = seen.iter().copied().eq(0..self.shape.len());
        let fits = is_order && shape.iter().product::<usize>() == self.n_elements();
        if !fits || self.stored != Stored::AsIs || self.scales.is_some() || self.made.is_some() {
            return None;
        }
        let is_as_it_lies = order.iter().copied().eq(0..order.len());
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
        Some(Self {
            shape: shape.to_vec(),
            strides: None,
            made: Some(Arc::new(Made::Arranged(Box::new(turned)))),
            ..self.clone()
        })
    }

    /// Where it begins in its file: tensors are written in the order in which a model defines them, where the format keeps it.
    pub fn place(&self) -> (usize, usize) {
        (self.file_idx, self.bytes.start)
    }
}
