//! A tensor that is the concatenation of several stored ones along an axis.

use std::ops::Range;

use attnscope_compute::error::Result;

use super::reading::{all_of, rows_of};
use crate::data_file::DataFile;
use crate::tensor_info::TensorInfo;

/// The parts of a concatenated tensor, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    pub parts: Vec<TensorInfo>,
    /// The axis of concatenation: 0 or 1.
    pub axis: usize,
}

impl Joined {
    /// Reads some rows of the whole tensor.
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
        let mut values = Vec::with_capacity(rows.len() * width);
        if self.axis == 0 {
            let mut before = 0;
            for part in &self.parts {
                let n = part.shape.first().copied().unwrap_or(1);
                let own = rows.start.max(before)..rows.end.min(before + n);
                if !own.is_empty() {
                    values.extend(rows_of(files, part, own.start - before..own.end - before)?);
                }
                before += n;
            }
            return Ok(values);
        }
        let read = |part: &TensorInfo| {
            let width: usize = part.shape.iter().skip(1).product();
            let values = match part.shape.first() {
                Some(_) => rows_of(files, part, rows.clone())?,
                None => all_of(files, part)?,
            };
            Ok((width, values))
        };
        let parts: Vec<(usize, Vec<f32>)> = self.parts.iter().map(read).collect::<Result<_>>()?;
        for row in 0..rows.len() {
            for (width, part) in &parts {
                values.extend_from_slice(&part[row * width..(row + 1) * width]);
            }
        }
        Ok(values)
    }
}
