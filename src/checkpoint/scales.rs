//! Scales stored in a separate tensor: applied while the requested rows are widened.

use std::borrow::Cow;
use std::ops::Range;

use attnscope_compute::error::Result;
use rayon::prelude::*;

use super::dtype::{Dtype, GROUP, GROUP_BYTES};
use super::small_floats::{half_scale, scaled_e2m1};

/// Position of a tensor's scales, and the values that each of them scales. Shapes were checked when the two were paired.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scales {
    pub file_idx: usize,
    pub bytes: Range<usize>,
    pub of: Scaled,
}

/// Which values share a scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scaled {
    /// MXFP4: a power of two for 32 inputs of an output; stored as [slab, output, input], used as [slab, input, output].
    Groups,
    /// A float for each block of [rows, columns] of a matrix; blocks at the edges may be smaller.
    Blocks { block: [usize; 2], dtype: Dtype },
}

impl Scales {
    /// Widens indices `rows` of the first dimension of a tensor of this shape to f32, row-major.
    ///
    /// Reads only the values and scales that these rows need.
    ///
    /// # Errors
    /// Those of the two read functions.
    pub fn widen_rows<'a>(
        &self,
        (dtype, values): (Dtype, ReadBytes<'_, 'a>),
        scales: ReadBytes<'_, 'a>,
        rows: Range<usize>,
        shape: &[usize],
    ) -> Result<Vec<f32>> {
        match (self.of, shape) {
            (Scaled::Groups, &[_, n_in, n_out]) => {
                let n_groups = n_in / GROUP * n_out;
                let groups_of = rows.start * n_groups..rows.end * n_groups;
                let scales = scales(groups_of.clone())?;
                let in_bytes = groups_of.start * GROUP_BYTES..groups_of.end * GROUP_BYTES;
                Ok(groups(
                    &values(in_bytes)?,
                    &scales,
                    rows.len(),
                    [n_in, n_out],
                ))
            }
            (
                Scaled::Blocks {
                    block: [high, wide],
                    dtype: of_scales,
                },
                &[_, ref middle @ .., width],
            ) => {
                // Stacked matrices are one tall matrix, but blocks start anew in each of them.
                let n_rows: usize = middle.iter().product();
                let blocks = Blocks {
                    high,
                    wide,
                    height: middle.last().copied().unwrap_or(shape[0]),
                    width,
                };
                let rows = rows.start * n_rows..rows.end * n_rows;
                blocks.scaled((dtype, values), (of_scales, scales), rows)
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// The sizes of stacked matrices of equal height, and of the blocks that share a scale.
struct Blocks {
    high: usize,
    wide: usize,
    height: usize,
    width: usize,
}

impl Blocks {
    /// Reads rows, counted through all matrices, and multiplies each value by the scale of its block.
    fn scaled(
        &self,
        (dtype, values): (Dtype, ReadBytes<'_, '_>),
        (of_scales, scales): (Dtype, ReadBytes<'_, '_>),
        rows: Range<usize>,
    ) -> Result<Vec<f32>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let (n_high, n_wide) = (
            self.height.div_ceil(self.high),
            self.width.div_ceil(self.wide),
        );
        let block_row = |row: usize| row / self.height * n_high + row % self.height / self.high;
        let first = block_row(rows.start);
        let needed = first * n_wide..(block_row(rows.end - 1) + 1) * n_wide;
        let scales = scales(of_scales.n_bytes(needed.start)..of_scales.n_bytes(needed.end))?;
        let scales = of_scales.widen(&scales).unwrap_or_default();
        let stored = rows.start * self.width..rows.end * self.width;
        let bytes = values(dtype.n_bytes(stored.start)..dtype.n_bytes(stored.end))?;
        let mut values = dtype.widen(&bytes).unwrap_or_default().into_owned();
        values
            .par_chunks_mut(self.width)
            .enumerate()
            .for_each(|(idx, values)| {
                let at = (block_row(rows.start + idx) - first) * n_wide;
                for (values, scale) in values.chunks_mut(self.wide).zip(&scales[at..]) {
                    values.iter_mut().for_each(|v| *v *= scale);
                }
            });
        Ok(values)
    }
}

/// Reads a range of a tensor's bytes, counted from its first.
type ReadBytes<'f, 'a> = &'f (dyn Fn(Range<usize>) -> Result<Cow<'a, [u8]>> + Sync);

/// Decodes slabs of MXFP4 and transposes them from [output, input] to [input, output].
fn groups(blocks: &[u8], scales: &[u8], n_slabs: usize, [n_in, n_out]: [usize; 2]) -> Vec<f32> {
    let n_groups = n_in / GROUP;
    let mut values = vec![0.0; n_slabs * n_in * n_out];
    values
        .par_chunks_mut(GROUP * n_out) // [input of a group, output]
        .enumerate()
        .for_each(|(idx, values)| {
            let (slab, group) = (idx / n_groups, idx % n_groups);
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
