//! A matrix with a low-rank adapter: W + s·B·A, with DoRA's magnitudes if there are any.

use std::ops::Range;

use attnscope_compute::error::Result;
use rayon::prelude::*;

use super::reading::{all_of, rows_of};
use crate::data_file::DataFile;
use crate::tensor_info::TensorInfo;

/// A matrix of the base model and its low-rank update.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapted {
    /// The matrix of the base model.
    pub base: TensorInfo,
    pub low: Low,
    /// Factor of the product of the two low-rank matrices.
    pub scale: f32,
    pub magnitude: Option<Magnitude>,
}

/// The two low-rank matrices, named by the axis of the base that each one shares.
#[derive(Debug, Clone, PartialEq)]
pub struct Low {
    /// [row of the base, rank], or the transpose.
    pub by_row: TensorInfo,
    /// [rank, column of the base], or the transpose.
    pub by_column: TensorInfo,
    /// Whether both are stored transposed, because the base is [input, output].
    pub is_transposed: bool,
}

/// Lengths to which the outputs of the sum are rescaled (DoRA; Liu et al. 2024, arXiv 2402.09353).
#[derive(Debug, Clone, PartialEq)]
pub struct Magnitude {
    /// // [output]
    pub lengths: TensorInfo,
    /// Whether outputs are the columns of the base, not its rows.
    pub of_columns: bool,
}

impl Adapted {
    pub fn parts(&self) -> Vec<&TensorInfo> {
        let own = [&self.base, &self.low.by_row, &self.low.by_column];
        let lengths = self.magnitude.iter().map(|magnitude| &magnitude.lengths);
        own.into_iter().chain(lengths).collect()
    }

    /// Computes some rows of the sum.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn rows(
        &self,
        files: &[DataFile],
        rows: Range<usize>,
        shape: &[usize],
    ) -> Result<Vec<f32>> {
        let &[n_rows, width] = shape else {
            return Ok(Vec::new());
        };
        let Some(magnitude) = &self.magnitude else {
            return self.sum(files, rows, [n_rows, width]);
        };
        let lengths = all_of(files, &magnitude.lengths)?;
        if magnitude.of_columns {
            let mut whole = self.sum(files, 0..n_rows, [n_rows, width])?;
            let mut squares = vec![0.0f64; width];
            for row in whole.chunks(width) {
                for (square, value) in squares.iter_mut().zip(row) {
                    *square += f64::from(*value) * f64::from(*value);
                }
            }
            let factors: Vec<f32> = factors(&lengths, squares.into_iter());
            whole.truncate(rows.end * width);
            let mut values = whole.split_off(rows.start * width);
            for row in values.chunks_mut(width) {
                row.iter_mut().zip(&factors).for_each(|(v, f)| *v *= f);
            }
            return Ok(values);
        }
        let mut values = self.sum(files, rows.clone(), [n_rows, width])?;
        let square = |row: &[f32]| row.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
        let factors = factors(&lengths[rows], values.chunks(width).map(square));
        for (row, factor) in values.chunks_mut(width).zip(factors) {
            row.iter_mut().for_each(|v| *v *= factor);
        }
        Ok(values)
    }

    /// Adds the scaled product to the base.
    fn sum(
        &self,
        files: &[DataFile],
        rows: Range<usize>,
        [n_rows, width]: [usize; 2],
    ) -> Result<Vec<f32>> {
        let mut values = rows_of(files, &self.base, rows.clone())?;
        let (by_row, by_column) = if self.low.is_transposed {
            let by_row = turned(&all_of(files, &self.low.by_row)?, n_rows);
            let rank = by_row.len() / n_rows.max(1);
            (by_row, turned(&all_of(files, &self.low.by_column)?, rank))
        } else {
            (
                all_of(files, &self.low.by_row)?,
                all_of(files, &self.low.by_column)?,
            )
        };
        let rank = by_row.len() / n_rows.max(1);
        let of_rows = &by_row[rows.start * rank..rows.end * rank];
        values
            .par_chunks_mut(width.max(1))
            .zip(of_rows.par_chunks(rank.max(1)))
            .for_each(|(row, weights)| {
                let mut added = vec![0.0f64; row.len()];
                for (weight, column) in weights.iter().zip(by_column.chunks(width)) {
                    for (to, value) in added.iter_mut().zip(column) {
                        *to += f64::from(*weight) * f64::from(*value);
                    }
                }
                for (value, added) in row.iter_mut().zip(added) {
                    *value = (f64::from(*value) + f64::from(self.scale) * added) as f32;
                }
            });
        Ok(values)
    }
}

/// Computes the factors that rescale vectors to `lengths`, given their sums of squares.
fn factors(lengths: &[f32], squares: impl Iterator<Item = f64>) -> Vec<f32> {
    let both = lengths.iter().zip(squares);
    both.map(|(length, square)| (f64::from(*length) / square.sqrt()) as f32)
        .collect()
}

/// Transposes a matrix [n, columns].
fn turned(values: &[f32], n_columns: usize) -> Vec<f32> {
    let n_rows = values.len() / n_columns.max(1);
    let mut turned = Vec::with_capacity(values.len());
    for column in 0..n_columns {
        turned.extend((0..n_rows).map(|row| values[row * n_columns + column]));
    }
    turned
}
