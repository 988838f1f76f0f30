//! Embeds tokens: the input of the first block.

use std::borrow::Cow;

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_spec::{
    ConstantRow, DroppedToken, EmbedSpec, KeptStart, MadeRow, Model, NormSource, PositionTable,
    Sines, StackSpec, TableSource,
};

use super::chain::run_chain;
use super::patches::{patch_positions, patch_rows};
use super::planes::Plane;
use super::rounded::round_rows;
use super::rows;
use super::sequence::Sequence;
use super::side_stream::begin_side;
use super::stem::sound_rows;
use super::weights::WeightReader;

/// Looks up token and position embeddings and adds them; only the requested rows are read.
///
/// # Errors
/// When an id or a position is outside its table, or a tensor differs from its spec.
pub fn embed<O: Ops>(
    ops: &O,
    model: &Model,
    stack: &StackSpec,
    sequence: &Sequence,
    scratch: &mut O::Buffer,
    resid: &mut O::Buffer,
) -> Result<()> {
    let (spec, tensors) = (&stack.embed, &model.checkpoint.tensors);
    let project = |from: &O::Buffer, to: &mut O::Buffer| match &spec.projection {
        Some(linear) => {
            // A narrow matrix: it finishes before anyone could stop it.
            let pace = &|| false;
            let shelf = WeightReader::new(ops, tensors, pace);
            ops.linear(from, &shelf.linear(linear)?, to, pace)
        }
        None => ops.copy(from, to),
    };
    let mut width = spec.tokens.width;
    let mut rows = match (&spec.patches, &spec.sound) {
        (Some(patches), _) => patch_rows(ops, model, patches, sequence, &sequence.tokens)?,
        (None, Some(stem)) => sound_rows(stem, ops, tensors, sequence)?,
        (None, None) => {
            let mut rows = vec![0.0; sequence.len() * width];
            add_tokens(
                (model, spec),
                &sequence.tokens,
                &sequence.positions,
                &mut rows,
            )?;
            rows
        }
    }; // [position, d_embed]
    if let Some(patches) = &spec.patches {
        width = patches.width();
    }
    if spec.scale != 1.0 {
        rows.iter_mut().for_each(|value| *value *= spec.scale);
    }
    if let Some(dropped) = spec.dropped {
        leave_out(dropped, sequence, width, &mut rows);
    }
    width = add_constants(ops, (model, spec), width, &mut rows)?;
    if spec.has_neighbours {
        (width, rows) = (3 * width, between_neighbours(&rows, width));
    }
    if spec.projects_first {
        ops.put(&rows, width, scratch)?;
        project(scratch, resid)?;
        let projected = ops.get(resid)?;
        (width, rows) = (projected.width, projected.values.into_owned()); // [position, d_model]
    }
    let norm_first = spec.norm.as_ref().filter(|_| spec.norms_before_positions);
    if let Some(norm) = norm_first {
        ops.put(&rows, width, scratch)?;
        apply_norm(ops, model, norm, scratch, resid)?;
        rows = ops.get(resid)?.values.into_owned();
    }
    match &spec.positions {
        Some(PositionTable::Stored(table)) if spec.summary.is_some() => {
            // One row after another: some have no position.
            let places = sequence.tokens.iter().zip(&sequence.positions);
            for (row, (id, position)) in rows.chunks_mut(width.max(1)).zip(places) {
                if !spec.is_summary(*id) {
                    add_rows((model, spec), table, &[*position], row)?;
                }
            }
        }
        Some(PositionTable::Stored(table)) => {
            add_rows((model, spec), table, &sequence.positions, &mut rows)?;
        }
        Some(PositionTable::Sinusoid(sines)) => {
            add_sinusoids(&sequence.positions, *sines, width, &mut rows);
        }
        None => {}
    }
    if let Some(patches) = &spec.patches {
        let positions = patch_positions(model, patches, sequence, &sequence.positions)?;
        rows.iter_mut().zip(&positions).for_each(|(to, p)| *to += p);
    }
    if let Some(table) = &spec.token_types {
        add_rows((model, spec), table, &vec![0; sequence.len()], &mut rows)?;
    }
    ops.put_own(rows, width, resid)?;
    let projects_last = spec.projection.is_some() && !spec.projects_first;
    let norm = spec.norm.as_ref().filter(|_| !spec.norms_before_positions);
    // The order of norm and projection, where both exist.
    for is_norm in [!spec.norms_projected, spec.norms_projected] {
        match norm {
            Some(norm) if is_norm => apply_norm(ops, model, norm, resid, scratch)?,
            None if is_norm => continue,
            _ if projects_last => project(resid, scratch)?,
            _ => continue,
        }
        std::mem::swap(resid, scratch);
    }
    if let Some(chain) = spec.chain.as_deref() {
        let host = ops.get(resid)?;
        let plane = Plane::of_patches(host.values.to_vec(), host.width, [sequence.len(), 1])?;
        drop(host);
        let pace = &|| false;
        let plane = run_chain(chain, &plane, WeightReader::new(ops, tensors, pace))?;
        ops.put_own(plane.values, plane.n_channels, resid)?;
    }
    if let Some(joined) = spec.joined.as_deref() {
        let width = joined.table.width;
        let mut constant = vec![0.0; width];
        sum_constants((model, spec), &joined.constants, &mut constant)?;
        let mut rows = constant.repeat(joined.n);
        let indices: Vec<usize> = (joined.first..joined.first + joined.n).collect();
        add_rows((model, spec), &joined.table, &indices, &mut rows)?;
        rows.extend_from_slice(&ops.get(resid)?.values);
        ops.put_own(rows, width, resid)?;
    }
    match &stack.rows {
        Some(rows) => {
            let side = match &rows.first {
                KeptStart::Side(side) => begin_side(ops, (model, spec), side, sequence)?,
                KeptStart::Nothing | KeptStart::Embedding | KeptStart::Rows => Vec::new(),
            };
            rows::begin((ops, tensors), rows, &side, resid)
        }
        None => Ok(()),
    }
}

/// One summand of a token's embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbedPart {
    Token,
    Position,
    TokenType,
}

/// Returns the summands of one token's embedding, before the norm and the projection that may follow. The token's part includes
/// constant rows, and any projection or norm that comes before positions are added.
///
/// # Errors
/// As for [`embed`].
pub fn embedding_parts<O: Ops>(
    ops: &O,
    model: &Model,
    stack: &StackSpec,
    sequence: &Sequence,
    position_idx: usize,
) -> Result<Vec<(EmbedPart, Vec<f32>)>> {
    let (spec, tensors) = (&stack.embed, &model.checkpoint.tensors);
    let mut row = vec![0.0; spec.tokens.width];
    let id = sequence.tokens[position_idx];
    match (&spec.patches, &spec.sound) {
        (Some(patches), _) => row = patch_rows(ops, model, patches, sequence, &[id])?,
        (None, Some(stem)) => {
            let rows = sound_rows(stem, ops, tensors, sequence)?;
            row.copy_from_slice(&rows[position_idx * spec.tokens.width..][..spec.tokens.width]);
        }
        (None, None) => {
            let position = [sequence.positions[position_idx]];
            add_tokens((model, spec), &[id], &position, &mut row)?;
        }
    }
    row.iter_mut().for_each(|value| *value *= spec.scale);
    if let Some(dropped) = spec.dropped {
        let factor = factors(dropped, sequence)(id);
        row.iter_mut().for_each(|value| *value *= factor);
    }
    let mut width = add_constants(ops, (model, spec), spec.tokens.width, &mut row)?;
    if spec.has_neighbours {
        let n = sequence.len();
        let mut rows = vec![0.0; n * width];
        add_tokens(
            (model, spec),
            &sequence.tokens,
            &sequence.positions,
            &mut rows,
        )?;
        let all = between_neighbours(&rows, width);
        width *= 3;
        row = all[position_idx * width..][..width].to_vec();
    }
    if let Some(linear) = spec.projection.as_ref().filter(|_| spec.projects_first) {
        let pace = &|| false;
        let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
        ops.put(&row, width, &mut from)?;
        let weights = WeightReader::new(ops, tensors, pace).linear(linear)?;
        ops.linear(&from, &weights, &mut to, pace)?;
        row = ops.get(&to)?.values.into_owned();
    }
    let width = row.len();
    if let Some(norm) = spec.norm.as_ref().filter(|_| spec.norms_before_positions) {
        let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
        ops.put(&row, width, &mut from)?;
        apply_norm(ops, model, norm, &from, &mut to)?;
        row = ops.get(&to)?.values.into_owned();
    }
    let mut parts = vec![(EmbedPart::Token, row)];
    let position = [sequence.positions[position_idx]];
    if let Some(positions) = spec.positions.as_ref().filter(|_| !spec.is_summary(id)) {
        let mut row = vec![0.0; width];
        match positions {
            PositionTable::Stored(table) => add_rows((model, spec), table, &position, &mut row)?,
            PositionTable::Sinusoid(sines) => add_sinusoids(&position, *sines, width, &mut row),
        }
        parts.push((EmbedPart::Position, row));
    }
    if let Some(patches) = &spec.patches {
        let row = patch_positions(model, patches, sequence, &position)?;
        parts.push((EmbedPart::Position, row));
    }
    if let Some(table) = &spec.token_types {
        let mut row = vec![0.0; width];
        add_rows((model, spec), table, &[0], &mut row)?;
        parts.push((EmbedPart::TokenType, row));
    }
    Ok(parts)
}

/// Adds the constant rows, and returns the width of the rows, which may grow. // rows: [position, width]
fn add_constants<O: Ops>(
    ops: &O,
    (model, spec): (&Model, &EmbedSpec),
    width: usize,
    rows: &mut Vec<f32>,
) -> Result<usize> {
    if spec.constants.is_empty() && spec.made.is_none() {
        return Ok(width);
    }
    let mut sum = vec![0.0; spec.width()];
    sum_constants((model, spec), &spec.constants, &mut sum)?;
    if let Some(made) = &spec.made {
        let row = made_row(ops, (model, spec), made)?;
        sum.iter_mut()
            .zip(&row)
            .for_each(|(to, value)| *to += value);
    }
    let mut wide = sum.repeat(rows.len() / width.max(1));
    let pairs = wide
        .chunks_mut(sum.len().max(1))
        .zip(rows.chunks(width.max(1)));
    for (to, row) in pairs {
        to.iter_mut().zip(row).for_each(|(to, value)| *to += value);
    }
    *rows = wide;
    Ok(sum.len())
}

/// Adds constant rows at their columns. // sum: [d_embed]
pub(super) fn sum_constants(
    of: (&Model, &EmbedSpec),
    constants: &[ConstantRow],
    sum: &mut [f32],
) -> Result<()> {
    for constant in constants {
        let n = constant.table.width;
        let mut first = vec![0.0; n];
        add_rows(of, &constant.table, &[constant.row], &mut first)?;
        for column in &constant.columns {
            let to = sum[*column..column + n].iter_mut();
            to.zip(&first).for_each(|(to, value)| *to += value);
        }
    }
    Ok(())
}

/// The row that a small network makes of rows of tables. // [d_embed]
fn made_row<O: Ops>(
    ops: &O,
    (model, spec): (&Model, &EmbedSpec),
    made: &MadeRow,
) -> Result<Vec<f32>> {
    let mut row = vec![0.0; made.up.n_in];
    for part in &made.parts {
        let to = &mut row[part.column..][..part.table.width];
        add_rows((model, spec), &part.table, &[part.row], to)?;
    }
    // Two matrices and one row: it finishes before anyone could stop it.
    let pace = &|| false;
    let shelf = WeightReader::new(ops, &model.checkpoint.tensors, pace);
    let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
    ops.put(&row, row.len(), &mut from)?;
    ops.linear(&from, &shelf.linear(&made.up)?, &mut to, pace)?;
    ops.activate(made.activation, &mut to)?;
    ops.linear(&to, &shelf.linear(&made.down)?, &mut from, pace)?;
    Ok(ops.get(&from)?.values.into_owned())
}

/// Puts each row between the next one and the one before it. // rows: [position, width] → [position, 3 · width]
fn between_neighbours(rows: &[f32], width: usize) -> Vec<f32> {
    let all: Vec<&[f32]> = rows.chunks(width.max(1)).collect();
    let none = vec![0.0; width];
    let mut between = Vec::with_capacity(3 * rows.len());
    for (idx, row) in all.iter().enumerate() {
        let before = idx.checked_sub(1).map_or(&none[..], |idx| all[idx]);
        let next = all.get(idx + 1).copied().unwrap_or(&none);
        for part in [next, row, before] {
            between.extend_from_slice(part);
        }
    }
    between
}

/// Zeroes the rows of the left-out token, and scales up the others to compensate. // rows: [position, d_embed]
fn leave_out(dropped: DroppedToken, sequence: &Sequence, width: usize, rows: &mut [f32]) {
    let factor = factors(dropped, sequence);
    for (row, id) in rows.chunks_mut(width.max(1)).zip(&sequence.tokens) {
        let factor = factor(*id);
        row.iter_mut().for_each(|value| *value *= factor);
    }
}

/// Returns the factor of each token's row where one token is left out.
fn factors(dropped: DroppedToken, sequence: &Sequence) -> impl Fn(u32) -> f32 {
    let n_real = (0..sequence.len())
        .filter(|idx| sequence.is_real(*idx))
        .count();
    let is_dropped = move |id: u32| Some(id) == dropped.token;
    let tokens = sequence.tokens.iter();
    let n_dropped = tokens.filter(|id| is_dropped(**id)).count();
    let left = 1.0 - n_dropped as f32 / n_real.max(1) as f32;
    let factor = (1.0 - dropped.share) / left;
    move |id| if is_dropped(id) { 0.0 } else { factor }
}

/// Applies a norm, reading its weights for this one use.
pub(super) fn apply_norm<O: Ops>(
    ops: &O,
    model: &Model,
    norm: &NormSource,
    from: &O::Buffer,
    to: &mut O::Buffer,
) -> Result<()> {
    let tensors = &model.checkpoint.tensors;
    let pace = &|| false;
    let weights = WeightReader::new(ops, tensors, pace).norm(norm)?;
    ops.norm(from, &weights, to)
}

/// Adds the row of each id. // rows: [position, width]
fn add_tokens(
    (model, spec): (&Model, &EmbedSpec),
    ids: &[u32],
    positions: &[usize],
    rows: &mut [f32],
) -> Result<()> {
    let places = ids.iter().zip(positions);
    let Some(summary) = &spec.summary else {
        let at: Vec<usize> = places.map(|(id, at)| spec.row_of(*id, *at)).collect();
        return add_rows((model, spec), &spec.tokens, &at, rows);
    };
    let width = spec.tokens.width.max(1);
    for (row, (id, position)) in rows.chunks_mut(width).zip(places) {
        let (table, at) = if spec.is_summary(*id) {
            (summary, 0)
        } else {
            (&spec.tokens, spec.row_of(*id, *position))
        };
        add_rows((model, spec), table, &[at], row)?;
    }
    Ok(())
}

pub(super) fn add_rows(
    (model, spec): (&Model, &EmbedSpec),
    table: &TableSource,
    indices: &[usize],
    rows: &mut [f32],
) -> Result<()> {
    let view = model
        .checkpoint
        .tensors
        .expect(&table.tensor, &[table.n_rows, table.width])?;
    // Reading one row of a transposed table costs as much as reading all of them.
    let whole = if view.is_row_wise() {
        None
    } else {
        Some(view.widen()?)
    };
    if let Some(at) = indices.iter().find(|at| **at >= table.n_rows) {
        let problem = format!(
            "row {at} of {} does not exist in {}",
            table.n_rows, table.tensor
        );
        return Err(Error::Prompt(problem));
    }
    // Formats of blocks are of tokens alone.
    let format = spec.rounded;
    let format = format.filter(|own| own.number().is_some() || *table == spec.tokens);
    let mut order: Vec<usize> = (0..indices.len()).collect();
    order.sort_unstable_by_key(|row_idx| indices[*row_idx]);
    // Consecutive rows are read at once, and none is read twice.
    let follows = |a: &usize, b: &usize| indices[*b] - indices[*a] <= 1;
    for together in order
        .chunk_by(follows)
        .flat_map(|run| run.chunks(READ_AT_ONCE))
    {
        let (first, last) = (indices[together[0]], indices[together[together.len() - 1]]);
        let from = match &whole {
            Some(whole) => Cow::Borrowed(&whole[first * table.width..(last + 1) * table.width]),
            None => view.widen_rows(first..last + 1)?,
        };
        let from = round_rows(from, table.width, format);
        for row_idx in together {
            let from = &from[(indices[*row_idx] - first) * table.width..][..table.width];
            let row = &mut rows[row_idx * table.width..][..table.width];
            row.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }
    Ok(())
}

/// Number of table rows widened at once.
const READ_AT_ONCE: usize = 256;

/// Adds sines and cosines whose frequencies fall from 1 to 1/10,000.
pub(super) fn add_sinusoids(positions: &[usize], sines: Sines, width: usize, rows: &mut [f32]) {
    let is_to_end = matches!(sines, Sines::HalvesToEnd | Sines::CosinesToEnd);
    // The last column of an odd width stays 0.
    let n_sines = if is_to_end {
        width / 2
    } else {
        width.div_ceil(2)
    };
    for (row, position) in rows.chunks_mut(width).zip(positions) {
        let n_columns = if is_to_end { 2 * n_sines } else { width };
        for (column, value) in row[..n_columns].iter_mut().enumerate() {
            let (is_first, pair_idx) = match sines {
                Sines::Interleaved => (column % 2 == 0, column / 2),
                _ if column < n_sines => (true, column),
                _ => (false, column - n_sines),
            };
            let share = if is_to_end {
                pair_idx as f64 / (width / 2 - 1) as f64
            } else {
                2.0 * pair_idx as f64 / width as f64
            };
            let angle = *position as f64 / 10_000f64.powf(share);
            let is_sine = is_first != (sines == Sines::CosinesToEnd);
            *value += if is_sine { angle.sin() } else { angle.cos() } as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinusoids_begin_with_sines_of_zero_and_cosines_of_one() {
        let mut rows = vec![0.0; 12];
        add_sinusoids(&[0, 3], Sines::Halves, 6, &mut rows);
        assert_eq!(rows[..6], [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        assert!((rows[6] - 3f32.sin()).abs() < 1e-6 && (rows[9] - 3f32.cos()).abs() < 1e-6);
        // Interleaved: each sine is next to its cosine.
        let mut pairs = vec![0.0; 12];
        add_sinusoids(&[0, 3], Sines::Interleaved, 6, &mut pairs);
        let halves = [0, 1, 2].map(|idx| [rows[6 + idx], rows[9 + idx]]).concat();
        assert_eq!(pairs[6..], halves);
    }
}
