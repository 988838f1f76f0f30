//! Merges neighbouring patches behind the last block of a stage: fewer and wider rows for the next.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::{Joining, MergeSpec, SquareMap, StagePlaces, TableSource};

use super::chain::run_chain;
use super::conformer::halve_rows;
use super::context::BlockContext;
use super::grid_maps::{over_patches, over_places};
use super::planes::{Plane, convolve};
use super::steps::normed_in_place;

/// Makes the rows of the next stage. // resid: [patch, d] → [fewer patches, width of the next stage]
pub(super) fn merge_patches<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &MergeSpec,
    resid: &mut O::Buffer,
) -> Result<()> {
    let (ops, shelf) = (context.ops, context.shelf());
    let mut spare = O::Buffer::default();
    normed_in_place(
        ops,
        shelf.optional_norm(&spec.rows)?.as_ref(),
        resid,
        &mut spare,
    )?;
    match &spec.joining {
        Joining::Squares(squares) => map_squares(context, squares, resid)?,
        Joining::Convolution(convolution) => over_patches(context, resid, |plane| {
            // No activation follows the convolution itself.
            convolve(convolution, Activation::Relu, plane, shelf)
        })?,
        Joining::Chain(chain) => {
            over_places(context, resid, |plane| run_chain(chain, plane, shelf))?
        }
        Joining::Halves(module) => halve_rows(context, module, resid)?,
        Joining::SideBySide { side, .. } => over_patches(context, resid, |plane| {
            Ok(side_by_side((*side, true), plane))
        })?,
    }
    let behind = shelf.optional_norm(&spec.behind)?;
    normed_in_place(ops, behind.as_ref(), resid, &mut spare)?;
    match spec.places.as_deref() {
        Some(places) => {
            let grid = context.sequence.grid().map(|grid| spec.to(grid));
            add_places(context, places, grid.unwrap_or_default(), resid)
        }
        None => Ok(()),
    }
}

/// Makes one row of each square of patches. // [patch, d] → [fewer patches, width of the next stage]
fn map_squares<O: Ops>(
    context: &BlockContext<'_, O>,
    squares: &SquareMap,
    resid: &mut O::Buffer,
) -> Result<()> {
    let (ops, shelf) = (context.ops, context.shelf());
    over_patches(context, resid, |plane| {
        Ok(side_by_side((squares.side, squares.is_by_rows), plane))
    })?; // [fewer patches, side · side · d]
    let (mut spare, mut mean) = (O::Buffer::default(), O::Buffer::default());
    if squares.adds_mean {
        let host = ops.get(resid)?;
        let width = host.width / (squares.side * squares.side).max(1);
        ops.put_own(means(&host.values, host.width, width), width, &mut mean)?;
    }
    let norm = shelf.optional_norm(&squares.norm)?;
    normed_in_place(ops, norm.as_ref(), resid, &mut spare)?;
    if let Some((map, activation)) = &squares.hidden {
        ops.linear(resid, &shelf.linear(map)?, &mut spare, context.pace)?;
        ops.activate(*activation, &mut spare)?;
        std::mem::swap(resid, &mut spare);
    }
    ops.linear(
        resid,
        &shelf.linear(&squares.map)?,
        &mut spare,
        context.pace,
    )?;
    std::mem::swap(resid, &mut spare);
    if squares.adds_mean {
        ops.add(resid, &mean)?;
    }
    Ok(())
}

/// Puts the token of a stage before its patches, and adds its positions. // [copy · patch, width] → [copy · row, width]
fn add_places<O: Ops>(
    context: &BlockContext<'_, O>,
    places: &StagePlaces,
    grid: [usize; 2],
    resid: &mut O::Buffer,
) -> Result<()> {
    if places.positions.is_some() && grid != places.grid {
        let ([rows, columns], [stored_rows, stored_columns]) = (grid, places.grid);
        let problem = format!(
            "a stage has {rows} × {columns} patches, the model positions of {stored_rows} × {stored_columns}"
        );
        return Err(Error::Prompt(problem));
    }
    let (ops, tensors, width) = (context.ops, context.tensors, places.width);
    let positions = match &places.positions {
        Some(name) => tensors.expect(name, &places.shape())?.widen()?.to_vec(),
        None => Vec::new(),
    };
    let class = match &places.class {
        Some(name) => tensors.expect(name, &[1, 1, width])?.widen()?.to_vec(),
        None => Vec::new(),
    };
    let mut values = Vec::new();
    for patches in ops
        .get(resid)?
        .values
        .chunks((grid[0] * grid[1] * width).max(1))
    {
        let rows = class.iter().chain(patches).enumerate();
        let at = |idx: usize| positions.get(idx).copied().unwrap_or(0.0);
        values.extend(rows.map(|(idx, value)| value + at(idx)));
    }
    ops.put_own(values, width, resid)
}

/// Puts learned rows before those of each copy of a sequence.
pub(super) fn join_rows<O: Ops>(
    context: &BlockContext<'_, O>,
    table: &TableSource,
    resid: &mut O::Buffer,
) -> Result<()> {
    let ops = context.ops;
    let learned = context.shelf().table(table)?;
    let (values, width) = {
        let host = ops.get(resid)?;
        let n_values = (context.sequence.len() * host.width).max(1);
        let copies = host.values.chunks(n_values);
        let joined = copies.flat_map(|rows| learned.iter().chain(rows).copied());
        (joined.collect::<Vec<f32>>(), host.width)
    };
    ops.put_own(values, width, resid)
}

/// The mean of the patches that become one. // values: [fewer patches, side · side · width]
fn means(values: &[f32], joined: usize, width: usize) -> Vec<f32> {
    let n = joined / width.max(1);
    let mean = |patches: &[f32], at: usize| {
        let own = patches.iter().skip(at).step_by(width.max(1));
        own.sum::<f32>() / n as f32
    };
    values
        .chunks(joined.max(1))
        .flat_map(|patches| (0..width).map(move |at| mean(patches, at)))
        .collect()
}

/// Puts the patches that become one side by side; zeros stand for those beyond the picture.
fn side_by_side((side, is_by_rows): (usize, bool), plane: &Plane) -> Plane {
    let (n_rows, n_columns, width) = (plane.n_rows, plane.n_columns, plane.n_channels);
    let [to_rows, to_columns] = [n_rows, n_columns].map(|n| n.div_ceil(side.max(1)));
    let mut joined = Vec::with_capacity(plane.values.len());
    for (row, column) in (0..to_rows).flat_map(|row| (0..to_columns).map(move |at| (row, at))) {
        for (outer, inner) in (0..side).flat_map(|at| (0..side).map(move |n| (at, n))) {
            let (right, down) = if is_by_rows {
                (inner, outer)
            } else {
                (outer, inner)
            };
            let (row, column) = (row * side + down, column * side + right);
            let first = (row * n_columns + column) * width;
            let inside = (row < n_rows && column < n_columns)
                .then(|| plane.values.get(first..first + width))
                .flatten();
            match inside {
                Some(patch) => joined.extend_from_slice(patch),
                None => joined.resize(joined.len() + width, 0.0),
            }
        }
    }
    Plane {
        values: joined,
        n_rows: to_rows,
        n_columns: to_columns,
        n_channels: side * side * width,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_joined_side_by_side_and_filled_up_with_zeros() {
        let plane = Plane {
            values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            n_rows: 2,
            n_columns: 3,
            n_channels: 1,
        };
        let joined = side_by_side((2, false), &plane);
        assert_eq!(joined.values, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0, 0.0, 0.0]);
        assert_eq!(
            (joined.n_rows, joined.n_columns, joined.n_channels),
            (1, 2, 4)
        );
        let first = side_by_side((2, true), &plane).values;
        assert_eq!(first[..4], [1.0, 2.0, 4.0, 5.0]);
        assert_eq!(means(&first, 4, 1), [3.0, 2.25]);
        assert_eq!(means(&first, 4, 2)[..2], [2.5, 3.5]);
    }
}
