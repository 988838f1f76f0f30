//! A tensor that is put together from stored ones, each of which holds a box of it.

use std::ops::Range;
use std::sync::Arc;

use attnscope_compute::error::Result;

use super::ComputedTensor;
use super::reading::rows_of;
use crate::data_file::DataFile;
use crate::tensor_info::TensorInfo;
use crate::tensor_view::TensorView;

/// The parts of a tensor. Together they cover it, and no two overlap.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    pieces: Vec<Piece>,
}

/// A stored tensor, and where its first element is in the whole: one offset for each axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    pub offsets: Vec<usize>,
    pub info: TensorInfo,
}

impl Joined {
    /// Joins parts that follow each other along an axis, which all of them have.
    pub fn along(axis: usize, parts: Vec<TensorInfo>) -> Self {
        let mut before = 0;
        let piece = |info: TensorInfo| {
            let mut offsets = vec![0; info.shape.len()];
            offsets[axis] = before;
            before += info.shape[axis];
            Piece { offsets, info }
        };
        Self {
            pieces: parts.into_iter().map(piece).collect(),
        }
    }

    /// Describes the tensor of a shape that pieces cover: as the only piece, or as one to be joined, whose pieces have at least one
    /// axis. `None` if there is no piece.
    pub fn whole(shape: Vec<usize>, mut pieces: Vec<Piece>) -> Option<TensorInfo> {
        if pieces.len() == 1 {
            return pieces.pop().map(|piece| piece.info);
        }
        let first = pieces.first()?.info.clone();
        Some(TensorInfo {
            shape,
            strides: None,
            scales: None,
            made: Some(Arc::new(ComputedTensor::Joined(Self { pieces }))),
            ..first
        })
    }

    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Reads some rows of the whole tensor; nothing if its parts are not floating point.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn rows(
        &self,
        files: &[DataFile],
        rows: Range<usize>,
        shape: &[usize],
    ) -> Result<Vec<f32>> {
        let infos = || self.pieces.iter().map(|piece| &piece.info);
        if !infos().all(|info| info.dtype.is_float()) {
            return Ok(Vec::new());
        }
        let width: usize = shape.iter().skip(1).product();
        let mut values = vec![0.0; rows.len() * width];
        let mut whole = shape.to_vec();
        whole[0] = rows.len();
        for Piece { offsets, info } in &self.pieces {
            let first = offsets[0];
            let own = rows.start.max(first)..rows.end.min(first + info.shape[0]);
            if own.is_empty() || info.n_elements() == 0 {
                continue;
            }
            let stored = own.start - first..own.end - first;
            let at = own.start - rows.start;
            if info.shape[1..] == shape[1..] {
                let to = &mut values[at * width..][..own.len() * width];
                TensorView::new(info, files).widen_rows_into(stored, to)?;
                continue;
            }
            let (mut part, mut offsets) = (info.shape.clone(), offsets.clone());
            (part[0], offsets[0]) = (own.len(), at);
            let read = rows_of(files, info, stored)?;
            put((&mut values, &whole), (&read, &part), &offsets);
        }
        Ok(values)
    }
}

/// Copies a part into the whole, both row-major and of the given shapes, from `offsets` on.
fn put((to, whole): (&mut [f32], &[usize]), (from, part): (&[f32], &[usize]), offsets: &[usize]) {
    let (width, n) = (
        whole[1..].iter().product::<usize>(),
        part[1..].iter().product::<usize>(),
    );
    if whole[1..] == part[1..] {
        to[offsets[0] * width..][..from.len()].copy_from_slice(from);
        return;
    }
    for (idx, from) in from.chunks_exact(n).enumerate() {
        let to = &mut to[(offsets[0] + idx) * width..][..width];
        put((to, &whole[1..]), (from, &part[1..]), &offsets[1..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;
    use crate::stored::Stored;

    /// A part of consecutive numbers from `first` on, all in one file of 0, 1, 2, ….
    fn part(first: usize, shape: &[usize]) -> TensorInfo {
        TensorInfo {
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            strides: None,
            file_idx: 0,
            bytes: first * 4..(first + shape.iter().product::<usize>()) * 4,
            stored: Stored::AsIs,
            scales: None,
            made: None,
        }
    }

    fn file() -> Vec<DataFile> {
        let bytes: Vec<u8> = (0..24u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
        vec![DataFile::in_memory(&bytes)]
    }

    #[test]
    fn parts_follow_each_other_along_an_axis() {
        let by_rows = Joined::along(0, vec![part(0, &[1, 2]), part(2, &[2, 2])]);
        let rows = |joined: &Joined, rows, shape: &[usize]| joined.rows(&file(), rows, shape);
        assert_eq!(
            rows(&by_rows, 0..3, &[3, 2]).expect("reads"),
            [0., 1., 2., 3., 4., 5.]
        );
        assert_eq!(rows(&by_rows, 1..2, &[3, 2]).expect("reads"), [2., 3.]);
        let by_columns = Joined::along(1, vec![part(0, &[2, 1]), part(2, &[2, 2])]);
        assert_eq!(
            rows(&by_columns, 0..2, &[2, 3]).expect("reads"),
            [0., 2., 3., 1., 4., 5.]
        );
        assert_eq!(
            rows(&by_columns, 1..2, &[2, 3]).expect("reads"),
            [1., 4., 5.]
        );
    }

    #[test]
    fn boxes_are_put_at_their_offsets_in_any_order() {
        let piece = |offsets: &[usize], info| Piece {
            offsets: offsets.to_vec(),
            info,
        };
        // Rows 0 and 1 are 0 1 2 | 10, row 2 is 20 | 3 4 5 in another division.
        let pieces = vec![
            piece(&[2, 1], part(3, &[1, 3])),
            piece(&[0, 0], part(0, &[2, 3])),
            piece(&[0, 3], part(10, &[2, 1])),
            piece(&[2, 0], part(20, &[1, 1])),
        ];
        let joined = Joined { pieces };
        let found = joined.rows(&file(), 0..3, &[3, 4]).expect("reads");
        assert_eq!(found, [0., 1., 2., 10., 3., 4., 5., 11., 20., 3., 4., 5.]);
        assert_eq!(
            joined.rows(&file(), 1..3, &[3, 4]).expect("reads"),
            found[4..]
        );
        let deep = Joined::along(2, vec![part(0, &[2, 2, 1]), part(4, &[2, 2, 2])]);
        let found = deep.rows(&file(), 0..2, &[2, 2, 3]).expect("reads");
        assert_eq!(found, [0., 4., 5., 1., 6., 7., 2., 8., 9., 3., 10., 11.]);
    }
}
