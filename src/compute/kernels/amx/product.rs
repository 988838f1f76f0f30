//! The product with bf16 weights: its blocks, its threads, and the handling of non-finite sums.

use std::cell::Cell;

use rayon::prelude::*;

use super::Engine;
use super::pack::{
    ActivationStep, PAIR, SIDE, STEP, Sums, WeightStep, pack_activations, pack_weights,
    pack_weights_by_input, transpose,
};
use crate::kernels::{self, Matrix, MatrixMut, Threads, Tile};

/// Outputs, and rows, computed by one task: their packed data stays in a core's own cache.
const OUTPUTS_AT_ONCE: usize = 2 * PAIR;
const ROWS_AT_ONCE: usize = 512;
/// Steps of 32 inputs multiplied before the next rows: their weights stay in the L1 cache.
const STEPS_AT_ONCE: usize = 16;

/// A matrix of bf16 weights as stored in a file.
#[derive(Debug, Clone, Copy)]
pub struct Bf16Matrix<'a> {
    values: &'a [u16],
    n_out: usize,
    n_in: usize,
    is_input_major: bool,
}

impl<'a> Bf16Matrix<'a> {
    /// Bits of bf16 numbers: [n_out, n_in], or [n_in, n_out] when `is_input_major`.
    ///
    /// # Panics
    /// When their number differs: a programming error, never caused by input.
    pub fn new(values: &'a [u16], n_out: usize, n_in: usize, is_input_major: bool) -> Self {
        assert_eq!(values.len(), n_out * n_in, "{n_out} x {n_in} bf16 numbers");
        Self {
            values,
            n_out,
            n_in,
            is_input_major,
        }
    }

    fn pack(self, outputs: std::ops::Range<usize>, first_in: usize, to: &mut [WeightStep]) {
        if self.is_input_major {
            pack_weights_by_input(self.values, self.n_out, outputs, first_in, to);
        } else {
            let values = &self.values[outputs.start * self.n_in..outputs.end * self.n_in];
            pack_weights(values, self.n_in, first_in, to);
        }
    }

    /// Some outputs widened to f32. // [output, n_in]
    fn widened(self, outputs: std::ops::Range<usize>) -> Vec<f32> {
        let wide = |output_idx: usize, input_idx: usize| {
            let at = if self.is_input_major {
                input_idx * self.n_out + output_idx
            } else {
                output_idx * self.n_in + input_idx
            };
            f32::from_bits(u32::from(self.values[at]) << 16)
        };
        outputs
            .flat_map(|output_idx| (0..self.n_in).map(move |input_idx| wide(output_idx, input_idx)))
            .collect()
    }
}

/// Like [`super::product_bf16`], with a given engine, on the current thread or on all threads.
pub(super) fn product_by(
    engine: Engine,
    threads: Threads,
    out: &mut [f32],
    x: &[f32],
    weights: Bf16Matrix<'_>,
    accumulate: bool,
    did: &(dyn Fn(u64) -> bool + Sync),
) -> bool {
    let (n_out, n_in) = (weights.n_out, weights.n_in);
    if out.is_empty() {
        return true;
    }
    if n_in == 0 {
        if !accumulate {
            out.fill(0.0);
        }
        return true;
    }
    assert!(
        x.len().is_multiple_of(n_in) && out.len() == x.len() / n_in * n_out,
        "shapes of a product do not fit"
    );
    let n_steps = n_in.div_ceil(STEP);
    let mut packed = ACTIVATIONS.take();
    let blocks = out.chunks_mut(ROWS_AT_ONCE * n_out);
    let goes_on = blocks.zip(x.chunks(ROWS_AT_ONCE * n_in)).all(|(out, x)| {
        let n_pairs = (x.len() / n_in).div_ceil(PAIR);
        packed.resize(n_pairs * n_steps, ActivationStep::ZERO);
        let pack = |(to, rows): (&mut [ActivationStep], &[f32])| pack_activations(rows, n_in, to);
        match threads {
            Threads::One => {
                let pairs = packed.chunks_mut(n_steps).zip(x.chunks(PAIR * n_in));
                pairs.for_each(pack);
            }
            Threads::Pool => {
                let pairs = packed.par_chunks_mut(n_steps);
                pairs.zip(x.par_chunks(PAIR * n_in)).for_each(pack);
            }
        }
        let block = Block {
            engine,
            x,
            packed: &packed,
            weights,
            n_steps,
            accumulate,
        };
        let compute = |(nth, tile): (usize, Tile<'_>)| {
            let first = nth * OUTPUTS_AT_ONCE;
            let outputs = first..n_out.min(first + OUTPUTS_AT_ONCE);
            let work = (x.len() * outputs.len()) as u64;
            did(0) && {
                block.compute(tile, outputs);
                did(work)
            }
        };
        let n_rows = out.len() / n_out.max(1);
        let mut out = MatrixMut::new(out, n_rows, n_out, n_out);
        let tiles = out.tiles(ROWS_AT_ONCE, OUTPUTS_AT_ONCE);
        match threads {
            Threads::One => tiles.into_iter().enumerate().all(compute),
            Threads::Pool => tiles.into_par_iter().enumerate().all(compute),
        }
    });
    ACTIVATIONS.set(packed);
    goes_on
}

// Taken and put back instead of borrowed: a thread that waits for others may be given a part of another product meanwhile.
thread_local! {
    static ACTIVATIONS: Cell<Vec<ActivationStep>> = const { Cell::new(Vec::new()) };
    static WEIGHTS: Cell<Vec<WeightStep>> = const { Cell::new(Vec::new()) };
    static SUMS: Cell<Vec<Sums>> = const { Cell::new(Vec::new()) };
}

/// Rows multiplied with all outputs before the next rows are packed.
struct Block<'a> {
    engine: Engine,
    /// [row, n_in]
    x: &'a [f32],
    /// [pair of tiles of rows, step]
    packed: &'a [ActivationStep],
    weights: Bf16Matrix<'a>,
    n_steps: usize,
    accumulate: bool,
}

impl Block<'_> {
    /// Computes some outputs of all rows.
    fn compute(&self, mut out: Tile<'_>, outputs: std::ops::Range<usize>) {
        let n_output_pairs = outputs.len().div_ceil(PAIR);
        let n_row_pairs = self.packed.len() / self.n_steps;
        let mut weights = WEIGHTS.take();
        let mut sums = SUMS.take();
        sums.clear();
        sums.resize(n_output_pairs * n_row_pairs, Sums::ZERO); // [pair of outputs, pair of rows]
        self.engine.with(|session| {
            for first in (0..self.n_steps).step_by(STEPS_AT_ONCE) {
                let steps = first..self.n_steps.min(first + STEPS_AT_ONCE);
                for (pair_idx, sums) in sums.chunks_mut(n_row_pairs).enumerate() {
                    let start = outputs.start + pair_idx * PAIR;
                    weights.resize(steps.len(), WeightStep::ZERO);
                    let pair = start..outputs.end.min(start + PAIR);
                    self.weights.pack(pair, first * STEP, &mut weights);
                    for (rows, sums) in self.packed.chunks(self.n_steps).zip(sums) {
                        session.multiply(&weights, &rows[steps.clone()], sums);
                    }
                }
            }
        });
        let mut not_finite = Vec::new();
        for row_tile_idx in 0..out.n_rows().div_ceil(SIDE) {
            let (pair_idx, half_idx) = (row_tile_idx / 2, row_tile_idx % 2);
            let mut rows = [[0.0; OUTPUTS_AT_ONCE]; SIDE]; // [row, output]
            for (nth, sums) in sums.iter().skip(pair_idx).step_by(n_row_pairs).enumerate() {
                for (tile_idx, tiles) in sums.0.iter().enumerate() {
                    let mut turned = [[0.0; SIDE]; SIDE];
                    transpose(&tiles[half_idx], &mut turned);
                    for (row, turned) in rows.iter_mut().zip(&turned) {
                        row[nth * PAIR + tile_idx * SIDE..][..SIDE].copy_from_slice(turned);
                    }
                }
            }
            let first = row_tile_idx * SIDE;
            for (row_idx, row) in (first..out.n_rows().min(first + SIDE)).zip(&rows) {
                let row = &row[..outputs.len()];
                // No early return, so that compilers vectorise this.
                if row.iter().fold(true, |all, v| all & v.is_finite()) {
                    self.write(out.row(row_idx), row)
                } else {
                    not_finite.push(row_idx)
                }
            }
        }
        WEIGHTS.set(weights);
        SUMS.set(sums);
        self.recompute(&mut out, outputs, &not_finite);
    }

    fn write(&self, to: &mut [f32], sums: &[f32]) {
        if !self.accumulate {
            return to.copy_from_slice(sums);
        }
        to.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum);
    }

    /// Recomputes, in plain f32, rows whose inputs or sums are not finite.
    fn recompute(&self, out: &mut Tile<'_>, outputs: std::ops::Range<usize>, row_idxs: &[usize]) {
        if row_idxs.is_empty() {
            return;
        }
        let n_in = self.weights.n_in;
        let wide = self.weights.widened(outputs.clone());
        let right = Matrix::row_major(&wide, outputs.len(), n_in).transposed();
        let mut x = Vec::with_capacity(row_idxs.len() * n_in);
        for row_idx in row_idxs {
            x.extend_from_slice(&self.x[row_idx * n_in..][..n_in]);
        }
        let mut sums = vec![0.0; row_idxs.len() * outputs.len()];
        let mut to = MatrixMut::new(&mut sums, row_idxs.len(), outputs.len(), outputs.len());
        let left = Matrix::row_major(&x, row_idxs.len(), n_in);
        kernels::product(&mut to, left, right, false, Threads::One);
        for (row_idx, sums) in row_idxs.iter().zip(sums.chunks(outputs.len())) {
            self.write(out.row(*row_idx), sums);
        }
    }
}
