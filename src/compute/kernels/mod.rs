//! Arithmetic on slices. Knows no attention and no model.

pub mod amx;
mod elementwise;
mod few_rows;
pub mod logit_row;
mod product;
pub mod recurrent;
pub mod residual;
pub mod simd;
pub mod softmax_row;
pub mod stored;
mod tiles;
pub mod vectors;

pub use elementwise::{
    Activation, activate, add_assign, are_finite, clamped_gate_assign, first_nonfinite, layer_norm,
    multiply_assign, norms_of_rows, rms_norm, scale_assign, sum_of_squares,
};
pub use few_rows::{FewRows, few_rows};
pub use product::{Matrix, MatrixMut, Threads, product};
pub use tiles::{Tile, tiles};

/// Numbers given as the bits of bf16, as f32.
pub fn widen_bf16(bits: &[u16]) -> Vec<f32> {
    // bf16 is the upper half of an f32: a shift, which the compiler turns into vector code.
    let wide = |bits: &u16| f32::from_bits(u32::from(*bits) << 16);
    bits.iter().map(wide).collect()
}
