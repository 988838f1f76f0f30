//! Rows for a mixer: padding is zeroed, and copies of a sequence are kept apart.

use std::ops::Range;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;

use super::memory::MixerMemory;
use crate::context::BlockContext;

/// Returns the number of rows per copy of the sequence.
fn n_positions<O: Ops>(context: &BlockContext<'_, O>) -> usize {
    (context.sequence.len() - context.n_past).max(1)
}

/// Zeroes the rows of padding. // rows: [position, width]
pub(crate) fn hide_padding<O: Ops>(context: &BlockContext<'_, O>, rows: &mut [f32], width: usize) {
    if context.sequence.real.is_none() {
        return;
    }
    let n = n_positions(context);
    for (row_idx, row) in rows.chunks_mut(width.max(1)).enumerate() {
        if !context.sequence.is_real(context.n_past + row_idx % n) {
            row.fill(0.0);
        }
    }
}

/// Returns rows with padding zeroed; `None` where there is no padding.
///
/// # Errors
/// When the device fails.
pub(crate) fn without_padding<O: Ops>(
    context: &BlockContext<'_, O>,
    from: &O::Buffer,
) -> Result<Option<O::Buffer>> {
    if context.sequence.real.is_none() {
        return Ok(None);
    }
    let host = context.ops.get(from)?;
    let (width, mut rows) = (host.width, host.values.into_owned());
    hide_padding(context, &mut rows, width);
    let mut hidden = O::Buffer::default();
    context.ops.put(&rows, width, &mut hidden)?;
    Ok(Some(hidden))
}

/// Applies a linear map and returns its outputs on the host. // [position, n_out]
///
/// # Errors
/// When the device fails, or the pace stops it.
pub(super) fn mapped<O: Ops>(
    context: &BlockContext<'_, O>,
    from: &O::Buffer,
    linear: &O::Linear<'_>,
    projected: &mut O::Buffer,
) -> Result<Vec<f32>> {
    context.ops.linear(from, linear, projected, context.pace)?;
    Ok(context.ops.get(projected)?.values.into_owned())
}

/// Runs each copy of the sequence separately. With a memory there is only one copy, which continues from it.
pub(crate) fn each_copy<O: Ops>(
    context: &BlockContext<'_, O>,
    n_rows: usize,
    memory: Option<&mut MixerMemory>,
    mut run: impl FnMut(Range<usize>, &mut MixerMemory) -> Vec<f32>,
) -> Vec<f32> {
    if let Some(memory) = memory {
        return run(0..n_rows, memory);
    }
    let n = n_positions(context);
    let firsts = (0..n_rows).step_by(n);
    firsts
        .flat_map(|first| {
            let rows = first..(first + n).min(n_rows);
            run(rows, &mut MixerMemory::default())
        })
        .collect()
}

/// Concatenates rows of several widths column-wise. // [position, Σ widths]
pub(super) fn concat_columns<const N: usize>(parts: [(&[f32], usize); N]) -> Vec<f32> {
    let n_rows = parts
        .iter()
        .map(|(values, width)| values.len() / (*width).max(1))
        .max()
        .unwrap_or(0);
    let mut all = Vec::with_capacity(parts.iter().map(|(values, _)| values.len()).sum());
    for row_idx in 0..n_rows {
        for (values, width) in parts {
            all.extend_from_slice(&values[row_idx * width..(row_idx + 1) * width]);
        }
    }
    all
}

/// Splits rows into columns of the given widths. // rows: [position, Σ widths]
pub(super) fn split_columns<const N: usize>(rows: &[f32], widths: [usize; N]) -> [Vec<f32>; N] {
    let whole: usize = widths.iter().sum();
    let mut first = 0;
    widths.map(|width| {
        first += width;
        columns(rows, whole, first - width, width)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_columns_undoes_concatenating_them() {
        let (a, b) = ([1.0, 2.0], [3.0, 4.0, 5.0, 6.0]);
        let rows = concat_columns([(&a, 1), (&b, 2)]);
        assert_eq!(rows, [1.0, 3.0, 4.0, 2.0, 5.0, 6.0]);
        assert_eq!(split_columns(&rows, [1, 2]), [a.to_vec(), b.to_vec()]);
    }
}
