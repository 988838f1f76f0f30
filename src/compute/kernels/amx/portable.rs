//! The arithmetic of the tiles without tiles: slower, and the judge of the others.

use super::pack::{ActivationStep, SIDE, Sums, Tile, WeightStep};

/// What one instruction adds to a tile of sums, in its order: the earlier inputs of all pairs are summed, the later ones are, and the
/// sum of both is added to what was there. (Intel, Software Developer's Manual 2, TDPBF16PS)
///
/// A product of two bf16 is exact in f32, so that it does not matter whether product and sum are rounded once or twice. Tiles take numbers
/// below 2⁻¹²⁶ for zero; here they are what they are.
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

/// Adds to four tiles of sums, over the steps that are given.
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
