//! Tiles in memory: splits activations into three bf16 parts, and arranges weights and activations in the order in which tiles
//! are loaded.
//!
//! The three parts sum to the number exactly down to 2⁻¹⁰²; below that the last bits are lost. Near the largest f32, the first
//! part rounds to infinity and the second is NaN, so that the sums show it.

use crate::kernels::simd::{Kernel, Lanes, Level};

/// Rows and columns of a tile of sums.
pub const SIDE: usize = 16;
/// Inputs in a tile: two adjacent bf16 inputs form one 32-bit element.
pub const STEP: usize = 2 * SIDE;
/// Number of parts that an activation is split into.
pub const N_PARTS: usize = 3;
/// Outputs, and rows, multiplied together: two tiles each.
pub const PAIR: usize = 2 * SIDE;

/// One tile: sixteen rows of sixteen pairs of bf16; the first of a pair is in the lower half.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Tile(pub [[u32; SIDE]; SIDE]);

/// 32 outputs × 32 inputs: a row per output. // [tile, output, pair of inputs]
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct WeightStep(pub [Tile; 2]);

/// 32 inputs × 32 rows in three parts, smallest first: a tile row per pair of inputs. // [part, tile, pair of inputs, row]
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct ActivationStep(pub [[Tile; 2]; N_PARTS]);

/// 32 outputs × 32 rows in four tiles. // [tile of outputs, tile of rows, output, row]
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Sums(pub [[[[f32; SIDE]; SIDE]; 2]; 2]);

impl Tile {
    pub const ZERO: Self = Self([[0; SIDE]; SIDE]);
}

impl WeightStep {
    pub const ZERO: Self = Self([Tile::ZERO; 2]);
}

impl ActivationStep {
    pub const ZERO: Self = Self([[Tile::ZERO; 2]; N_PARTS]);
}

impl Sums {
    pub const ZERO: Self = Self([[[[0.0; SIDE]; SIDE]; 2]; 2]);
}

const EXPONENT: u32 = 0x7f80_0000;
const BF16_NAN: u32 = 0x7fc0;

/// The bits of the nearest bf16, ties to even; NaN for a non-finite value, so that its sums show it.
#[inline(always)]
fn nearest_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    let nearest = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16;
    if bits & EXPONENT == EXPONENT {
        BF16_NAN
    } else {
        nearest
    }
}

/// Exchanges rows and columns, in 4 × 4 blocks, which compilers turn into shuffles.
#[inline(always)]
pub fn transpose<T: Copy>(from: &[[T; SIDE]; SIDE], to: &mut [[T; SIDE]; SIDE]) {
    for row_idx in (0..SIDE).step_by(4) {
        for col_idx in (0..SIDE).step_by(4) {
            for col in col_idx..col_idx + 4 {
                for row in row_idx..row_idx + 4 {
                    to[col][row] = from[row][col];
                }
            }
        }
    }
}

/// Packs up to 32 rows of activations; missing rows and inputs are zero. // rows: [row, n_in]
pub fn pack_activations(rows: &[f32], n_in: usize, to: &mut [ActivationStep]) {
    Level::best().run(PackActivations { rows, n_in, to });
}

struct PackActivations<'a> {
    rows: &'a [f32],
    n_in: usize,
    to: &'a mut [ActivationStep],
}

impl Kernel for PackActivations<'_> {
    type Output = ();

    // Plain loops, which the compiler vectorises for the level.
    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let Self { rows, n_in, to } = self;
        for (step_idx, to) in to.iter_mut().enumerate() {
            for tile_idx in 0..2 {
                let mut by_input = [[0.0; SIDE]; STEP]; // [input, row]
                for (half, by_input) in by_input.as_chunks_mut().0.iter_mut().enumerate() {
                    let start = n_in.min(step_idx * STEP + half * SIDE);
                    let inputs = start..n_in.min(start + SIDE);
                    let mut by_row = [[0.0; SIDE]; SIDE];
                    let of_tile = rows.chunks(n_in).skip(tile_idx * SIDE);
                    for (to, row) in by_row.iter_mut().zip(of_tile) {
                        match row[inputs.clone()].as_array() {
                            Some(values) => *to = *values,
                            None => to[..inputs.len()].copy_from_slice(&row[inputs.clone()]),
                        }
                    }
                    transpose(&by_row, by_input);
                }
                for (pair_idx, pair) in by_input.as_chunks::<2>().0.iter().enumerate() {
                    let words = split_pairs(pair);
                    for (to, words) in to.0.iter_mut().zip(words) {
                        to[tile_idx].0[pair_idx] = words;
                    }
                }
            }
        }
    }
}

/// Splits two inputs of sixteen rows; the first input is in the lower half of each word. // [part, row]
#[inline(always)]
fn split_pairs([earlier, later]: &[[f32; SIDE]; 2]) -> [[u32; SIDE]; N_PARTS] {
    // Loops over parts outside and numbers inside, which compilers vectorise.
    let mut left = [*earlier, *later];
    let mut words = [[0; SIDE]; N_PARTS];
    for words in words.iter_mut().rev() {
        for row_idx in 0..SIDE {
            let earlier = nearest_bf16(left[0][row_idx]);
            words[row_idx] = earlier | nearest_bf16(left[1][row_idx]) << 16;
        }
        for row_idx in 0..SIDE {
            left[0][row_idx] -= f32::from_bits(words[row_idx] << 16);
            left[1][row_idx] -= f32::from_bits(words[row_idx] & 0xffff_0000);
        }
    }
    words
}

/// Packs up to 32 outputs, from input `first_in` on; missing outputs and inputs are zero. // [output, n_in]
pub fn pack_weights(outputs: &[u16], n_in: usize, first_in: usize, to: &mut [WeightStep]) {
    for (step_idx, to) in to.iter_mut().enumerate() {
        let start = first_in + step_idx * STEP;
        let inputs = start..n_in.min(start + STEP);
        *to = WeightStep::ZERO;
        let rows = to.0.iter_mut().flat_map(|tile| &mut tile.0);
        for (row, values) in rows.zip(outputs.chunks(n_in)) {
            match values[inputs.clone()].as_array::<STEP>() {
                Some(values) => *row = pairs(values),
                None => {
                    let mut some = [0; STEP];
                    some[..inputs.len()].copy_from_slice(&values[inputs.clone()]);
                    *row = pairs(&some);
                }
            }
        }
    }
}

#[inline(always)]
fn pairs(values: &[u16; STEP]) -> [u32; SIDE] {
    std::array::from_fn(|idx| u32::from(values[2 * idx]) | u32::from(values[2 * idx + 1]) << 16)
}

/// Like [`pack_weights`], for up to 32 of `n_out` outputs whose weights are stored input by input. // [n_in, n_out]
pub fn pack_weights_by_input(
    values: &[u16],
    n_out: usize,
    outputs: std::ops::Range<usize>,
    first_in: usize,
    to: &mut [WeightStep],
) {
    let mut inputs = values.chunks(n_out).skip(first_in);
    for to in to {
        let mut turned = WeightStep::ZERO; // [tile, pair of inputs, output]
        for pair_idx in 0..SIDE {
            for shift in [0, 16] {
                let Some(input) = inputs.next() else { break };
                let tiles = turned.0.iter_mut();
                for (tile, halves) in tiles.zip(input[outputs.clone()].chunks(SIDE)) {
                    for (pair, half) in tile.0[pair_idx].iter_mut().zip(halves) {
                        *pair |= u32::from(*half) << shift;
                    }
                }
            }
        }
        for (turned, to) in turned.0.iter().zip(&mut to.0) {
            transpose(&turned.0, &mut to.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a number, smallest first, checked to be equal in both halves of a pair.
    fn parts(value: f32) -> [f32; N_PARTS] {
        let words = split_pairs(&[[value; SIDE]; 2]).map(|words| words[3]);
        words.map(|word| {
            assert_eq!(word << 16, word & 0xffff_0000);
            f32::from_bits(word << 16)
        })
    }

    #[test]
    fn the_three_parts_sum_to_the_number() {
        let mut state = 0x9e37_79b9_u32;
        for _ in 0..200_000 {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            let value = f32::from_bits(state);
            // Below 2^-102 the last bits are subnormal, and tiles treat subnormals as zero.
            if (2f32.powi(-102)..3.38e38).contains(&value.abs()) {
                let sum: f64 = parts(value).map(f64::from).into_iter().sum();
                assert_eq!(sum, f64::from(value), "{value:e}");
            }
        }
    }

    #[test]
    fn a_non_finite_number_shows_in_some_part() {
        for value in [
            f32::INFINITY,
            -f32::INFINITY,
            f32::NAN,
            f32::from_bits(0x7fff_ffff),
            f32::from_bits(0xff80_0001),
            f32::MAX,
        ] {
            let sum: f32 = parts(value).into_iter().sum();
            assert!(!sum.is_finite(), "{value:e}");
        }
    }

    #[test]
    fn weights_stored_in_either_order_pack_alike() {
        let (n_out, n_in) = (37, 75);
        let by_output: Vec<u16> = (0..n_out * n_in).map(|v| v as u16 + 1).collect();
        let by_input: Vec<u16> = (0..n_in)
            .flat_map(|input| (0..n_out).map(move |output| (output * n_in + input) as u16 + 1))
            .collect();
        for outputs in [0..32, 32..37] {
            for (first_in, n_steps) in [(0, 3), (64, 1)] {
                let mut left = vec![WeightStep::ZERO; n_steps];
                let mut right = left.clone();
                let rows = &by_output[outputs.start * n_in..outputs.end * n_in];
                pack_weights(rows, n_in, first_in, &mut left);
                pack_weights_by_input(&by_input, n_out, outputs.clone(), first_in, &mut right);
                for (left, right) in left.iter().zip(&right) {
                    for (left, right) in left.0.iter().zip(&right.0) {
                        assert_eq!(left.0, right.0);
                    }
                }
            }
        }
    }
}
