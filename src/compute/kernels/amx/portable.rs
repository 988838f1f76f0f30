//! The tiles' arithmetic without tiles: slower, and the reference for them.

use super::pack::{ActivationStep, SIDE, Sums, Tile, WeightStep};

/// Adds the products of one instruction to a tile of sums, in its order: the first inputs of all pairs are summed, then the
/// second ones, and the sum of both is added to the tile. (Intel, Software Developer's Manual 2, TDPBF16PS)
///
/// A product of two bf16 is exact in f32, so it does not matter whether product and sum are rounded once or twice. Tiles treat
/// numbers below 2⁻¹²⁶ as zero; this code does not.
#[inline(always)]
fn add_products(weights: &Tile, activations: &Tile, sums: &mut [[f32; SIDE]; SIDE]) {
    let earlier = |pair: u32| f32::from_bits(pair << 16);
    let later = |pair: u32| f32::from_bits(pair & 0xffff_0000);
    for (weights, sums) in weights.0.iter().zip(sums) {
        let (mut of_earlier, mut of_later) = ([0.0; SIDE], [0.0; SIDE]);
        for (weight, activations) in weights.iter().zip(&activations.0) {
            for row_idx in 0..SIDE {
                of_earlier[row_idx] += earlier(*weight) * earlier(activations[row_idx]);
                of_later[row_idx] += later(*weight) * later(activations[row_idx]);
            }
        }
        for row_idx in 0..SIDE {
            sums[row_idx] += of_earlier[row_idx] + of_later[row_idx];
        }
    }
}

/// Adds to four tiles of sums, over all given steps.
pub fn multiply(weights: &[WeightStep], activations: &[ActivationStep], sums: &mut Sums) {
    for (weights, activations) in weights.iter().zip(activations) {
        for part in &activations.0 {
            for (weights, sums) in weights.0.iter().zip(&mut sums.0) {
                for (activations, sums) in part.iter().zip(sums) {
                    add_products(weights, activations, sums);
                }
            }
        }
    }
}
