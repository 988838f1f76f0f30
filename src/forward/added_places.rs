//! Adds rows that tell places to what queries and keys are made of.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_spec::{PlaceRows, SineScale};

use super::block_weights::MlpWeights;
use super::context::BlockContext;
use super::mlp::run_mlp;
use super::scratch::MlpScratch;
use super::sequence::Sequence;

/// What divides a row's or a column's number besides their number, so that nothing is divided by 0.
const LEAST: f64 = 1e-6;

/// The rows of a residual, or of an encoder's output, with those of their places added. // [position, d_model]
pub(super) fn at_places<O: Ops>(
    context: &BlockContext<'_, O>,
    rows: &PlaceRows,
    (from, sequence, positions): (&O::Buffer, &Sequence, &[usize]),
) -> Result<O::Buffer> {
    let ops = context.ops;
    let host = ops.get(from)?;
    let (width, mut values) = (host.width, host.values.into_owned());
    let factors = match rows.factors() {
        Some(spec) => {
            let weights = MlpWeights::read(context.shelf(), spec)?;
            let (mut scratch, mut factors) = (MlpScratch::default(), O::Buffer::default());
            run_mlp(context, spec, &weights, from, &mut scratch, &mut factors)?;
            Some(ops.get(&factors)?.values.into_owned())
        }
        None => None,
    };
    let table = table(context, rows, sequence, width)?;
    let n_rows = table.len() / width.max(1);
    // Copies of a sequence lie behind each other, with the same positions.
    let positions = positions.iter().cycle();
    for (idx, (row, position)) in values.chunks_mut(width.max(1)).zip(positions).enumerate() {
        if *position >= n_rows {
            let problem = format!(
                "expected at most {n_rows} positions, found {}",
                position + 1
            );
            return Err(Error::Prompt(problem));
        }
        let place = &table[position * width..][..width];
        match &factors {
            Some(factors) => {
                let factors = &factors[idx * width..][..width];
                let scaled = place.iter().zip(factors).map(|(p, factor)| p * factor);
                row.iter_mut().zip(scaled).for_each(|(v, p)| *v += p);
            }
            None => row.iter_mut().zip(place).for_each(|(v, p)| *v += p),
        }
    }
    let mut to = O::Buffer::default();
    ops.put_own(values, width, &mut to)?;
    Ok(to)
}

/// The row of each position, before factors multiply it. // [position, width]
fn table<O: Ops>(
    context: &BlockContext<'_, O>,
    rows: &PlaceRows,
    sequence: &Sequence,
    width: usize,
) -> Result<Vec<f32>> {
    let ops = context.ops;
    Ok(match rows {
        PlaceRows::Stored(table) => context.shelf().table(table)?.into_owned(),
        PlaceRows::Mapped(table, map) => {
            let (mut stored, mut mapped) = (O::Buffer::default(), O::Buffer::default());
            let rows = context.shelf().table(table)?.into_owned();
            ops.put_own(rows, table.width, &mut stored)?;
            let map = context.shelf().linear(map)?;
            ops.linear(&stored, &map, &mut mapped, context.pace)?;
            ops.get(&mapped)?.values.into_owned()
        }
        PlaceRows::Sines(scale) => sines(grid_of(sequence)?, width, *scale),
        PlaceRows::SinesThenCosines(theta) => in_halves(grid_of(sequence)?, width, *theta),
        PlaceRows::Scaled(rows, _) => table(context, rows, sequence, width)?,
    })
}

/// Rows and columns of the map that given rows are places of.
fn grid_of(sequence: &Sequence) -> Result<[usize; 2]> {
    let given = sequence
        .sound
        .as_ref()
        .and_then(|sound| sound.rows.as_ref());
    let n = sequence.len();
    let side = n.isqrt();
    match given.map(|rows| rows.grid()) {
        Some(Some(grid)) => return Ok(grid),
        Some(None) if side * side == n => return Ok([side; 2]),
        Some(None) => {}
        // Built-in rows are places of any map.
        None => {
            let rows = (1..=side).rev().find(|rows| n.is_multiple_of(*rows));
            return Ok([rows.unwrap_or(1), n / rows.unwrap_or(1)]);
        }
    }
    let problem = format!(
        "expected an array [row, column, feature], or as many rows as a square map has places, found {n} rows"
    );
    Err(Error::Prompt(problem))
}

/// Sines and cosines of the row, then of the column, of each place. // [place, width]
fn sines([n_rows, n_columns]: [usize; 2], width: usize, scale: SineScale) -> Vec<f32> {
    let n_of_side = width / 2;
    let [of_rows, of_columns] = scale.thetas;
    let side = |at: usize, n: usize, theta: f64| {
        let turns = (at + 1) as f64 / (n as f64 + LEAST) * scale.range;
        (0..n_of_side).map(move |idx| {
            let frequency = theta.powf(-((idx / 2 * 2) as f64) / n_of_side as f64);
            let angle = turns * frequency;
            (if idx % 2 == 0 {
                angle.sin()
            } else {
                angle.cos()
            }) as f32
        })
    };
    (0..n_rows)
        .flat_map(|row| (0..n_columns).map(move |column| [row, column]))
        .flat_map(|[row, column]| {
            side(row, n_rows, of_rows).chain(side(column, n_columns, of_columns))
        })
        .collect()
}

/// Sines of the row, their cosines, then both of the column, of each place. // [place, width]
fn in_halves([n_rows, n_columns]: [usize; 2], width: usize, theta: f64) -> Vec<f32> {
    let n = width / 4;
    let side = |at: usize| {
        let angle = move |idx: usize| at as f64 * theta.powf(-(idx as f64) / n as f64);
        let sines = (0..n).map(move |idx| angle(idx).sin() as f32);
        sines.chain((0..n).map(move |idx| angle(idx).cos() as f32))
    };
    (0..n_rows)
        .flat_map(|row| (0..n_columns).map(move |column| [row, column]))
        .flat_map(|[row, column]| side(row).chain(side(column)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;

    #[test]
    fn places_are_sines_of_rows_and_then_of_columns() {
        let made = sines([1, 2], 4, SineScale::USUAL);
        let whole = TAU / (1.0 + LEAST);
        let half = TAU / (2.0 + LEAST);
        let expected = [whole.sin(), whole.cos(), half.sin(), half.cos()].map(|v| v as f32);
        assert_eq!(made[..4], expected);
        assert_eq!(made[4..6], expected[..2]);
        assert!((made[7] - 1.0).abs() < 1e-5);
        let scale = SineScale {
            range: 1.0,
            thetas: [4.0, 9.0],
        };
        let made = sines([1, 1], 8, scale);
        let turned = 1.0 / (1.0 + LEAST);
        let expected = [turned / 2.0, turned / 3.0].map(|angle| angle.sin() as f32);
        assert_eq!([made[2], made[6]], expected);
    }

    #[test]
    fn sines_may_stand_before_their_cosines_and_count_from_0() {
        let made = in_halves([2, 2], 8, 100.0);
        let angles = [1.0f64, 0.1];
        assert_eq!(made[..8], [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
        let column = [
            angles[0].sin(),
            angles[1].sin(),
            angles[0].cos(),
            angles[1].cos(),
        ];
        assert_eq!(made[12..16], column.map(|v| v as f32));
        assert_eq!(made[16..20], column.map(|v| v as f32));
    }
}
