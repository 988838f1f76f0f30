//! Tensors that no file holds as they are: computed from stored ones when their values are read.

mod adapted;
mod arranged;
mod joined;
mod quantised;
mod reading;

use std::ops::Range;

use attnscope_compute::error::Result;

pub(super) use self::adapted::{Adapted, Low, Magnitude};
pub(super) use self::arranged::Arranged;
pub(super) use self::joined::{Joined, Piece};
pub(super) use self::quantised::{Layout, Nested, Quantised};

use super::data_file::DataFile;
use super::tensor_info::TensorInfo;

/// How a tensor is computed from stored ones. Shapes were checked when it was described.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ComputedTensor {
    /// A matrix plus a low-rank product.
    Adapted(Box<Adapted>),
    /// Stored tensors, each of which is a part of it.
    Joined(Joined),
    /// A matrix of a few bits per value, with scales.
    Quantised(Box<Quantised>),
    /// A tensor with its axes in another order and some of them merged.
    Arranged(Arranged),
    /// The identity, which no file holds: it stands for a map that a model does not have.
    Identity,
}

impl ComputedTensor {
    /// Computes indices `rows` of the first dimension of a tensor of this shape, as f32, row-major.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn rows(
        &self,
        files: &[DataFile],
        rows: Range<usize>,
        shape: &[usize],
    ) -> Result<Vec<f32>> {
        match self {
            Self::Adapted(adapted) => adapted.rows(files, rows, shape),
            Self::Joined(joined) => joined.rows(files, rows, shape),
            Self::Quantised(quantised) => quantised.rows(files, rows, shape),
            Self::Arranged(arranged) => arranged.rows(files, rows, shape),
            Self::Identity => {
                let width: usize = shape.iter().skip(1).product();
                let mut values = vec![0.0; rows.len() * width];
                for (idx, row_idx) in rows.enumerate() {
                    values[idx * width + row_idx] = 1.0;
                }
                Ok(values)
            }
        }
    }

    /// Counts the bytes of all stored tensors that it is made from.
    pub fn n_bytes(&self) -> usize {
        self.parts().iter().map(|part| part.n_bytes()).sum()
    }

    /// Whether some rows can be computed without reading all the others.
    pub fn is_row_wise(&self) -> bool {
        match self {
            Self::Adapted(adapted) => adapted
                .magnitude
                .as_ref()
                .is_none_or(|magnitude| !magnitude.of_columns),
            Self::Joined(_) | Self::Identity => true,
            Self::Quantised(quantised) => quantised.is_row_wise(),
            Self::Arranged(_) => false,
        }
    }

    pub(super) fn parts(&self) -> Vec<&TensorInfo> {
        match self {
            Self::Adapted(adapted) => adapted.parts(),
            Self::Joined(joined) => joined.pieces().iter().map(|piece| &piece.info).collect(),
            Self::Quantised(quantised) => quantised.parts(),
            Self::Arranged(arranged) => vec![&arranged.of],
            Self::Identity => Vec::new(),
        }
    }
}
