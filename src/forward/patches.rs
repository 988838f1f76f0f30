//! Embeds an image: learned tokens first, then one row per patch, and the position embeddings added to them.

use std::borrow::Cow;

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_prompt::{Picture, taps};
use attnscope_spec::{Chain, Model, PatchLayout, PatchMap, PatchSpec, Resampling};

use super::chain::run_chain;
use super::embed::apply_norm;
use super::moments::add_moment_rows;
use super::planes::Plane;
use super::sequence::Sequence;
use super::weights::WeightReader;

fn seen(sequence: &Sequence) -> Result<&Picture> {
    sequence.picture.as_deref().ok_or_else(|| {
        let problem = "this model reads pictures: expected one with --image FILE, found ids alone";
        Error::Prompt(problem.to_owned())
    })
}

/// Returns the rows of some tokens of an image, without position embeddings. // [id, d_model]
pub(super) fn patch_rows<O: Ops>(
    ops: &O,
    model: &Model,
    spec: &PatchSpec,
    sequence: &Sequence,
    ids: &[u32],
) -> Result<Vec<f32>> {
    let (picture, width) = (seen(sequence)?, spec.width());
    let (n_first, n_patches) = (spec.n_first(), picture.n_patches());
    let tensors = &model.checkpoint.tensors;
    let mut learned = Vec::with_capacity(n_first * width);
    for tokens in &spec.firsts {
        let mut stored = tensors
            .expect(&tokens.tensor, &tokens.shape)?
            .widen()?
            .to_vec();
        if let Some(name) = &tokens.place {
            let place = tensors.expect(name, &tokens.shape)?.widen()?;
            let pairs = stored.iter_mut().zip(place.iter());
            pairs.for_each(|(value, place)| *value += place);
        }
        let n_times = if tokens.is_repeated { tokens.n } else { 1 };
        learned.extend_from_slice(&stored.repeat(n_times));
    }
    let outside = ids.iter().find(|id| **id as usize >= n_first + n_patches);
    if let Some(id) = outside {
        let problem = format!(
            "token id {id} is none of the {} tokens of the picture",
            n_first + n_patches
        );
        return Err(Error::Prompt(problem));
    }
    let patches: Vec<usize> = ids
        .iter()
        .filter_map(|id| (*id as usize).checked_sub(n_first))
        .collect();
    let map = match &spec.map {
        PatchMap::Linear(map) => map,
        PatchMap::Chain(chain) => {
            let all = chained_rows(ops, tensors, chain, picture)?;
            let row = |patch: usize| all.get(patch * width..(patch + 1) * width);
            let mut rows = Vec::with_capacity(ids.len() * width);
            for id in ids.iter().map(|id| *id as usize) {
                let learned = learned.get(id * width..(id + 1) * width);
                let row = id.checked_sub(n_first).map_or(learned, row);
                rows.extend_from_slice(row.unwrap_or_default());
            }
            return Ok(rows);
        }
    };
    let mut values = Vec::with_capacity(patches.len() * map.n_in);
    for patch_idx in patches.iter().copied() {
        let first = values.len();
        picture.patch(patch_idx, &mut values);
        arrange(
            spec,
            picture.patch_size().iter().product(),
            first,
            &mut values,
        );
    }
    let projected = if patches.is_empty() {
        Vec::new()
    } else {
        let pace = &|| false;
        let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
        ops.put(&values, map.n_in, &mut from)?;
        if let Some(norm) = &spec.value_norm {
            apply_norm(ops, model, norm, &from, &mut to)?;
            std::mem::swap(&mut from, &mut to);
        }
        let weights = WeightReader::new(ops, tensors, pace).linear(map)?;
        ops.linear(&from, &weights, &mut to, pace)?;
        if let Some(norm) = &spec.row_norm {
            apply_norm(ops, model, norm, &to, &mut from)?;
            std::mem::swap(&mut from, &mut to);
        }
        ops.get(&to)?.values.into_owned()
    };
    let mut of_patches = projected.chunks(width);
    let mut rows = Vec::with_capacity(ids.len() * width);
    for id in ids.iter().map(|id| *id as usize) {
        if id < n_first {
            rows.extend_from_slice(&learned[id * width..(id + 1) * width]);
        } else if let Some(row) = of_patches.next() {
            rows.extend_from_slice(row);
        }
    }
    Ok(rows)
}

/// The rows that a chain of convolutions makes of all pixels. // [patch, width]
fn chained_rows<O: Ops>(
    ops: &O,
    tensors: &Tensors,
    chain: &Chain,
    picture: &Picture,
) -> Result<Vec<f32>> {
    let size = picture.size();
    let values = channels_last(picture.values(), chain.n_in);
    let pixels = Plane::of_patches(values, chain.n_in, size)?;
    let pace = &|| false;
    let plane = run_chain(chain, &pixels, WeightReader::new(ops, tensors, pace))?;
    let (found, grid) = ([plane.n_rows, plane.n_columns], picture.grid());
    if found != grid {
        let problem = format!(
            "expected {} × {} places behind the convolutions, found {} × {}",
            grid[1], grid[0], found[1], found[0]
        );
        return Err(Error::Prompt(problem));
    }
    Ok(plane.values)
}

/// Repeats the channels of the last patch by frames, and puts its values in the order of its map. // values from `first` on: [channel, pixel]
fn arrange(spec: &PatchSpec, n_pixels: usize, first: usize, values: &mut Vec<f32>) {
    if spec.n_frames == 1 && spec.layout == PatchLayout::ChannelsFirst {
        return;
    }
    let patch = values.split_off(first);
    let n_channels = patch.len() / n_pixels.max(1);
    let (frames, channels, pixels) = (0..spec.n_frames, 0..n_channels, 0..n_pixels);
    let at = |channel: usize, pixel: usize| patch[channel * n_pixels + pixel];
    match spec.layout {
        PatchLayout::FramesFirst => values.extend(patch.repeat(spec.n_frames)),
        PatchLayout::ChannelsFirst => {
            let rows = patch.chunks(n_pixels.max(1));
            values.extend(rows.flat_map(|channel| channel.repeat(spec.n_frames)));
        }
        PatchLayout::ChannelsLast => {
            let of_pixel = |pixel: usize| channels.clone().map(move |channel| (channel, pixel));
            let all = frames.flat_map(|_| pixels.clone().flat_map(of_pixel));
            values.extend(all.map(|(channel, pixel)| at(channel, pixel)));
        }
        PatchLayout::FramesInside => {
            let of_pixel = |pixel: usize| channels.clone().map(move |channel| (channel, pixel));
            let all = pixels.flat_map(|pixel| frames.clone().flat_map(move |_| of_pixel(pixel)));
            values.extend(all.map(|(channel, pixel)| at(channel, pixel)));
        }
    }
}

/// Returns position embeddings at some places of an image; zeros for learned tokens without a position. // [place, d_model]
pub(super) fn patch_positions(
    model: &Model,
    spec: &PatchSpec,
    sequence: &Sequence,
    places: &[usize],
) -> Result<Vec<f32>> {
    let (picture, width) = (seen(sequence)?, spec.width());
    let tensors = &model.checkpoint.tensors;
    let Some(stored) = &spec.positions else {
        let mut rows = vec![0.0; places.len() * width];
        for (axis, lines) in spec.lines.iter().flatten().enumerate() {
            let table = tensors.expect(&lines.tensor, &lines.shape)?.widen()?;
            for (to, place) in rows.chunks_mut(width.max(1)).zip(places) {
                let Some(patch_idx) = place.checked_sub(spec.n_first()) else {
                    continue;
                };
                let line = picture.place(patch_idx)[axis];
                let from = table.chunks(width.max(1)).nth(lines.first + line);
                let Some(from) = from.filter(|_| line < lines.n) else {
                    let problem = format!(
                        "the picture has {} × {} patches, the model positions of {} lines",
                        picture.grid()[0],
                        picture.grid()[1],
                        lines.n
                    );
                    return Err(Error::Prompt(problem));
                };
                to.iter_mut().zip(from).for_each(|(to, value)| *to += value);
            }
        }
        return Ok(rows);
    };
    let mut table = tensors.expect(&stored.tensor, &stored.shape)?.widen()?;
    if stored.has_channels_first {
        table = Cow::Owned(channels_last(&table, width));
    }
    let (before, rest) = table.split_at(stored.n_first * width);
    let (grid, behind) = rest.split_at(rest.len() - stored.n_behind * width);
    let first = [before, behind].concat();
    let wanted = picture.grid();
    // Bins of an equal grid may still be others, by rounding.
    let is_equal = wanted == stored.grid && stored.resampled != Some(Resampling::Bins);
    let grid = if is_equal {
        Cow::Borrowed(grid)
    } else {
        let Some(resampling) = stored.resampled else {
            let [rows, columns] = stored.grid;
            let problem = format!(
                "the picture has {} × {} patches, the model positions of {rows} × {columns}",
                wanted[0], wanted[1]
            );
            return Err(Error::Prompt(problem));
        };
        let wanted = match resampling {
            Resampling::LinearTurned => [wanted[1], wanted[0]],
            _ => wanted,
        };
        Cow::Owned(resampled(grid, width, stored.grid, wanted, resampling))
    };
    let grid = match &stored.tiles {
        Some(tiles) => {
            let tile = tensors
                .expect(&tiles.tensor, &tiles.shape(width))?
                .widen()?;
            let tile = channels_last(&tile, width);
            let tiled = resampled(&tile, width, tiles.grid, wanted, Resampling::Tiles);
            let sums = grid.iter().zip(tiled).map(|(place, tile)| place + tile);
            Cow::Owned(sums.collect())
        }
        None => grid,
    };
    let shared = first.chunks(width.max(1)).next();
    let shared = shared.filter(|_| stored.shares_first);
    // For each learned token, its row in `first`, if it has a position.
    let mut n_before = 0;
    let mut of_firsts = Vec::new();
    for learned in &spec.firsts {
        let n_stored = if learned.is_repeated { 1 } else { learned.n };
        for nth in 0..learned.n {
            let row = n_before + nth % n_stored.max(1);
            of_firsts.push(learned.has_positions.then_some(row));
        }
        if learned.has_positions {
            n_before += n_stored;
        }
    }
    let mut rows = vec![0.0; places.len() * width];
    for (to, place) in rows.chunks_mut(width.max(1)).zip(places) {
        let from = match place.checked_sub(of_firsts.len()) {
            None => of_firsts[*place].and_then(|row| first.chunks(width).nth(row)),
            Some(patch_idx) => {
                let place = match stored.n_moments {
                    1 => patch_idx % (wanted[0] * wanted[1]).max(1),
                    _ => patch_idx,
                };
                let row = grid.chunks(width).nth(place);
                let row = row.filter(|_| patch_idx < picture.n_patches());
                Some(row.ok_or_else(|| {
                    Error::Prompt(format!("position {place} lies outside the picture"))
                })?)
            }
        };
        if let Some(from) = from {
            to.copy_from_slice(from);
        }
        if let Some(shared) = shared.filter(|_| *place >= of_firsts.len()) {
            to.iter_mut()
                .zip(shared)
                .for_each(|(to, value)| *to += value);
        }
    }
    if let Some(moments) = &stored.moments {
        add_moment_rows(
            tensors,
            moments,
            (picture, of_firsts.len()),
            places,
            &mut rows,
        )?;
    }
    Ok(rows)
}

/// Turns a grid of rows whose channels are stored first. // [channel, row, column] → [row, column, channel]
fn channels_last(grid: &[f32], width: usize) -> Vec<f32> {
    let n_places = grid.len() / width.max(1);
    let of_place = |place: usize| grid.iter().skip(place).step_by(n_places.max(1)).copied();
    (0..n_places).flat_map(of_place).collect()
}

/// Resamples a grid of rows to another grid size. // grid: [row, column, width]
fn resampled(
    grid: &[f32],
    width: usize,
    [n_rows, n_columns]: [usize; 2],
    [to_rows, to_columns]: [usize; 2],
    resampling: Resampling,
) -> Vec<f32> {
    let [whole_rows, whole_columns] = match resampling {
        Resampling::LinearSquare => [to_rows.max(to_columns); 2],
        _ => [to_rows, to_columns],
    };
    let mut wide = vec![0.0f32; n_rows * to_columns * width]; // [row, to_column, width]
    let columns = taps(n_columns, whole_columns, resampling);
    for (to_column, weights) in columns.iter().take(to_columns).enumerate() {
        for row in 0..n_rows {
            let to = &mut wide[(row * to_columns + to_column) * width..][..width];
            for (column, weight) in weights {
                let from = &grid[(row * n_columns + column) * width..][..width];
                to.iter_mut()
                    .zip(from)
                    .for_each(|(to, from)| *to += *weight as f32 * from);
            }
        }
    }
    let mut tall = vec![0.0f32; to_rows * to_columns * width];
    let line = to_columns * width;
    let rows = taps(n_rows, whole_rows, resampling);
    for (to_row, weights) in rows.iter().take(to_rows).enumerate() {
        let to = &mut tall[to_row * line..][..line];
        for (row, weight) in weights {
            let from = &wide[row * line..][..line];
            to.iter_mut()
                .zip(from)
                .for_each(|(to, from)| *to += *weight as f32 * from);
        }
    }
    tall
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resampling_keeps_a_plane_nearly_flat_inside_the_grid() {
        // Values grow by 1 per column and by 10 per row.
        let grid: Vec<f32> = (0..8)
            .flat_map(|row| (0..8).map(move |column| (10 * row + column) as f32))
            .collect();
        // Expected values are from torch 2.13's `interpolate`: with a = −0.75, a line stays only nearly straight between
        // samples.
        for (resampling, expected) in [
            (Resampling::Nearest, 40.818_3),
            (Resampling::Antialiased, 41.333_33),
        ] {
            let finer = resampled(&grid, 1, [8, 8], [16, 12], resampling);
            let found = finer[8 * 12 + 6];
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
        let coarse = resampled(&grid, 1, [8, 8], [4, 4], Resampling::Antialiased);
        // By symmetry, the overall mean is kept.
        let mean = coarse.iter().sum::<f32>() / 16.0;
        assert!((mean - 38.5).abs() < 1e-3, "{mean}");
    }
}
