//! Scales that lie in a tensor of their own: multiplied in while the rows that are asked for are widened.

use std::ops::Range;

use rayon::prelude::*;

use super::dtype::Dtype;
use super::small_floats::{half_scale, scaled_e2m1};

/// Values that share one scale of MXFP4, and the bytes they take.
pub(super) const GROUP: usize = 32;
pub(super) const GROUP_BYTES: usize = GROUP / 2;

/// Where the scales of a tensor lie, and which values each of them is for. Shapes were checked when the two were paired.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scales {
    pub file_idx: usize,
    pub bytes: Range<usize>,
    pub of: Scaled,
}

/// Which values share a scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scaled {
    /// MXFP4, one power of two for 32 inputs of one output; stored [slab, output, input], meant [slab, input, output].
    Groups,
    /// One floating-point scale for a block of [rows, columns] of a matrix; blocks at the edges are cut off.
    Blocks { block: [usize; 2], dtype: Dtype },
}

impl Scales {
    /// Indices `rows` of the first dimension of a tensor of this shape, as f32, row-major.
    pub fn widen_rows(
        &self,
        values: (Dtype, &[u8]),
        scales: &[u8],
        rows: Range<usize>,
        shape: &[usize],
    ) -> Vec<f32> {
        let (dtype, bytes) = values;
        match (self.of, shape) {
            (Scaled::Groups, &[_, n_in, n_out]) => groups(bytes, scales, rows, [n_in, n_out]),
            (
                Scaled::Blocks {
                    block,
                    dtype: of_scales,
                },
                &[_, ref middle @ .., width],
            ) => {
                // Matrices on top of each other are one tall one, whose blocks begin anew with every matrix.
                let n_rows: usize = middle.iter().product();
                let height = middle.last().copied().unwrap_or(shape[0]);
                let rows = rows.start * n_rows..rows.end * n_rows;
                let matrix = Matrix {
                    dtype,
                    bytes,
                    height,
                    width,
                };
                let scales = of_scales.widen(scales).unwrap_or_default();
                matrix.times(&scales, block, rows)
            }
            _ => Vec::new(),
        }
    }
}

/// Slabs of MXFP4, turned from [output, input] to [input, output].
fn groups(
    blocks: &[u8],
    scales: &[u8],
    slabs: Range<usize>,
    [n_in, n_out]: [usize; 2],
) -> Vec<f32> {
    let n_groups = n_in / GROUP;
    let mut values = vec![0.0; slabs.len() * n_in * n_out];
    values
        .par_chunks_mut(GROUP * n_out) // [input of a group, output]
        .enumerate()
        .for_each(|(idx, values)| {
            let (slab, group) = (slabs.start + idx / n_groups, idx % n_groups);
            for output in 0..n_out {
                let at = (slab * n_out + output) * n_groups + group;
                let scale = half_scale(scales[at]);
                let pairs = &blocks[at * GROUP_BYTES..(at + 1) * GROUP_BYTES];
                for (pair, byte) in pairs.iter().enumerate() {
                    values[2 * pair * n_out + output] = scaled_e2m1(*byte, scale);
                    values[(2 * pair + 1) * n_out + output] = scaled_e2m1(byte >> 4, scale);
                }
            }
        });
    values
}

/// Stored matrices of one height, on top of each other.
struct Matrix<'a> {
    dtype: Dtype,
    bytes: &'a [u8],
    height: usize,
    width: usize,
}

impl Matrix<'_> {
    /// Rows, counted through all matrices, each value times the scale of its block.
    fn times(&self, scales: &[f32], [high, wide]: [usize; 2], rows: Range<usize>) -> Vec<f32> {
        let (height, width) = (self.height, self.width);
        let (n_high, n_wide) = (height.div_ceil(high), width.div_ceil(wide));
        let stored = self.dtype.n_bytes(rows.start * width)..self.dtype.n_bytes(rows.end * width);
        let Some(values) = self.dtype.widen(&self.bytes[stored]) else {
            return Vec::new();
        };
        let mut values = values.into_owned();
        values
            .par_chunks_mut(width)
            .enumerate()
            .for_each(|(idx, values)| {
                let row = rows.start + idx;
                let block_row = row / height * n_high + row % height / high;
                let scales = &scales[block_row * n_wide..(block_row + 1) * n_wide];
                for (values, scale) in values.chunks_mut(wide).zip(scales) {
                    values.iter_mut().for_each(|v| *v *= scale);
                }
            });
        values
    }
}
