//! Merges neighbouring patches behind the last block of a stage: fewer and wider rows for the next.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::MergeSpec;

use super::context::BlockContext;
use super::steps::normed_in_place;

/// Makes the rows of the next stage. // resid: [patch, d] → [fewer patches, width of the next stage]
pub(super) fn merge_patches<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &MergeSpec,
    resid: &mut O::Buffer,
) -> Result<()> {
    let (ops, shelf) = (context.ops, context.shelf());
    let (mut joined, mut spare) = (O::Buffer::default(), O::Buffer::default());
    {
        let host = ops.get(resid)?;
        let width = spec.side * spec.side * host.width;
        let values = side_by_side(spec, &host.values, host.width);
        ops.put_own(values, width, &mut joined)?; // [fewer patches, side · side · d]
    }
    let before = shelf.optional_norm(&spec.before)?;
    normed_in_place(ops, before.as_ref(), &mut joined, &mut spare)?;
    ops.linear(&joined, &shelf.linear(&spec.map)?, resid, context.pace)?;
    let behind = shelf.optional_norm(&spec.behind)?;
    normed_in_place(ops, behind.as_ref(), resid, &mut spare)
}

/// Puts the patches that become one side by side, column after column; zeros stand for those beyond the picture. Copies of a picture
/// follow each other. // values: [copy, patch, width]
fn side_by_side(spec: &MergeSpec, values: &[f32], width: usize) -> Vec<f32> {
    let ([n_rows, n_columns], [to_rows, to_columns]) = (spec.from, spec.to());
    let mut joined = Vec::with_capacity(values.len());
    for patches in values.chunks((n_rows * n_columns * width).max(1)) {
        for (row, column) in (0..to_rows).flat_map(|row| (0..to_columns).map(move |at| (row, at))) {
            for (right, down) in (0..spec.side).flat_map(|at| (0..spec.side).map(move |n| (at, n)))
            {
                let (row, column) = (row * spec.side + down, column * spec.side + right);
                let first = (row * n_columns + column) * width;
                let inside = (row < n_rows && column < n_columns)
                    .then(|| patches.get(first..first + width))
                    .flatten();
                match inside {
                    Some(patch) => joined.extend_from_slice(patch),
                    None => joined.resize(joined.len() + width, 0.0),
                }
            }
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_spec::LinearSource;

    #[test]
    fn patches_are_joined_column_after_column_and_filled_up_with_zeros() {
        let spec = MergeSpec {
            from: [2, 3],
            side: 2,
            before: None,
            map: LinearSource::whole("reduction.weight".to_owned(), None, 4, 2),
            behind: None,
        };
        let both = [
            1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0,
        ];
        assert_eq!(
            side_by_side(&spec, &both, 1),
            [
                1.0, 4.0, 2.0, 5.0, 3.0, 6.0, 0.0, 0.0, 7.0, 10.0, 8.0, 11.0, 9.0, 12.0, 0.0, 0.0
            ]
        );
    }
}
