//! Arithmetic on slices. Knows no attention and no model.

mod elementwise;
mod product;
pub mod simd;
mod tiles;

pub use elementwise::{
    Activation, activate, add_assign, are_finite, clamped_gate_assign, first_nonfinite, layer_norm,
    multiply_assign, norms_of_rows, rms_norm, scale_assign, sum_of_squares,
};
pub use product::{Matrix, MatrixMut, Threads, product};
pub use tiles::{Tile, tiles};
