//! A tensor with its axes in another order, some of them merged: read whole, since its rows are not in one place.

use std::ops::Range;

use attnscope_compute::error::Result;

use super::reading::all_of;
use crate::data_file::DataFile;
use crate::tensor_info::TensorInfo;

/// The tensor as it is stored or made, and the order of its axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Arranged {
    pub of: Box<TensorInfo>,
    /// Which axis comes first, second, …; empty if `of` has them in order, by its strides.
    pub order: Vec<usize>,
}

impl Arranged {
    /// Reads some rows of a tensor of this shape; nothing if it is not floating point.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn rows(
        &self,
        files: &[DataFile],
        rows: Range<usize>,
        shape: &[usize],
    ) -> Result<Vec<f32>> {
        let width: usize = shape.iter().skip(1).product();
        let mut all = all_of(files, &self.of)?;
        if !self.order.is_empty() && !all.is_empty() {
            all = turned(&all, &self.of.shape, &self.order);
        }
        let chosen = all.get(rows.start * width..rows.end * width);
        Ok(chosen.unwrap_or_default().to_vec())
    }
}

/// Returns row-major values of a shape with the axes in another order.
fn turned(values: &[f32], shape: &[usize], order: &[usize]) -> Vec<f32> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    let mut places = vec![0];
    for axis in order {
        let (n, stride) = (shape[*axis], strides[*axis]);
        let inside = |at: &usize| {
            let at = *at;
            (0..n).map(move |idx| at + idx * stride)
        };
        places = places.iter().flat_map(inside).collect();
    }
    places.into_iter().map(|at| values[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::turned;

    #[test]
    fn axes_are_put_into_another_order() {
        let values: Vec<f32> = (0..6u8).map(f32::from).collect();
        assert_eq!(turned(&values, &[2, 3], &[1, 0]), [0., 3., 1., 4., 2., 5.]);
        assert_eq!(
            turned(&values, &[1, 2, 3], &[2, 0, 1]),
            [0., 3., 1., 4., 2., 5.]
        );
        assert_eq!(turned(&values, &[2, 3], &[0, 1]), values);
    }
}
